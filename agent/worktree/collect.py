"""From the upper layer of a private view to what changed. The cost follows the change, not the tree.

The upper layer was written by hostile processes, all of them dead by now: it is read by descriptor, no link
is followed, and count, depth and bytes are bounded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.types import FileState, PathDelta, PrivateView
from agent.worktree.baseline import MAX_FILE_BYTES, Baseline
from agent.worktree.descriptors import open_folder, read_entry

_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")
_WHITEOUT = "user.overlay.whiteout"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectLimits:
    """What a proposal may hold at most; beyond it paths are left out with a note, never silently."""

    paths: int = 20_000
    depth: int = 200
    total_bytes: int = 256 * 1024 * 1024
    file_bytes: int = MAX_FILE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What differs from the snapshot, sorted by path, and what a person should know about it."""

    deltas: tuple[PathDelta, ...]
    notes: tuple[str, ...] = ()


def collect(view: PrivateView, baseline: Baseline, limits: CollectLimits | None = None) -> Collected:
    """Compare the private view with the snapshot. Touching a file is no change.

    `view.upper_fd` stays open. Call it with every jailed process dead. What cannot be read is named in the
    notes; nothing is raised for it.
    """
    walk = _Walk(baseline=baseline, limits=limits or CollectLimits())
    walk.compare_folder(view.upper_fd, "", opaque=False, depth=0)
    walk.compare_lost_buffers()
    deltas = sorted(walk.deltas, key=lambda delta: os.fsencode(delta.path))
    return Collected(deltas=tuple(deltas), notes=tuple(walk.notes))


class _FullError(Exception):
    """The bound on paths or bytes is reached."""


@dataclass(slots=True)
class _Walk:
    baseline: Baseline
    limits: CollectLimits
    deltas: list[PathDelta] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    n_bytes: int = 0
    n_visited: int = 0

    def compare_folder(self, folder: int, path: str, *, opaque: bool, depth: int) -> None:
        """Compare one folder of the upper layer and all below it."""
        try:
            self._compare_folder(folder, path, opaque=opaque, depth=depth)
        except _FullError:
            if depth > 0:
                raise
            allowed = f"{self.limits.paths} paths or {2 * self.limits.total_bytes >> 20} MiB"
            self.notes.append(f"More than {allowed} changed: the rest is not part of the proposal.")

    def _compare_folder(self, folder: int, path: str, *, opaque: bool, depth: int) -> None:
        if depth > self.limits.depth:
            self.notes.append(f"{_shown(path)}: nested deeper than {self.limits.depth} folders; left out.")
            return
        opaque = opaque or _is_opaque(folder)
        names = sorted(os.listdir(folder), key=os.fsencode)
        for name in names:
            self._compare_entry(folder, name, f"{path}/{name}" if path else name, opaque=opaque, depth=depth)
        if opaque:
            self._add_vanished_from(path, except_for=set(names))

    def _compare_entry(self, folder: int, name: str, path: str, *, opaque: bool, depth: int) -> None:
        self.n_visited += 1
        if self.n_visited > 10 * self.limits.paths:
            raise _FullError
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if _is_whiteout(folder, name, info):
                if not opaque:
                    self._add_vanished(path)
                self.seen.add(path)
            elif stat.S_ISDIR(info.st_mode):
                self._compare_subfolder(folder, name, path, opaque=opaque, depth=depth)
            else:
                self._compare_file(folder, name, path, info)
        except OSError as error:
            self.notes.append(f"{_shown(path)}: cannot be read ({error.strerror}); left out.")

    def _compare_subfolder(self, folder: int, name: str, path: str, *, opaque: bool, depth: int) -> None:
        if not opaque and self.baseline.exists(path):  # it was a file or a link
            self._add_vanished(path)
            opaque = True
        below = open_folder(name, folder)
        if below is None:
            return
        try:
            self._compare_folder(below, path, opaque=opaque, depth=depth + 1)
        finally:
            os.close(below)

    def _compare_file(self, folder: int, name: str, path: str, info: os.stat_result) -> None:
        self.seen.add(path)
        if self.baseline.is_folder(path):
            self._add_vanished(path)
        if is_under_git(path):
            before = FileState(data=None) if self.baseline.exists(path) else None
            self._add(PathDelta(path=path, before=before, after=FileState(data=None, mode=stat.S_IMODE(info.st_mode))))
            return
        before, known = self.baseline.state_of(path)
        allowed = min(self.limits.file_bytes, max(0, self.limits.total_bytes - self.n_bytes))
        after, _ = read_entry(name, folder, max_bytes=allowed)
        if after is None or _is_same(before, after):
            return
        if stat.S_ISREG(info.st_mode) and after.data is None:
            self.notes.append(f"{_shown(path)}: {info.st_size} bytes are too many for a proposal; it is not applied.")
        self.n_bytes += len(after.data or b"") + len((before and before.data) or b"")
        self._add(PathDelta(path=path, before=before, after=after, base_known=known))

    def compare_lost_buffers(self) -> None:
        """An unsaved new file leaves no trace in the upper layer when the agent deletes it."""
        for path in self.baseline.buffers:
            if path not in self.seen and not self.baseline.is_folder(path):
                before, known = self.baseline.state_of(path)
                on_disk = self.baseline.exists_on_disk(path)
                if not on_disk and before is not None:
                    self._add(PathDelta(path=path, before=before, after=None, base_known=known))

    def _add_vanished(self, path: str) -> None:
        """Everything that the snapshot had at `path`, a file or a whole folder, is gone."""
        if not self.baseline.is_folder(path):
            self._add_deleted(path)
            return
        self._add_vanished_from(path, except_for=set())

    def _add_vanished_from(self, path: str, *, except_for: set[str]) -> None:
        """What the snapshot had in the folder `path` is gone, except for these names."""
        folder = self.baseline.open_folder(path)
        if folder is None:
            return
        try:
            for below in _leaves(folder, path, except_for, self.limits):
                self._add_deleted(below)
        finally:
            os.close(folder)

    def _add_deleted(self, path: str) -> None:
        self.seen.add(path)
        if is_under_git(path):
            if self.baseline.exists(path):
                self._add(PathDelta(path=path, before=FileState(data=None), after=None))
            return
        try:
            before, known = self.baseline.state_of(path)
        except OSError as error:
            self.notes.append(f"{_shown(path)}: cannot be read ({error.strerror}); its deletion is left out.")
            return
        if before is not None:
            self.n_bytes += len(before.data or b"")
            self._add(PathDelta(path=path, before=before, after=None, base_known=known))

    def _add(self, delta: PathDelta) -> None:
        # what was there before counts as well: it is shown, and kept to undo
        if len(self.deltas) >= self.limits.paths or self.n_bytes > 2 * self.limits.total_bytes:
            raise _FullError
        self.deltas.append(delta)


