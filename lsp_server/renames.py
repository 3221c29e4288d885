"""Where the files of a snapshot are today: the renames that the client told of since, in order."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lsp_server.uris import relative_to


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


def name_in(folder: str, path: str) -> str:
    """A path as `Renames` names it for a workspace folder, also where it was spelled through a link."""
    if (relative := relative_to(folder, path)) is not None:
        return relative
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    relative = relative_to(os.path.realpath(folder), real)
    return path if relative is None else relative
