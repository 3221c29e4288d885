"""Where the files of a snapshot are today: the renames that an editor told of since, in order. Pure."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from agent.changes.changeset import printable
from agent.types import ChangeKind, FileChange


class LostError(Exception):
    """A file cannot be written to where it is now; the message says why, for a person."""


@dataclass(frozen=True, slots=True)
class Renames:
    """Renames of files and of folders, the oldest first.

    Names are posix paths relative to the workspace folder, so that they stay right when it is renamed itself; those
    of places outside it are absolute.
    """

    pairs: tuple[tuple[str, str], ...] = ()

    def then(self, old: str, new: str) -> Renames:
        """These, and one more."""
        return self if old == new else Renames((*self.pairs, (old, new)))

    def now(self, name: str, *, is_there: bool = True) -> str | None:
        """Where `name` is now; None where another file was renamed onto it.

        `is_there` is false for a file that is still to be made: it goes where its folder goes, and a file of the
        user's that had its name meanwhile is another one.
        """
        for old, new in self.pairs:
            if name == old:
                name = new if is_there else name
            elif name.startswith(old + "/"):
                name = new + name[len(old) :]
            elif name == new and is_there:
                return None
        return name

    def place(self, name: str, *, is_there: bool = True) -> str:
        """Where `name` is in the folder now. Raises LostError."""
        now = self.now(name, is_there=is_there)
        if now is None:
            raise LostError("another file was renamed onto it")
        if os.path.isabs(now):
            raise LostError(f"it was moved to {printable(now)}, outside the folder")
        return now

    def follow(self, change: FileChange, *, is_applied: bool) -> FileChange:
        """The change for the files where they are now. Raises LostError.

        `is_applied`: it is in place already, so that a file that it makes is there.
        """
        is_made = change.kind in (ChangeKind.CREATED, ChangeKind.RENAMED) and not is_applied
        old_path = self.place(change.old_path) if change.old_path is not None else None
        return replace(change, path=self.place(change.path, is_there=not is_made), old_path=old_path)