def is_under_git(path: str) -> bool:
    """True for `.git` itself and everything below one, at any depth: never part of a proposal."""
    return ".git" in path.split("/")


def _leaves(folder: int, path: str, except_for: set[str], limits: CollectLimits, depth: int = 0) -> Iterator[str]:
    """All that is no folder below an open folder of the workspace."""
    if depth > limits.depth:
        return
    for name in sorted(os.listdir(folder), key=os.fsencode):
        if name in except_for:
            continue
        below = f"{path}/{name}" if path else name
        try:
            is_folder = stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except OSError:
            continue
        if not is_folder:
            yield below
            continue
        inner = open_folder(name, folder)
        if inner is None:
            continue
        try:
            yield from _leaves(inner, below, set(), limits, depth + 1)
        finally:
            os.close(inner)


def _is_same(before: FileState | None, after: FileState) -> bool:
    if before is None or before != after:
        return False
    return after.data is not None or after.link is not None


def _is_whiteout(folder: int, name: str, info: os.stat_result) -> bool:
    """A character device 0:0, or (where those cannot be made) an empty file with the overlay's attribute."""
    if stat.S_ISCHR(info.st_mode):
        return info.st_rdev == 0
    if not stat.S_ISREG(info.st_mode) or info.st_size:
        return False
    number = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        return _attribute(number, _WHITEOUT) is not None
    finally:
        os.close(number)


def _is_opaque(folder: int) -> bool:
    return any(_attribute(folder, name) == b"y" for name in _OPAQUE)


def _attribute(number: int, name: str) -> bytes | None:
    try:
        return os.getxattr(f"/proc/self/fd/{number}", name)
    except OSError:
        return None


def _shown(path: str) -> str:
    """A path for a note: nothing in it can act on a terminal."""
    return path.encode("utf-8", "backslashreplace").decode().encode("unicode_escape").decode("ascii")[:300]
