"""What git would ignore in a workspace, without running git and without walking the tree.

For one path only the `.gitignore` files of the folders above it are read, once each, so the cost follows the
change and not the workspace. Host git is never run over what an agent touched.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from pathspec import GitIgnoreSpec

MAX_RULES_BYTES = 1 << 20
"""A `.gitignore` larger than this is not read: no person wrote it."""

MAX_INDEX_BYTES = 512 << 20
"""An index larger than this is not searched; its files then count as not tracked."""


def ignore_rules(workspace: str) -> Callable[[str], bool]:
    """`is_ignored(path)` for paths relative to `workspace`, by the rules of git.

    All levels of `.gitignore` count, those of the repository above the workspace too, and `.git/info/exclude`.
    As in git, a file that is tracked is not ignored, and nothing below an ignored folder can be taken back.
    Outside a repository the `.gitignore` files of the workspace count alone. The user's global rules do not.
    """
    return _Rules(os.path.abspath(workspace)).is_ignored


class _Rules:
    def __init__(self, workspace: str) -> None:
        self._root, self._git = _find_repository(workspace)
        relative = os.path.relpath(workspace, self._root)
        self._prefix = "" if relative == "." else relative + "/"
        self._specs: dict[str, GitIgnoreSpec | None] = {}
        self._exclude = _read_spec(os.path.join(self._git, "info", "exclude")) if self._git else None

    def is_ignored(self, path: str) -> bool:
        full = self._prefix + path
        parts = full.split("/")
        for n_parts in range(1, len(parts) + 1):
            is_folder = n_parts < len(parts)
            if self._matches("/".join(parts[:n_parts]) + ("/" if is_folder else "")):
                return not self._is_tracked(full)
        return False

    def _matches(self, path: str) -> bool:
        """Whether the last rule that speaks of this very path says "ignored"; deeper files speak last."""
        verdict = self._exclude.check_file(path).include if self._exclude else None
        for folder in _folders_above(path):
            spec = self._spec(folder)
            said = spec.check_file(path[len(folder) :]).include if spec else None
            verdict = verdict if said is None else said
        return bool(verdict)

    def _spec(self, folder: str) -> GitIgnoreSpec | None:
        if folder not in self._specs:
            self._specs[folder] = _read_spec(os.path.join(self._root, folder, ".gitignore"))
        return self._specs[folder]

    def _is_tracked(self, path: str) -> bool:
        index = _read(os.path.join(self._git, "index"), MAX_INDEX_BYTES) if self._git else None
        if index is None:
            return False
        # Versions 2 and 3 hold each name whole, after 16 bits of which the lower 12 are its length
        # (version 3 may put 16 bits more between); version 4 does not, and its files count as not tracked.
        name = os.fsencode(path)
        at = index.find(name + b"\0")
        while at >= 4:
            lengths = (int.from_bytes(index[at - n : at - n + 2], "big") & 0xFFF for n in (2, 4))
            if min(len(name), 0xFFF) in lengths:
                return True
            at = index.find(name + b"\0", at + 1)
        return False


def _folders_above(path: str) -> Iterator[str]:
    """`""`, then each folder above the path, ending in a slash, from the top."""
    yield ""
    at = path.find("/")
    while 0 <= at < len(path) - 1:
        yield path[: at + 1]
        at = path.find("/", at + 1)


def _find_repository(workspace: str) -> tuple[str, str | None]:
    """The root of the working tree that holds the workspace and its common git folder, else the workspace and None."""
    folder = workspace
    while True:
        dot_git = os.path.join(folder, ".git")
        if os.path.isdir(dot_git):
            return folder, dot_git
        if (pointer := _read(dot_git, 4096)) is not None and pointer.startswith(b"gitdir:"):
            git = os.path.join(folder, os.fsdecode(pointer[7:].strip()))
            common = _read(os.path.join(git, "commondir"), 4096)
            return folder, os.path.join(git, os.fsdecode(common.strip())) if common else git
        if folder == os.path.dirname(folder):
            return workspace, None
        folder = os.path.dirname(folder)


def _read_spec(path: str) -> GitIgnoreSpec | None:
    data = _read(path, MAX_RULES_BYTES)
    if data is None:
        return None
    lines = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:
        return GitIgnoreSpec.from_lines([line for line in lines if _is_rule(line)])


def _is_rule(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _read(path: str, max_bytes: int) -> bytes | None:
    """The bytes of a plain file; None for anything else (git does not follow a link there either)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > max_bytes:
            return None
        try:
            return file.read(max_bytes)
        except OSError:
            return None
