"""Changes of mode, owner and time, asked for by jailed processes and done by us: in the private folders alone.

Landlock has no right for these, so a jailed process could change any file that the user owns. The filter stops
it instead and asks here. What is asked is read once; the file is opened by us, found again below a private folder
without any link, and changed through that very descriptor, with no more rights than the asking process has. The
call itself is never let through: the process could change its arguments meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re

from agent.jail.launcher import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_NOTIFICATION_BYTES = 80
_PATH_BYTES = 4096
_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = 0x100, 0x1000
_OWN_DESCRIPTOR = re.compile(rb"/(?:proc/(?:self|thread-self)|dev)/fd/(\d{1,9})")

# name: (what, place of the folder, place of the path, place of the value, place of the flags or fixed flags)
_FOLLOW, _NOFOLLOW = "follow", "nofollow"
_SHAPES: dict[bytes, tuple[str, int | None, int | None, int, int | str]] = {
    b"chmod": ("mode", None, 0, 1, _FOLLOW),
    b"fchmod": ("mode", 0, None, 1, _FOLLOW),
    b"fchmodat": ("mode", 0, 1, 2, _FOLLOW),
    b"fchmodat2": ("mode", 0, 1, 2, 3),
    b"chown": ("owner", None, 0, 1, _FOLLOW),
    b"lchown": ("owner", None, 0, 1, _NOFOLLOW),
    b"fchown": ("owner", 0, None, 1, _FOLLOW),
    b"fchownat": ("owner", 0, 1, 2, 4),
    b"utime": ("seconds", None, 0, 1, _FOLLOW),
    b"utimes": ("microseconds", None, 0, 1, _FOLLOW),
    b"futimesat": ("microseconds", 0, 1, 2, _FOLLOW),
    b"utimensat": ("nanoseconds", 0, 1, 2, 3),
}
_TIME_BYTES = {"seconds": 16, "microseconds": 32, "nanoseconds": 32}


class Calls:
    """Answers what the filter asks. `roots` are the private folders, `numbers` the calls by name."""

    def __init__(self, listener: int, roots: tuple[bytes, ...], numbers: tuple[tuple[bytes, int], ...]) -> None:
        self.listener = listener
        self._names = {number: name for name, number in numbers}
        self._roots = [(os.path.realpath(root), os.open(root, os.O_PATH | os.O_DIRECTORY)) for root in roots]

    def answer(self) -> None:
        """Take one question and answer it; who asked may be gone by then. Raises StepError where none can be taken."""
        buffer = bytearray(_NOTIFICATION_BYTES)
        if not self._request(_RECEIVE, buffer):
            return
        words = memoryview(buffer)
        number = 0
        try:
            self._do(bytes(words[:8]), int.from_bytes(words[8:12], "little"), words)
        except OSError as error:
            number = error.errno or errno.EPERM
        except Exception:  # whatever it was that was asked: no
            number = errno.EPERM
        reply = bytes(words[:8]) + bytes(8) + (-number).to_bytes(4, "little", signed=True) + bytes(4)
        self._request(_SEND, bytearray(reply))

    def _request(self, number: int, buffer: bytearray) -> bool:
        """False where the asking process is gone."""
        try:
            fcntl.ioctl(self.listener, number, buffer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return False
            raise kernel.StepError("user notification", error.errno or 0) from error
        return True

    def _do(self, question: bytes, thread: int, words: memoryview) -> None:
        name = self._names[int.from_bytes(words[16:20], "little")]
        arguments = [int.from_bytes(words[at : at + 8], "little") for at in range(32, 80, 8)]
        what, folder_at, path_at, value_at, flags_at = _SHAPES[name]
        flags = arguments[flags_at] & 0xFFFFFFFF if isinstance(flags_at, int) else 0
        if flags_at == _NOFOLLOW:
            flags = _AT_SYMLINK_NOFOLLOW
        if flags & ~(_AT_SYMLINK_NOFOLLOW | _AT_EMPTY_PATH):
            raise OSError(errno.EINVAL, "flags")
        folder = _AT_FDCWD if folder_at is None else _signed(arguments[folder_at])
        asker = _Asker(thread)
        try:
            path = b"" if path_at is None else asker.path(arguments[path_at])
            if path_at is None or (path is None and what == "nanoseconds"):
                path, flags = b"", _AT_EMPTY_PATH
            if path is None:
                raise OSError(errno.EFAULT, "path")
            value = self._value(what, arguments[value_at : value_at + 2], asker)
            target = asker.open(folder, path, flags)
        finally:
            asker.close()
        try:
            # after the last look at it: all of that was of the asking process, not of a later one with its id
            fcntl.ioctl(self.listener, _IS_VALID, question)
            found = self._find_again(target)
        finally:
            os.close(target)
        try:
            _change(b"/proc/self/fd/%d" % found, what, value)
        finally:
            os.close(found)

    def _value(self, what: str, arguments: list[int], asker: _Asker) -> Any:
        if what == "mode":
            return arguments[0] & 0o7777
        if what == "owner":
            return tuple(_signed(identity) for identity in arguments)
        if not arguments[0]:
            return None
        return _timespecs(what, asker.read(arguments[0], _TIME_BYTES[what]))

    def _find_again(self, target: int) -> int:
        """The same file, opened below a private folder with no link on the way. Raises OSError."""
        path = os.readlink(b"/proc/self/fd/%d" % target)
        for root, folder in self._roots:
            if path == root:
                return os.dup(folder)
            if path.startswith(root + b"/"):
                resolve = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_SYMLINKS | kernel.RESOLVE_NO_MAGICLINKS
                found = kernel.openat2(folder, path[len(root) + 1 :], os.O_PATH | os.O_NOFOLLOW, resolve)
                if os.path.sameopenfile(found, target):
                    return found
                os.close(found)
                raise OSError(errno.EAGAIN, "it was replaced meanwhile")
        raise OSError(errno.EPERM, "outside")


class _Asker:
    """The thread that asks: its memory, folder and descriptors."""

    def __init__(self, thread: int) -> None:
        self._proc = b"/proc/%d/" % thread
        self._memory = os.open(self._proc + b"mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._memory)

    def read(self, address: int, size_bytes: int) -> bytes:
        """That much of its memory. Raises OSError."""
        try:
            data = os.pread(self._memory, size_bytes, address)
        except (OSError, OverflowError) as error:
            raise OSError(errno.EFAULT, "memory") from error
        if len(data) < size_bytes:
            raise OSError(errno.EFAULT, "memory")
        return data

    def path(self, address: int) -> bytes | None:
        """A path, None for a null pointer. Raises OSError."""
        if not address:
            return None
        try:  # less where its memory ends before
            data = os.pread(self._memory, _PATH_BYTES, address)
        except (OSError, OverflowError) as error:
            raise OSError(errno.EFAULT, "path") from error
        path, end, _ = data.partition(b"\0")
        if not end:
            raise OSError(errno.ENAMETOOLONG, "path")
        return path

    def open(self, folder: int, path: bytes, flags: int) -> int:
        """What the path means for it; opened for nothing but to be named. Raises OSError."""
        own = _OWN_DESCRIPTOR.fullmatch(path)  # of ours it would be
        if own and not flags & _AT_SYMLINK_NOFOLLOW:
            return self._descriptor(int(own[1]))
        if not path and flags & _AT_EMPTY_PATH:
            return self._descriptor(folder)
        if not path:
            raise OSError(errno.ENOENT, "path")
        base = _AT_FDCWD if path.startswith(b"/") else self._descriptor(folder)
        try:
            nofollow = os.O_NOFOLLOW if flags & _AT_SYMLINK_NOFOLLOW else 0
            return kernel.openat2(base, path, os.O_PATH | nofollow, kernel.RESOLVE_NO_MAGICLINKS)
        finally:
            if base != _AT_FDCWD:
                os.close(base)

    def _descriptor(self, number: int) -> int:
        try:
            name = b"cwd" if number == _AT_FDCWD else b"fd/%d" % number
            return os.open(self._proc + name, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise OSError(errno.EBADF, "descriptor") from error


def _change(place: bytes, what: str, value: Any) -> None:
    if what == "mode":
        os.chmod(place, value)
    elif what == "owner":
        os.chown(place, *value)
    else:
        kernel.set_times(place, value)


def _timespecs(what: str, raw: bytes) -> bytes:
    """Two timespecs of any kind of times. Raises OSError."""
    if what == "nanoseconds":
        return raw
    words = [raw[at : at + 8] for at in range(0, len(raw), 8)]
    if what == "seconds":
        return words[0] + bytes(8) + words[1] + bytes(8)
    parts = []
    for seconds, micros in ((words[0], words[1]), (words[2], words[3])):
        if not 0 <= int.from_bytes(micros, "little") < 1_000_000:
            raise OSError(errno.EINVAL, "times")
        parts.append(seconds + (int.from_bytes(micros, "little") * 1000).to_bytes(8, "little"))
    return b"".join(parts)


def _signed(argument: int) -> int:
    """The low 32 bits, as the kernel takes an `int`."""
    low = argument & 0xFFFFFFFF
    return low - (1 << 32) if low >= 1 << 31 else low
