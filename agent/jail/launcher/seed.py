"""Puts the unsaved text of open documents into a private view. Standard library only; both backends use it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def seed_buffers(
    root: int, buffers: Iterable[tuple[bytes, bytes]], owner: tuple[int, int] | None = None, mode: int = 0o644
) -> list[bytes]:
    """Write each (relative posix path, content) below the folder `root`; returns the paths that could not be.

    No link is followed. What is new gets `mode`, and belongs to `owner` where one is given.
    """
    failed = []
    for path, content in buffers:
        try:
            _seed(root, path, content, owner, mode)
        except OSError:
            failed.append(path)
    return failed


def _seed(root: int, path: bytes, content: bytes, owner: tuple[int, int] | None, mode: int) -> None:
    *folders, name = path.split(b"/")
    if any(part in (b"", b".", b"..") for part in (*folders, name)):
        raise OSError(f"{path!r} is no relative path")
    here = os.dup(root)
    try:
        for folder in folders:
            try:
                os.mkdir(folder, 0o755, dir_fd=here)
                if owner:
                    os.chown(folder, *owner, dir_fd=here, follow_symlinks=False)
            except FileExistsError:
                pass  # most are
            below = os.open(folder, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        is_new = os.fsdecode(name) not in os.listdir(here)
        number = os.open(name, _FILE, mode, dir_fd=here)
        with open(number, "wb") as file:
            if is_new:
                os.fchmod(number, mode)
                if owner:
                    os.fchown(number, *owner)
            file.write(content)
    finally:
        os.close(here)
