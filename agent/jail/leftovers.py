"""Files and folders that a jail needs on the host while it lives, and what a killed process left of them.

Each is locked while it is in use; whatever can be locked is nobody's any more and is removed by the next start.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
import time
from dataclasses import dataclass

from agent.config import cache_dir, make_private_dir
from agent.errors import UsageError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNREVEALING = "/var/tmp"  # noqa: S108 - a folder of mode 0700 with a random name


@dataclass(frozen=True, slots=True)
class Held:
    """A path that is ours until `remove`; `descriptor` holds its lock."""

    path: str
    descriptor: int

    def remove(self) -> None:
        """Remove the file, or the folder with all that it holds. Never raises."""
        remove_path(self.path)
        os.close(self.descriptor)


def hold_file(prefix: str) -> Held:
    """A new private file in the user's cache folder, else in the temporary folder. Raises OSError."""
    try:
        number, path = tempfile.mkstemp(prefix=f"{prefix}-", dir=_folder(prefix))
    except (OSError, UsageError):
        number, path = tempfile.mkstemp(prefix=f"frog-lsp-{prefix}-")
    _lock(number)
    return Held(path, number)


def hold_folder(prefix: str) -> Held:
    """A new private folder in the user's cache folder, else in the temporary folder. Raises OSError."""
    try:
        path = tempfile.mkdtemp(prefix=f"{prefix}-", dir=_folder(prefix))
    except (OSError, UsageError):
        path = tempfile.mkdtemp(prefix=f"frog-lsp-{prefix}-")
    return _lock_folder(path)


def hold_unrevealing_folder(prefix: str) -> Held:
    """The same for what a jail can see the path of (its mount table): in a place that tells nothing of the user.

    Where there is none on a disk that programs can be run from, it is in the cache folder. Raises OSError.
    """
    begin = f"frog-lsp-{prefix}-"
    try:
        if os.statvfs(_UNREVEALING).f_flag & os.ST_NOEXEC:
            return hold_folder(prefix)
        with os.scandir(_UNREVEALING) as entries:
            ours = [e for e in entries if e.name.startswith(begin) and _is_own(e)]
        for entry in ours:
            _remove_if_abandoned(entry.path)
        path = tempfile.mkdtemp(prefix=begin, dir=_UNREVEALING)
    except OSError:
        return hold_folder(prefix)
    return _lock_folder(path)


def _is_own(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    return False


def _lock_folder(path: str) -> Held:
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _lock(number)
    return Held(path, number)


def _lock(number: int) -> bool:
    """Take the lock, or raise OSError where somebody has it; False where the system has no such locks."""
    try:
        import fcntl
    except ImportError:  # native Windows
        return False
    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


def _folder(prefix: str) -> str:
    """The folder for one kind, with what nobody holds any more removed from it."""
    folder = cache_dir() / "jail" / prefix
    make_private_dir(folder)
    with os.scandir(folder) as entries:
        names = [entry.path for entry in entries]
    for path in names:
        _remove_if_abandoned(path)
    return str(folder)


def _remove_if_abandoned(path: str) -> None:
    with contextlib.suppress(OSError):
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # the moment between making and locking: too young to be abandoned
            if os.fstat(number).st_mtime > time.time() - 60:
                return
            if _lock(number):
                remove_path(path)
        finally:
            os.close(number)


def remove_path(path: str) -> None:
    """Remove a file, or a folder also where the jail left folders without permissions in it. Never raises."""
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return
        _empty(path)
        os.rmdir(path)


def _empty(top: str) -> None:
    """Remove all below a folder, with two descriptors and no recursion: somebody may have nested it on purpose.

    Raises OSError where the way back up is not the way down: then a process is still at work in it.
    """
    here = os.open(top, _FOLDER)
    way: list[tuple[str, tuple[int, int], list[str]]] = []  # names of folders, what they are in, what is left there
    left = os.listdir(here)
    try:
        while left or way:
            if left:
                below = _remove_or_open(left[-1], here)
                if below is None:
                    left.pop()
                    continue
                way.append((left.pop(), _identity(here), left))
                os.close(here)
                here, left = below, os.listdir(below)
                continue
            name, above, left = way.pop()
            parent = os.open("..", _FOLDER, dir_fd=here)
            os.close(here)
            here = parent
            if _identity(here) != above:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), top)
            with contextlib.suppress(OSError):  # something in it could not be removed
                os.rmdir(name, dir_fd=here)
    finally:
        os.close(here)


def _remove_or_open(name: str, at: int) -> int | None:
    """Remove what is no folder; of a folder its descriptor, None where it cannot be entered."""
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=at)
            return None
        os.chmod(name, 0o700, dir_fd=at)
        return os.open(name, _FOLDER, dir_fd=at)
    return None


def _identity(folder: int) -> tuple[int, int]:
    info = os.fstat(folder)
    return info.st_dev, info.st_ino
