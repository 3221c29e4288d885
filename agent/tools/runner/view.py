"""The workspace as the tools see it: written in place, or copied on write into a second folder.

The copy-on-write view is for machines where no jail can be had. Its upper folder has the format of
overlayfs: a deleted file is a character device 0:0 (which an ordinary user may make since Linux 5.8), or,
where that fails, an empty file with the attribute `user.overlay.whiteout`.
"""

from __future__ import annotations

import errno
import os
import stat

from agent.tools.runner.files import Parts, Tree

_MAX_KEPT_BYTES = 64 << 20
_WHITEOUT_ATTRIBUTE = "user.overlay.whiteout"
_HAS_WHITEOUTS_ATTRIBUTE = "user.overlay.opaque"  # on the folder; "x" says that it holds such files


class View:
    """A workspace that is written in place: inside a jail it is private already."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def lstat(self, parts: Parts) -> os.stat_result | None:
        """What lies at `parts`, a link being itself; None where there is nothing."""
        return self.tree.lstat(parts)

    def readlink(self, parts: Parts) -> str:
        """The target of the link at `parts`."""
        return self.tree.readlink(parts)

    def list(self, parts: Parts) -> dict[str, int]:
        """The names in a folder with their kinds, as `stat.S_IFMT` gives them."""
        return self.tree.list(parts)

    def read(self, parts: Parts, max_bytes: int) -> bytes:
        """The bytes of a plain file. Raises OSError, and ValueError for anything else or one that is too large."""
        return read_file(self.tree, parts, max_bytes)

    def write(self, parts: Parts, data: bytes, mode: int | None = None) -> None:
        """Make or overwrite a file, and the folders above it. A file keeps its mode unless one is given."""
        make_folders(self.tree, parts[:-1])
        write_file(self.tree, parts, data, mode)

    def make_link(self, parts: Parts, target: str) -> None:
        """Put a symbolic link where nothing is."""
        make_folders(self.tree, parts[:-1])
        with self.tree.parent(parts) as folder:
            os.symlink(target, parts[-1], dir_fd=folder)

    def remove(self, parts: Parts) -> None:
        """Remove a file, a link, or a folder with all that it holds. Nothing there: nothing happens."""
        remove(self.tree, parts)


class CopyView(View):
    """A view whose changes go to the folder `upper`; `lower` is never written."""

    def __init__(self, lower: Tree, upper: Tree) -> None:
        super().__init__(upper)
        self.lower = lower

    def lstat(self, parts: Parts) -> os.stat_result | None:
        """What the upper folder shows at `parts`, else the lower one."""
        info, _ = self._find(parts)
        return info

    def readlink(self, parts: Parts) -> str:
        """The target of the link at `parts`."""
        _, tree = self._find(parts)
        return tree.readlink(parts)

    def list(self, parts: Parts) -> dict[str, int]:
        """The names of both folders together."""
        names: dict[str, int] = {}
        above = self.tree.lstat(parts)
        if above is None or stat.S_ISDIR(above.st_mode):
            below = self.lower.lstat(parts) if self._shows_lower(parts) else None
            if below is not None and stat.S_ISDIR(below.st_mode):
                names = self.lower.list(parts)
        if above is not None:
            for name, kind in self.tree.list(parts).items():
                names.pop(name, None)
                if not (kind in (stat.S_IFCHR, stat.S_IFREG) and self._is_whiteout((*parts, name))):
                    names[name] = kind
        elif not names:
            self.lower.list(parts)  # raises the system's own error where there is no such folder
        return names

    def read(self, parts: Parts, max_bytes: int) -> bytes:
        """The bytes of a plain file, from where it lies."""
        info, tree = self._find(parts)
        if info is None and not self._shows_lower(parts):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/".join(parts))
        return read_file(tree, parts, max_bytes)

    def write(self, parts: Parts, data: bytes, mode: int | None = None) -> None:
        """Write into the upper folder; the mode and the folders above come from below."""
        info, tree = self._find(parts)
        if mode is None and info is not None and stat.S_ISREG(info.st_mode):
            mode = stat.S_IMODE(info.st_mode)
            if not mode & 0o200 and os.geteuid() != 0:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/".join(parts))
        if info is not None and tree is self.lower and not stat.S_ISREG(info.st_mode):
            read_file(tree, parts, 0)  # raises what a write into it would
        self._copy_folders(parts[:-1])
        self._lift_whiteout(parts)
        write_file(self.tree, parts, data, mode)

    def make_link(self, parts: Parts, target: str) -> None:
        """Put a symbolic link into the upper folder."""
        self._copy_folders(parts[:-1])
        self._lift_whiteout(parts)
        super().make_link(parts, target)

    def remove(self, parts: Parts) -> None:
        """Remove from the upper folder, and hide what lies below."""
        super().remove(parts)
        if self._shows_lower(parts) and self.lower.lstat(parts) is not None:
            self._copy_folders(parts[:-1])
            self._make_whiteout(parts)

    def _find(self, parts: Parts) -> tuple[os.stat_result | None, Tree]:
        info = self.tree.lstat(parts)
        if info is not None:
            return (None if self._is_whiteout(parts) else info), self.tree
        return (self.lower.lstat(parts) if self._shows_lower(parts) else None), self.lower

    def _shows_lower(self, parts: Parts) -> bool:
        """False where the upper folder hides what lies below: a whiteout or a file above `parts`, or at it."""
        for n_parts in range(1, len(parts) + 1):
            info = self.tree.lstat(parts[:n_parts])
            if info is None:
                return True
            if n_parts < len(parts) and not stat.S_ISDIR(info.st_mode):
                return False
            if self._is_whiteout(parts[:n_parts]):
                return False
        return True

    def _is_whiteout(self, parts: Parts) -> bool:
        info = self.tree.lstat(parts)
        if info is None or not parts:
            return False
        if stat.S_ISCHR(info.st_mode):
            return info.st_rdev == 0
        if not stat.S_ISREG(info.st_mode) or info.st_size or not hasattr(os, "getxattr"):
            return False
        try:
            descriptor = self.tree.open(parts, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            os.getxattr(descriptor, _WHITEOUT_ATTRIBUTE)
            return True
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def _lift_whiteout(self, parts: Parts) -> None:
        if self._is_whiteout(parts):
            with self.tree.parent(parts) as folder:
                os.unlink(parts[-1], dir_fd=folder)

    def _make_whiteout(self, parts: Parts) -> None:
        with self.tree.parent(parts) as folder:
            try:
                os.mknod(parts[-1], stat.S_IFCHR, os.makedev(0, 0), dir_fd=folder)
                return
            except (PermissionError, AttributeError):
                pass
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(parts[-1], flags, 0o600, dir_fd=folder)
            try:
                os.setxattr(descriptor, _WHITEOUT_ATTRIBUTE, b"y")
                os.setxattr(folder, _HAS_WHITEOUTS_ATTRIBUTE, b"x")
            except (OSError, AttributeError) as error:
                os.unlink(parts[-1], dir_fd=folder)
                raise OSError(errno.ENOTSUP, "a deleted file cannot be kept here", "/".join(parts)) from error
            finally:
                os.close(descriptor)

    def _copy_folders(self, parts: Parts) -> None:
        for n_parts in range(1, len(parts) + 1):
            here = parts[:n_parts]
            shown = self._shows_lower(here)
            self._lift_whiteout(here)
            if self.tree.lstat(here) is not None:
                continue
            below = self.lower.lstat(here) if shown else None
            if below is not None and not stat.S_ISDIR(below.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), "/".join(here))
            with self.tree.parent(here) as folder:
                os.mkdir(here[-1], dir_fd=folder)
                if below is not None:
                    os.chmod(here[-1], stat.S_IMODE(below.st_mode) | 0o700, dir_fd=folder)


def read_file(tree: Tree, parts: Parts, max_bytes: int) -> bytes:
    """The bytes of a plain file. Never blocks on a FIFO or a device."""
    descriptor = tree.open(parts, os.O_RDONLY | os.O_NONBLOCK)
    try:
        info = os.fstat(descriptor)
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), "/".join(parts) or ".")
        if not stat.S_ISREG(info.st_mode):
            raise ValueError("not a plain file")
        if info.st_size > max_bytes:
            raise ValueError(f"the file has {info.st_size} bytes, more than {max_bytes}; look at a part of it")
        pieces = []
        left = max_bytes
        while left > 0 and (piece := os.read(descriptor, min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def write_file(tree: Tree, parts: Parts, data: bytes, mode: int | None) -> None:
    """Write a file in place, so that its mode, its owner and its hard links stay.

    When the disk is full the old bytes are put back; a new file goes away again.
    """
    info = tree.lstat(parts)
    shown = "/".join(parts) or "."
    if info is not None and stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), shown)
    if info is not None and not stat.S_ISREG(info.st_mode):
        raise ValueError("not a plain file")
    old = _kept(tree, parts) if info is not None else None
    flags = os.O_WRONLY | os.O_NONBLOCK | (os.O_CREAT | os.O_EXCL if info is None else 0)
    descriptor = tree.open(parts, flags, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a plain file")
        if mode is not None:
            os.fchmod(descriptor, mode)
        try:
            _overwrite(descriptor, data)
        except OSError:
            if old is not None:
                _overwrite(descriptor, old)
            raise
    except OSError as error:
        if info is None:
            remove(tree, parts)
        raise OSError(error.errno, os.strerror(error.errno or 0), shown) from None
    finally:
        os.close(descriptor)


def _kept(tree: Tree, parts: Parts) -> bytes | None:
    try:
        return read_file(tree, parts, _MAX_KEPT_BYTES)
    except (OSError, ValueError):  # too large, or it may be written but not read
        return None


def _overwrite(descriptor: int, data: bytes) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    os.ftruncate(descriptor, len(data))


def make_folders(tree: Tree, parts: Parts) -> None:
    """Make the folders that are missing. Raises NotADirectoryError where a file is in the way."""
    for n_parts in range(1, len(parts) + 1):
        here = parts[:n_parts]
        info = tree.lstat(here)
        if info is None:
            with tree.parent(here) as folder:
                try:
                    os.mkdir(here[-1], dir_fd=folder)
                except FileExistsError:
                    continue
        elif not stat.S_ISDIR(info.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), "/".join(here))


def remove(tree: Tree, parts: Parts) -> None:
    """Remove what lies at `parts`, a folder with all that it holds; nothing there: nothing happens."""
    info = tree.lstat(parts)
    if info is None:
        return
    is_folder = stat.S_ISDIR(info.st_mode)
    if is_folder:
        for name in tree.list(parts):
            remove(tree, (*parts, name))
    with tree.parent(parts) as folder:
        if is_folder:
            os.rmdir(parts[-1], dir_fd=folder)
        else:
            os.unlink(parts[-1], dir_fd=folder)
