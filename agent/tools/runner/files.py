"""Opening files below one folder, so that no link and no race leads out of it.

Every access goes from the descriptor of the top folder through openat2 with BENEATH, NO_SYMLINKS and
NO_MAGICLINKS. Where that call is missing (an old kernel, a filter, another system) each component is opened
with O_NOFOLLOW from the one before. Checking a path and opening it later is not safe: another process may
put a link there in between.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager

Parts = tuple[str, ...]
"""A path below the top folder: names only, no empty ones, no `.` and no `..`."""

_SYS_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_MISSING_CALL = (errno.ENOSYS, errno.EPERM, errno.E2BIG)
_MAX_TRIES = 32  # EAGAIN says that the kernel saw a rename; a racing process must not make us spin for ever
_FOLDER = os.O_RDONLY | os.O_DIRECTORY


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


class Tree:
    """The files below one folder."""

    def __init__(self, folder: str, *, use_openat2: bool = True) -> None:
        self.folder = folder
        self.descriptor = os.open(folder, _FOLDER | os.O_CLOEXEC)
        self._libc = ctypes.CDLL(None, use_errno=True) if use_openat2 and sys.platform == "linux" else None

    def close(self) -> None:
        """Close the descriptor of the top folder."""
        os.close(self.descriptor)

    def open(self, parts: Parts, flags: int, mode: int = 0o666) -> int:
        """A descriptor of what lies at `parts`, never through a link. Raises OSError naming the path."""
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            if self._libc is not None:
                descriptor = self._openat2(parts, flags, mode)
                if descriptor is not None:
                    return descriptor
            return self._open_by_components(parts, flags, mode)
        except OSError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), "/".join(parts) or ".") from None

    def _openat2(self, parts: Parts, flags: int, mode: int) -> int | None:
        path = os.fsencode("/".join(parts)) or b"."
        if b"\0" in path:
            raise ValueError("embedded null byte")
        how = _OpenHow(
            flags, mode if flags & os.O_CREAT else 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
        )
        assert self._libc is not None
        for _ in range(_MAX_TRIES):
            result = self._libc.syscall(
                ctypes.c_long(_SYS_OPENAT2),
                ctypes.c_int(self.descriptor),
                ctypes.c_char_p(path),
                ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
            )
            if result >= 0:
                return int(result)
            number = ctypes.get_errno()
            if number == errno.EINTR:
                continue
            if number in _MISSING_CALL and not self._works():
                self._libc = None
                return None
            if number != errno.EAGAIN:
                raise OSError(number, os.strerror(number))
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def _works(self) -> bool:
        """False where the call itself is missing (EPERM may also be an answer about one file)."""
        assert self._libc is not None
        how = _OpenHow(_FOLDER | os.O_CLOEXEC, 0, _RESOLVE_BENEATH)
        result = self._libc.syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_int(self.descriptor),
            ctypes.c_char_p(b"."),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if result >= 0:
            os.close(int(result))
        return bool(result >= 0)

    def _open_by_components(self, parts: Parts, flags: int, mode: int) -> int:
        if not parts:
            return os.open(".", flags, mode, dir_fd=self.descriptor)
        at = self.descriptor
        try:
            for name in parts[:-1]:
                below = os.open(name, _FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
                if at != self.descriptor:
                    os.close(at)
                at = below
            return os.open(parts[-1], flags, mode, dir_fd=at)
        finally:
            if at != self.descriptor:
                os.close(at)

    @contextmanager
    def parent(self, parts: Parts) -> Iterator[int]:
        """A descriptor of the folder that holds the last name."""
        descriptor = self.open(parts[:-1], _FOLDER)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def lstat(self, parts: Parts) -> os.stat_result | None:
        """What lies at `parts` (a link is itself), None where there is nothing. Raises OSError."""
        if not parts:
            return os.stat(self.descriptor)
        try:
            with self.parent(parts) as folder:
                return os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link stands where a folder was
                return None
            raise OSError(error.errno, os.strerror(error.errno or 0), "/".join(parts)) from None

    def readlink(self, parts: Parts) -> str:
        """The target of a link."""
        with self.parent(parts) as folder:
            return os.readlink(parts[-1], dir_fd=folder)

    def list(self, parts: Parts) -> dict[str, int]:
        """The names in a folder, each with its kind (`stat.S_IFMT` of its mode; 0 where it went away)."""
        descriptor = self.open(parts, _FOLDER)
        try:
            with os.scandir(descriptor) as entries:
                return {entry.name: _kind(entry) for entry in entries}
        finally:
            os.close(descriptor)


def _kind(entry: os.DirEntry[str]) -> int:
    try:
        if entry.is_symlink():
            return stat.S_IFLNK
        if entry.is_dir(follow_symlinks=False):
            return stat.S_IFDIR
        if entry.is_file(follow_symlinks=False):
            return stat.S_IFREG
        return stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return 0
