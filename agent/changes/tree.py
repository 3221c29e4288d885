"""The files of a workspace, read and written by descriptor: no link is followed, nothing leaves the root.

Every write is whole or not at all: a temporary file in the same folder, flushed to the disk, then put in place by
one call. What was there and is not what the caller read is put back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from agent.types import FileState

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_NO_SUCH_CALL = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_KEPT = {"security.capability", "system.nfs4_acl"}
"""Attributes that are not carried to new content: rights given to the old program are not for the new one."""


class ChangedMeanwhileError(Exception):
    """What is there is not what the caller read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A path as it is now, and what identifies it."""

    state: FileState
    info: os.stat_result


class Tree:
    """The workspace below an open folder. Paths are relative and posix; close it at the end."""

    def __init__(self, root: str) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Release the folder."""
        os.close(self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, path: str) -> Entry | None:
        """The path now, None where there is nothing. A folder is a state without content and link.

        Raises OSError: ENOTDIR or ELOOP where a folder on the way is a file or a link.
        """
        try:
            with self._parent(path) as (folder, name):
                return _read(folder, name)
        except FileNotFoundError:
            return None

    def create(self, path: str, state: FileState) -> None:
        """Make a file or a link where there is nothing, and the folders above it.

        Its mode is that of `state` less the umask; root gives it to the owner of the folder.
        Raises FileExistsError, and OSError when the disk is full; then nothing is left behind.
        """
        with self._parent(path, make=True) as (folder, name):
            if state.link is not None:
                os.symlink(state.link, name, dir_fd=folder)
                _give_to_owner(folder, name)
                return
            with _temporary(folder, state.data or b"", mode=state.mode & 0o777) as temporary:
                _give_to_owner(folder, temporary)
                _put_where_nothing_is(folder, temporary, folder, name)

    def replace(self, path: str, old: Entry, state: FileState) -> None:
        """Put `state` in the place of `old`, keeping owner and extended attributes of a file where possible.

        A file with several names (hard links) becomes one of its own: the other names may lie anywhere.
        Raises ChangedMeanwhileError when `old` is no longer there, and OSError; then what is there stays.
        """
        with self._parent(path) as (folder, name):
            if state.link is not None:
                temporary = _temporary_name()
                os.symlink(state.link, temporary, dir_fd=folder)
                try:
                    _give_to_owner(folder, temporary)
                    _swap(folder, temporary, name, old)
                finally:
                    _remove_quietly(folder, temporary)
                return
            with _temporary(folder, state.data or b"", mode=0o600) as temporary:
                _copy_rights(folder, name, temporary, old, state.mode)
                _swap(folder, temporary, name, old)

    def remove(self, path: str, old: Entry) -> None:
        """Remove a file or a link that is still `old`, and the folders that are empty then.

        Raises ChangedMeanwhileError and OSError.
        """
        with self._parent(path) as (folder, name):
            if not _is_same(_read(folder, name), old):
                raise ChangedMeanwhileError
            os.unlink(name, dir_fd=folder)
        self._remove_empty_folders(path)

    def rename(self, path: str, old: Entry, new_path: str) -> None:
        """Move a file that is still `old` to where nothing is. Raises ChangedMeanwhileError, FileExistsError."""
        with self._parent(path) as (folder, name), self._parent(new_path, make=True) as (new_folder, new_name):
            if not _is_same(_read(folder, name), old):
                raise ChangedMeanwhileError
            _put_where_nothing_is(folder, name, new_folder, new_name)
        self._remove_empty_folders(path)

    def set_mode(self, path: str, mode: int) -> None:
        """Set the permission bits of a plain file. Raises OSError, ELOOP for a link."""
        with self._parent(path) as (folder, name):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            try:
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """An open descriptor of the folder of `path`, and the last part. Folders that we made and left empty go."""
        *folders, name = path.split("/")
        if not name or any(part in ("", ".", "..") for part in (*folders, name)):
            raise OSError(errno.EINVAL, "not a path in the workspace", path)
        opened = [os.dup(self._root)]
        made: list[tuple[int, str]] = []
        try:
            for part in folders:
                parent = opened[-1]
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=parent)
                        _give_to_owner(parent, part)
                        made.append((parent, part))
                opened.append(os.open(part, _FOLDER_FLAGS, dir_fd=parent))
            yield opened[-1], name
        except BaseException:
            for parent, part in reversed(made):
                with contextlib.suppress(OSError):
                    os.rmdir(part, dir_fd=parent)
            raise
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _remove_empty_folders(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        while folder:
            try:
                with self._parent(folder) as (parent, name):
                    os.rmdir(name, dir_fd=parent)
            except OSError:
                return
            folder = folder.rpartition("/")[0]


# --- one folder -----------------------------------------------------------------------------------------------


def _read(folder: int, name: str) -> Entry | None:
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISLNK(info.st_mode):
        return Entry(FileState(data=None, mode=mode, link=os.readlink(name, dir_fd=folder)), info)
    if not stat.S_ISREG(info.st_mode):
        return Entry(FileState(data=None, mode=mode), info)
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return Entry(FileState(data=None, mode=mode), info)
        return Entry(FileState(data=file.read(), mode=stat.S_IMODE(info.st_mode)), info)


def _is_same(now: Entry | None, old: Entry) -> bool:
    return now is not None and (now.state.data, now.state.link) == (old.state.data, old.state.link)


def _temporary_name() -> str:
    return f".frog-lsp-{secrets.token_hex(8)}.tmp"


@contextlib.contextmanager
def _temporary(folder: int, data: bytes, mode: int) -> Iterator[str]:
    """The name of a new file with these bytes, safely on the disk; it is gone at the end if it still has that name."""
    name = _temporary_name()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, mode, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        yield name
    finally:
        _remove_quietly(folder, name)


def _remove_quietly(folder: int, name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _give_to_owner(folder: int, name: str) -> None:
    """What root makes belongs to the owner of the folder it lies in."""
    if os.geteuid() == 0:
        owner = os.fstat(folder)
        with contextlib.suppress(OSError):
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)


def _copy_rights(folder: int, name: str, temporary: str, old: Entry, mode: int) -> None:
    """Give the new file the owner, the extended attributes and the mode of the old one, as far as we may."""
    target = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if stat.S_ISREG(old.info.st_mode):
            with contextlib.suppress(OSError):
                os.fchown(target, old.info.st_uid, old.info.st_gid)
            _copy_attributes(folder, name, target)
        else:
            _give_to_owner(folder, temporary)
        os.fchmod(target, mode & 0o777)
    finally:
        os.close(target)


def _copy_attributes(folder: int, name: str, target: int) -> None:
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            for attribute in os.listxattr(source):
                if attribute not in _NOT_KEPT:
                    with contextlib.suppress(OSError):
                        os.setxattr(target, attribute, os.getxattr(source, attribute))
        finally:
            os.close(source)


def _swap(folder: int, temporary: str, name: str, old: Entry) -> None:
    """Exchange the two, look whether what came out is `old`, else exchange them again: no save is lost."""
    if not _is_same(_read(folder, name), old):
        raise ChangedMeanwhileError
    try:
        _renameat2(folder, temporary, folder, name, _RENAME_EXCHANGE)
    except OSError as error:
        if error.errno not in _NO_SUCH_CALL:
            raise
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        if not _is_same(_read(folder, temporary), old):
            _renameat2(folder, temporary, folder, name, _RENAME_EXCHANGE)
            raise ChangedMeanwhileError
    _flush(folder)


def _put_where_nothing_is(folder: int, name: str, new_folder: int, new_name: str) -> None:
    """Move without ever replacing. Raises FileExistsError."""
    try:
        _renameat2(folder, name, new_folder, new_name, _RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in _NO_SUCH_CALL:
            raise
        os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder, follow_symlinks=False)
        os.unlink(name, dir_fd=folder)
    _flush(new_folder)


def _flush(folder: int) -> None:
    with contextlib.suppress(OSError):
        os.fsync(folder)


def _renameat2(folder: int, name: str, new_folder: int, new_name: str, flags: int) -> None:
    """Linux's rename with flags. Raises OSError, ENOSYS where the C library has none."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(folder, os.fsencode(name), new_folder, os.fsencode(new_name), ctypes.c_uint(flags)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name, None, new_name)
