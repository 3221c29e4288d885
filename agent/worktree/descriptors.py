"""Reading below a folder by descriptor: no link is followed, nothing blocks, everything is bounded."""

from __future__ import annotations

import errno
import os
import stat

from agent.types import FileState

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE_BYTES = 1024 * 1024
# O_NOFOLLOW answers ELOOP for a link, O_DIRECTORY ENOTDIR for what is no folder
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def open_folder(name: str, at: int) -> int | None:
    """Open a folder below `at`, or None where there is no folder (any more). The caller closes it.

    A folder without permissions that belongs to us is opened all the same, with its mode put back.
    """
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=at)
    except PermissionError:
        return _open_closed(name, at, _FOLDER_FLAGS, 0o700)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise


def open_parent(path: str, root: int) -> tuple[int | None, str]:
    """The folder that holds the relative posix `path`, walked part by part, and its last name.

    The folder is None where it does not exist, or a part of the way is a link. The caller closes it.
    """
    *folders, name = path.split("/")
    here = os.dup(root)
    for folder in folders:
        if folder in ("", ".", ".."):
            os.close(here)
            return None, name
        below = open_folder(folder, here)
        os.close(here)
        if below is None:
            return None, name
        here = below
    return here, name


def read_entry(name: str, at: int, *, max_bytes: int) -> tuple[FileState | None, os.stat_result | None]:
    """The state of one entry that is no folder, with its `lstat`; (None, None) where there is nothing.

    A folder gives (None, its stat). Files over `max_bytes` and special files have neither data nor link.
    """
    try:
        info = os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None, None
        raise
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISDIR(info.st_mode):
        return None, info
    if stat.S_ISLNK(info.st_mode):
        return FileState(data=None, mode=mode, link=os.readlink(name, dir_fd=at)), info
    if not stat.S_ISREG(info.st_mode) or info.st_size > max_bytes:
        return FileState(data=None, mode=mode), info
    try:
        number = os.open(name, _READ_FLAGS, dir_fd=at)
    except PermissionError:
        opened = _open_closed(name, at, _READ_FLAGS, 0o600)
        if opened is None:
            raise
        number = opened
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return FileState(data=None, mode=mode), info
        data = _read_all(number, max_bytes)
    finally:
        os.close(number)
    return FileState(data=data, mode=mode), info


def _read_all(number: int, max_bytes: int) -> bytes | None:
    """All bytes of an open file, or None where it grew over `max_bytes`."""
    pieces = []
    left = max_bytes + 1
    while left > 0 and (piece := os.read(number, min(_PIECE_BYTES, left))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces) if left > 0 else None


def _open_closed(name: str, at: int, flags: int, mode: int) -> int | None:
    """Open what its owner (we) took the permission from; its mode is the old one afterwards."""
    path_fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        info = os.fstat(path_fd)
        if info.st_uid != os.geteuid() or stat.S_ISLNK(info.st_mode):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        magic = f"/proc/self/fd/{path_fd}"
        os.chmod(magic, mode)
        try:
            return os.open(magic, flags & ~os.O_NOFOLLOW)
        finally:
            os.chmod(magic, stat.S_IMODE(info.st_mode))
    finally:
        os.close(path_fd)
