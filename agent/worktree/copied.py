"""From a private copy to what changed: by inode and change time, and only where these differ by content.

Neither can be set by hand, so whatever a hostile process did to an entry shows. The copy is read by descriptor
with every jailed process dead; the walk over it reads no file that is still the one that was copied.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.worktree.comparison import Comparison, FullError, shown
from agent.worktree.descriptors import open_folder


def compare_copy(copy: int, copied: Mapping[str, tuple[int, int]], comparison: Comparison) -> None:
    """Compare an open copy with what was copied (see `PrivateView.copied`), into `comparison`."""
    walk = _Walk(comparison, copied)
    try:
        walk.compare_folder(copy, "", 0)
        walk.add_deleted()
    except FullError:
        comparison.note_full()


@dataclass(frozen=True, slots=True)
class _Walk:
    found: Comparison
    copied: Mapping[str, tuple[int, int]]
    present: set[str] = field(default_factory=set)
    unread: list[str] = field(default_factory=list)

    def compare_folder(self, folder: int, path: str, depth: int) -> None:
        if depth > self.found.limits.depth:
            self.found.notes.append(f"{shown(path)}: nested deeper than {self.found.limits.depth} folders; left out.")
            self.unread.append(f"{path}/")
            return
        for name in sorted(os.listdir(folder), key=os.fsencode):
            below = f"{path}/{name}" if path else name
            try:
                self._compare_entry(folder, name, below, depth)
            except OSError as error:
                self.unread.append(f"{below}/")
                self.present.add(below)
                self.found.note_unreadable(below, error)

    def _compare_entry(self, folder: int, name: str, path: str, depth: int) -> None:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            if path not in self.copied:
                self.found.count_visit()
            below = open_folder(name, folder)
            if below is None:
                return
            try:
                self.compare_folder(below, path, depth + 1)
            finally:
                os.close(below)
            return
        self.present.add(path)
        if self.copied.get(path) != (info.st_ino, info.st_ctime_ns):
            self.found.count_visit()
            self.found.compare_file(folder, name, path, info)

    def add_deleted(self) -> None:
        """What was copied and is there no more; of a folder that could not be read nothing is known."""
        unread = tuple(self.unread)
        for path in self.copied:
            if path not in self.present and not path.startswith(unread):
                self.found.add_deleted(path)
