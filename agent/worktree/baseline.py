"""The snapshot that changes are measured against, kept without reading the tree.

The overlay holds what the agent changed; the base of it is the real file, which the user may edit meanwhile.
So the base of a file is kept before a tool touches it, and else the real file is trusted only where the
kernel says that nothing happened to it since the start (its change time cannot be set by hand).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from agent.errors import WorkspaceError
from agent.types import FileState
from agent.worktree.descriptors import open_folder, open_parent, read_entry

MAX_FILE_BYTES = 32 * 1024 * 1024
_NEW_FILE_MODE = 0o644


class Baseline:
    """The state of a workspace at the start of a run, with the unsaved `buffers` of the editor on top."""

    def __init__(self, workspace: str, buffers: Mapping[str, bytes]) -> None:
        try:
            self._root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise WorkspaceError(f"the workspace {workspace} cannot be opened: {error.strerror}") from error
        self.workspace = os.path.abspath(workspace)
        self.buffers = dict(buffers)
        self._kept: dict[str, FileState | None] = {}
        # the clock that file systems stamp with; files of the same tick count as older: they are of the snapshot
        self.started_ns = time.clock_gettime_ns(getattr(time, "CLOCK_REALTIME_COARSE", time.CLOCK_REALTIME))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the workspace. Idempotent."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def remember(self, path: str) -> None:
        """Keep the base of a file that a tool is about to touch. Cheap when it was kept already; never raises.

        `path` may be written as a model writes it: relative, absolute, with dots. A file that was changed since
        the start is not kept: its base is not known.
        """
        path = os.path.relpath(os.path.join(self.workspace, path), self.workspace)
        if path == "." or path.startswith("../") or path == "..":
            return
        if path in self._kept or path in self.buffers:
            return
        try:
            state, known = self._read(path)
        except (OSError, ValueError):  # ValueError: a zero byte in the name
            return
        if known:
            self._kept[path] = state

    def state_of(self, path: str) -> tuple[FileState | None, bool]:
        """The state of a path in the snapshot, and whether it is certain.

        None: there was nothing, or a folder. Raises OSError where the file cannot be read.
        """
        if path in self.buffers:
            return FileState(data=self.buffers[path], mode=self.mode_of(path)), True
        if path in self._kept:
            return self._kept[path], True
        return self._read(path)

    def is_folder(self, path: str) -> bool:
        """True where the real workspace has a folder at `path`."""
        return self._stat_mode(path, stat.S_ISDIR)

    def exists(self, path: str) -> bool:
        """True where the snapshot has anything at `path` that is no folder, links included. Reads no bytes."""
        return path in self.buffers or self._stat_mode(path, lambda mode: not stat.S_ISDIR(mode))

    def exists_on_disk(self, path: str) -> bool:
        """True where the real workspace has anything at `path`, links and folders included."""
        return self._stat_mode(path, lambda _: True)

    def open_folder(self, path: str) -> int | None:
        """Open a folder of the real workspace ("" is its root), or None. The caller closes it."""
        if path == "":
            return os.dup(self._root)
        parent, name = open_parent(path, self._root)
        if parent is None:
            return None
        try:
            return open_folder(name, parent)
        finally:
            os.close(parent)

    def _read(self, path: str) -> tuple[FileState | None, bool]:
        parent, name = open_parent(path, self._root)
        if parent is None:
            return None, True
        try:
            state, info = read_entry(name, parent, max_bytes=MAX_FILE_BYTES)
        finally:
            os.close(parent)
        return state, info is None or info.st_ctime_ns <= self.started_ns

    def mode_of(self, path: str) -> int:
        """The permission bits of a real file; 0644 where there is none."""
        parent, name = open_parent(path, self._root)
        if parent is None:
            return _NEW_FILE_MODE
        try:
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            return stat.S_IMODE(info.st_mode) if stat.S_ISREG(info.st_mode) else _NEW_FILE_MODE
        except OSError:
            return _NEW_FILE_MODE
        finally:
            os.close(parent)

    def _stat_mode(self, path: str, test: Callable[[int], bool]) -> bool:
        parent, name = open_parent(path, self._root)
        if parent is None:
            return False
        try:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        except OSError:
            return False
        finally:
            os.close(parent)
        return test(mode)
