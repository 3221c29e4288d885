"""From the upper layer of an overlay to what changed. The cost follows the change, not the tree.

The upper layer was written by hostile processes, all of them dead by now: it is read by descriptor, no link
is followed, and count, depth and bytes are bounded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from agent.worktree.baseline import Baseline
from agent.worktree.comparison import CollectLimits, Comparison, FullError, shown
from agent.worktree.descriptors import open_folder

_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")
_WHITEOUT = "user.overlay.whiteout"


def compare_overlay(upper: int, comparison: Comparison) -> None:
    """Compare an open upper layer with the snapshot, into `comparison`."""
    _Walk(comparison, comparison.baseline, comparison.limits).compare_folder(upper, "", opaque=False, depth=0)


@dataclass(frozen=True, slots=True)
class _Walk:
    found: Comparison
    baseline: Baseline
    limits: CollectLimits

    def compare_folder(self, folder: int, path: str, *, opaque: bool, depth: int) -> None:
        """Compare one folder of the upper layer and all below it."""
        try:
            self._compare_folder(folder, path, opaque=opaque, depth=depth)
        except FullError:
            if depth > 0:
                raise
            self.found.note_full()

    def _compare_folder(self, folder: int, path: str, *, opaque: bool, depth: int) -> None:
        if depth > self.limits.depth:
            self.found.notes.append(f"{shown(path)}: nested deeper than {self.limits.depth} folders; left out.")
            return
        opaque = opaque or _is_opaque(folder)
        names = sorted(os.listdir(folder), key=os.fsencode)
        for name in names:
            self._compare_entry(folder, name, f"{path}/{name}" if path else name, opaque=opaque, depth=depth)
        if opaque:
            self._add_vanished_from(path, except_for=set(names))

    def _compare_entry(self, folder: int, name: str, path: str, *, opaque: bool, depth: int) -> None:
        self.found.count_visit()
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if _is_whiteout(folder, name, info):
                if not opaque:
                    self._add_vanished(path)
                self.found.seen.add(path)
            elif stat.S_ISDIR(info.st_mode):
                self._compare_subfolder(folder, name, path, opaque=opaque, depth=depth)
            else:
                if self.baseline.is_folder(path):
                    self._add_vanished(path)
                self.found.compare_file(folder, name, path, info)
        except OSError as error:
            self.found.note_unreadable(path, error)

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

    def _add_vanished(self, path: str) -> None:
        """Everything that the snapshot had at `path`, a file or a whole folder, is gone."""
        if not self.baseline.is_folder(path):
            self.found.add_deleted(path)
            return
        self._add_vanished_from(path, except_for=set())

    def _add_vanished_from(self, path: str, *, except_for: set[str]) -> None:
        """What the snapshot had in the folder `path` is gone, except for these names."""
        folder = self.baseline.open_folder(path)
        if folder is None:
            return
        try:
            for below in _leaves(folder, path, except_for, self.limits):
                self.found.add_deleted(below)
        finally:
            os.close(folder)


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
