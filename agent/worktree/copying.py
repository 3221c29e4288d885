"""A private copy of a workspace, where no overlay can be made over it. Never hard links: those are the real files.

It is counted before anything is written, shares blocks with the original where the file system can (reflink), and
keeps modes, times, links, holes and every name. Owners and extended attributes are not kept: all of it is ours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.errors import WorkspaceError
from agent.visible import visible
from agent.worktree.mounts import mounts_below

MAX_DEPTH = 200
"""Two descriptors are open for each folder on the way down; the usual limit of a process is 1,024."""

_FICLONE = 0x40049409
_TICK_S = 0.02
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# The kernel cannot copy between these two files by itself.
_NO_COPY_RANGE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyBudget:
    """The most that is copied: bytes on disk, and entries (files, links and folders)."""

    size_bytes: int
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateCopy:
    """A finished copy. `index` has the inode and change time (ns) of every file and link in it by workspace path.

    A change time cannot be set by hand, and none of them is of the present tick of the clock any more: what still
    has both is what was copied. `left_out` names what was not copied, each with the reason.
    """

    path: str
    index: dict[str, tuple[int, int]]
    size_bytes: int
    entries: int
    left_out: tuple[str, ...]


def copy_tree(
    source: str,
    target: str,
    budget: CopyBudget,
    skipped: frozenset[str] = frozenset(),
    owner: tuple[int, int] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> PrivateCopy:
    """Copy the resolved folder `source` to `target`, which must not exist.

    Of the folders in `skipped` (relative paths) an empty one is made. `owner` (uid, gid) is for root: all of the copy
    belongs to it. What the user changes meanwhile is copied as it is found. Raises WorkspaceError where the source is
    over the budget or the disk, or `is_stopped` says so, and OSError where the target cannot be written.
    """
    virtual = frozenset(os.path.relpath(m.point, source) for m in mounts_below(source) if m.is_virtual)
    size_bytes, entries = count_tree(source, budget, skipped | virtual, is_stopped)
    free = os.statvfs(os.path.dirname(target))
    if size_bytes > free.f_bavail * free.f_frsize or entries > (free.f_favail or entries):
        raise WorkspaceError(
            f"the private copy of the workspace needs {_mib(size_bytes)} MiB, which the disk does not have",
            "Free space there, or open a smaller folder.",
        )
    walk = _Copying(skipped=skipped, virtual=virtual, owner=owner, is_stopped=is_stopped)
    os.mkdir(target, 0o700)
    from_fd, to_fd = os.open(source, _FOLDER), os.open(target, _FOLDER)
    try:
        walk.copy_folder(from_fd, to_fd, "", 0)
        walk.finish(to_fd, os.fstat(from_fd))
    finally:
        os.close(from_fd)
        os.close(to_fd)
    time.sleep(_TICK_S)  # file systems stamp with a coarse clock: the next change is of a later tick
    return PrivateCopy(
        path=target, index=walk.index, size_bytes=size_bytes, entries=entries, left_out=tuple(walk.left_out)
    )


def count_tree(
    source: str, budget: CopyBudget, skipped: frozenset[str], is_stopped: Callable[[], bool] = lambda: False
) -> tuple[int, int]:
    """The bytes on disk and the entries below `source`, without the folders of `skipped`.

    Raises WorkspaceError at the first entry that is over the budget: it never counts further.
    """
    size_bytes = entries = 0
    for folder, names, files, here in os.fwalk(source, follow_symlinks=False):
        if is_stopped():
            raise WorkspaceError("the copying was stopped")
        inside = os.path.relpath(folder, source)
        names[:] = [name for name in names if os.path.normpath(os.path.join(inside, name)) not in skipped]
        entries += len(names) + len(files)
        if inside.count("/") + 1 >= MAX_DEPTH:
            names.clear()  # what lies deeper is not copied
        for name in files:
            with contextlib.suppress(OSError):  # it went meanwhile
                info = os.stat(name, dir_fd=here, follow_symlinks=False)
                size_bytes += info.st_blocks * 512 if stat.S_ISREG(info.st_mode) else 0
        if size_bytes > budget.size_bytes or entries > budget.entries:
            raise WorkspaceError(
                "the workspace is too large for a private copy, which this jail needs: more than "
                f"{_mib(budget.size_bytes)} MiB or {budget.entries} files and folders",
                "Open a smaller folder, or move large data out of it.",
            )
    return size_bytes, entries


@dataclass(slots=True)
class _Copying:
    skipped: frozenset[str]
    virtual: frozenset[str]
    owner: tuple[int, int] | None
    is_stopped: Callable[[], bool]
    index: dict[str, tuple[int, int]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    can_clone: bool = True

    def copy_folder(self, from_fd: int, to_fd: int, path: str, depth: int) -> None:
        for name in os.listdir(from_fd):
            if self.is_stopped():
                raise WorkspaceError("the copying was stopped")
            below = f"{path}/{name}" if path else name
            try:
                info = _stat(name, from_fd)
                if stat.S_ISDIR(info.st_mode):
                    self._copy_subfolder(from_fd, to_fd, name, below, depth)
                elif stat.S_ISLNK(info.st_mode):
                    self._copy_link(from_fd, to_fd, name, below, info)
                elif stat.S_ISREG(info.st_mode):
                    self._copy_file(from_fd, to_fd, name, below)
                else:
                    self._leave_out(below, "a special file")
            except _UnreadableError as error:
                if error.number not in _GONE:  # else it went meanwhile
                    self._leave_out(below, os.strerror(error.number))

    def _copy_subfolder(self, from_fd: int, to_fd: int, name: str, path: str, depth: int) -> None:
        if depth >= MAX_DEPTH:
            self._leave_out(path, f"nested deeper than {MAX_DEPTH} folders")
            return
        inner = _open(name, _FOLDER, from_fd)
        try:
            os.mkdir(name, 0o700, dir_fd=to_fd)
            copy = os.open(name, _FOLDER, dir_fd=to_fd)
            try:
                if path in self.virtual:
                    self._leave_out(path, "a file system of the kernel")
                elif path not in self.skipped:
                    self.copy_folder(inner, copy, path, depth + 1)
                self.finish(copy, os.fstat(inner))
            finally:
                os.close(copy)
        finally:
            os.close(inner)

    def _copy_link(self, from_fd: int, to_fd: int, name: str, path: str, info: os.stat_result) -> None:
        try:
            target = os.readlink(name, dir_fd=from_fd)
        except OSError as error:
            raise _UnreadableError(error.errno or 0) from error
        os.symlink(target, name, dir_fd=to_fd)
        if self.owner:
            os.chown(name, *self.owner, dir_fd=to_fd, follow_symlinks=False)
        os.utime(name, ns=(info.st_atime_ns, info.st_mtime_ns), dir_fd=to_fd, follow_symlinks=False)
        self._remember(path, os.stat(name, dir_fd=to_fd, follow_symlinks=False))

    def _copy_file(self, from_fd: int, to_fd: int, name: str, path: str) -> None:
        original = _open(name, _READ, from_fd)
        try:
            info = os.fstat(original)
            if not stat.S_ISREG(info.st_mode):
                self._leave_out(path, "a special file")
                return
            copy = os.open(name, _WRITE, 0o600, dir_fd=to_fd)
            try:
                self._copy_content(original, copy, info)
                self.finish(copy, info)
                self._remember(path, os.fstat(copy))
            finally:
                os.close(copy)
        finally:
            os.close(original)

    def _copy_content(self, original: int, copy: int, info: os.stat_result) -> None:
        size_bytes = info.st_size
        if not size_bytes:
            return
        if self.can_clone:
            import fcntl  # native Windows loads this module, and never copies

            try:
                fcntl.ioctl(copy, _FICLONE, original)
                return
            except OSError:
                self.can_clone = False  # asked once: the same file systems answer the same
        if info.st_blocks * 512 >= size_bytes:
            _copy_range(original, copy, 0, size_bytes)
            return
        for begin, end in _extents(original, size_bytes):
            _copy_range(original, copy, begin, end)
        os.ftruncate(copy, size_bytes)

    def finish(self, copy: int, info: os.stat_result) -> None:
        """Owner, mode and times come last, in this order: each step would undo a later one."""
        if self.owner:
            os.fchown(copy, *self.owner)
        os.fchmod(copy, stat.S_IMODE(info.st_mode))
        os.utime(copy, ns=(info.st_atime_ns, info.st_mtime_ns))

    def _remember(self, path: str, info: os.stat_result) -> None:
        self.index[path] = (info.st_ino, info.st_ctime_ns)

    def _leave_out(self, path: str, reason: str) -> None:
        self.left_out.append(f"{visible(path)} ({reason})")


class _UnreadableError(Exception):
    """An entry of the source cannot be read; that is no reason to give up the copy."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stat(name: str, at: int) -> os.stat_result:
    try:
        return os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError as error:
        raise _UnreadableError(error.errno or 0) from error


