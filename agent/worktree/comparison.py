"""What a private view has against the snapshot, entry by entry: the part that all kinds of views share."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from agent.types import FileState, PathDelta
from agent.worktree.baseline import MAX_FILE_BYTES, Baseline
from agent.worktree.descriptors import read_entry


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


class FullError(Exception):
    """The bound on paths or bytes is reached."""


@dataclass(slots=True)
class Comparison:
    """Collects the differences; every method reads by descriptor and stays within the limits."""

    baseline: Baseline
    limits: CollectLimits
    deltas: list[PathDelta] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    n_bytes: int = 0
    n_visited: int = 0

    def collected(self) -> Collected:
        """All that was found."""
        deltas = sorted(self.deltas, key=lambda delta: os.fsencode(delta.path))
        return Collected(deltas=tuple(deltas), notes=tuple(self.notes))

    def count_visit(self) -> None:
        """Bound the entries that are looked at. Raises FullError."""
        self.n_visited += 1
        if self.n_visited > 10 * self.limits.paths:
            raise FullError

    def note_full(self) -> None:
        """Say that a limit ended the comparison."""
        allowed = f"{self.limits.paths} paths or {2 * self.limits.total_bytes >> 20} MiB"
        self.notes.append(f"More than {allowed} changed: the rest is not part of the proposal.")

    def note_unreadable(self, path: str, error: OSError) -> None:
        """Say what is left out since it cannot be read."""
        self.notes.append(f"{shown(path)}: cannot be read ({error.strerror}); left out.")

    def compare_file(self, folder: int, name: str, path: str, info: os.stat_result) -> None:
        """Compare what is no folder in the view with the snapshot."""
        self.seen.add(path)
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
            self.notes.append(f"{shown(path)}: {info.st_size} bytes are too many for a proposal; it is not applied.")
        self.n_bytes += len(after.data or b"") + len((before and before.data) or b"")
        self._add(PathDelta(path=path, before=before, after=after, base_known=known))

    def add_deleted(self, path: str) -> None:
        """What the snapshot had at `path`, which is no folder, is gone."""
        self.seen.add(path)
        if is_under_git(path):
            if self.baseline.exists(path):
                self._add(PathDelta(path=path, before=FileState(data=None), after=None))
            return
        try:
            before, known = self.baseline.state_of(path)
        except OSError as error:
            self.notes.append(f"{shown(path)}: cannot be read ({error.strerror}); its deletion is left out.")
            return
        if before is not None:
            self.n_bytes += len(before.data or b"")
            self._add(PathDelta(path=path, before=before, after=None, base_known=known))

    def compare_lost_buffers(self) -> None:
        """An unsaved new file leaves no trace in the upper layer when the agent deletes it."""
        for path in self.baseline.buffers:
            if path not in self.seen and not self.baseline.is_folder(path):
                before, known = self.baseline.state_of(path)
                on_disk = self.baseline.exists_on_disk(path)
                if not on_disk and before is not None:
                    self._add(PathDelta(path=path, before=before, after=None, base_known=known))

    def _add(self, delta: PathDelta) -> None:
        # what was there before counts as well: it is shown, and kept to undo
        if len(self.deltas) >= self.limits.paths or self.n_bytes > 2 * self.limits.total_bytes:
            raise FullError
        self.deltas.append(delta)


def is_under_git(path: str) -> bool:
    """True for `.git` itself and everything below one, at any depth: never part of a proposal."""
    return ".git" in path.split("/")


def _is_same(before: FileState | None, after: FileState) -> bool:
    if before is None or before != after:
        return False
    return after.data is not None or after.link is not None


def shown(path: str) -> str:
    """A path for a note: nothing in it can act on a terminal."""
    return path.encode("utf-8", "backslashreplace").decode().encode("unicode_escape").decode("ascii")[:300]
