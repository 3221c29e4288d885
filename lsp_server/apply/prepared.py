"""Plans and edits made ahead, in slices, since an edit is sent in the very moment for which it is right.

What is asked for then is what was made ahead where the file is still as it was, and made anew where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from agent.types import FileChange
from lsp_server.apply.now import FolderNow, Mark
from lsp_server.apply.plan import Plan, TextPlan
from lsp_server.edits import JsonObject, text_edits
from lsp_server.positions import Encoding
from lsp_server.slices import Slices


@dataclass(frozen=True, slots=True)
class Ready:
    """A plan, with its edits where it is one of a text."""

    plan: Plan
    edits: tuple[JsonObject, ...] = ()


class Prepared:
    """What to do for each change. `plan` computes it for the files of now."""

    def __init__(self, folder: FolderNow, plan: Callable[[FileChange], Plan], encoding: Encoding) -> None:
        self._folder = folder
        self._plan = plan
        self._encoding = encoding
        self._ready: dict[str, tuple[Mark, Ready]] = {}

    async def make(self, changes: Iterable[FileChange]) -> None:
        """Make ahead what takes long."""
        slices = Slices()
        mark = self._folder.marker()
        for change in changes:
            if await slices.rest():
                mark = self._folder.marker()
            made_for = mark(change.path)  # before it is read: what changes meanwhile shows
            self._ready[change.path] = made_for, self._made(change)

    def get(self, changes: Iterable[FileChange]) -> Iterator[tuple[FileChange, Ready]]:
        """What to do now, in one moment; quick where nothing happened since it was made ahead."""
        mark = self._folder.marker()
        for change in changes:
            made_for, ready = self._ready.get(change.path, (None, None))
            yield change, ready if ready is not None and made_for == mark(change.path) else self._made(change)

    def _made(self, change: FileChange) -> Ready:
        plan = self._plan(change)
        edits = text_edits(plan.shown, plan.target, self._encoding) if isinstance(plan, TextPlan) else ()
        return Ready(plan, edits)