def _open(name: str, flags: int, at: int) -> int:
    try:
        return os.open(name, flags, dir_fd=at)
    except OSError as error:
        raise _UnreadableError(error.errno or 0) from error


def _extents(number: int, size_bytes: int) -> list[tuple[int, int]]:
    """Where a file has data, as (first, after the last) offsets."""
    found: list[tuple[int, int]] = []
    end = 0
    while end < size_bytes:
        try:
            begin = os.lseek(number, end, os.SEEK_DATA)
            end = os.lseek(number, begin, os.SEEK_HOLE)
        except OSError as error:
            # ENXIO: a hole to its end; EINVAL: a file system that knows no holes
            return found if error.errno == errno.ENXIO else [(0, size_bytes)]
        found.append((begin, min(end, size_bytes)))
    return found


def _copy_range(original: int, copy: int, begin: int, end: int) -> None:
    while begin < end:
        try:
            n_bytes = os.copy_file_range(original, copy, end - begin, begin, begin)
        except OSError as error:
            if error.errno not in _NO_COPY_RANGE:
                raise
            os.lseek(copy, begin, os.SEEK_SET)
            n_bytes = os.sendfile(copy, original, begin, end - begin)
        if not n_bytes:
            return  # the user made it shorter meanwhile
        begin += n_bytes


def _mib(size_bytes: int) -> int:
    return -(-size_bytes // (1 << 20))
