"""Applying changes of one folder: new files first, then all texts in one edit, renames and deletes apart."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from agent.changes.changeset import printable
from agent.changes.merge import Conflict
from agent.types import ChangeKind, FileChange
from lsp_server.apply.delivery import Delivery, Letter
from lsp_server.apply.documents import DocumentWriter
from lsp_server.apply.file_operations import make, move
from lsp_server.apply.now import FolderNow
from lsp_server.apply.outcomes import Outcomes
from lsp_server.apply.plan import Means, MovePlan, Plan, Settled, TextPlan, plan
from lsp_server.messages import AppliedFile
from lsp_server.renames import LostError
from lsp_server.session import Folder, Session


class Applier:
    """Applies changes of one folder."""

    def __init__(
        self,
        session: Session,
        folder: Folder,
        unsaved: Container[str] | None = None,
        path_now: Callable[[str], str] = str,
        seems_at: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`unsaved`: the files whose base was a buffer that was not as on disk; None where that is not known.
        `path_now`: where a file of the run lies since, or LostError. `seems_at`: where those that are gone may be."""
        capabilities = session.capabilities
        self._session = session
        self._folder = FolderNow(session, folder, path_now)
        self._unsaved = unsaved
        self._seems_at = seems_at
        self._means = Means(capabilities.apply_edit, capabilities.resource_operations)
        self._outcomes = Outcomes()

    @property
    def conflicts(self) -> dict[str, tuple[Conflict, ...]]:
        """By path, the stretches that both sides changed."""
        return self._outcomes.conflicts

    def plan(self, change: FileChange) -> Plan:
        """What would be done for a change now; nothing is."""
        was_clean = self._unsaved is not None and change.path not in self._unsaved
        try:
            planned = plan(change, self._folder.look, self._means, was_clean=was_clean)
        except LostError as lost:
            return Settled("conflict", str(lost))
        place = self._seems_at.get(change.old_path or change.path)
        if place is not None and isinstance(planned, Settled) and planned.outcome == "conflict":
            return replace(planned, detail=f"{planned.detail}; it seems to be {printable(place)} now")
        return planned

    async def apply(self, changes: Sequence[FileChange]) -> list[AppliedFile]:
        """Created files, then all texts in one edit. Other kinds are listed with what does them by hand.

        Deletes and renames: see `apply_structure`.
        """
        delivery = Delivery(self._session, self._folder)
        made: list[Letter] = []
        modified: list[FileChange] = []
        for change in changes:
            if change.kind is ChangeKind.MODIFIED:
                modified.append(change)
                continue
            planned = self.plan(change)
            if isinstance(planned, Settled):
                self._outcomes.take(change, planned)
            elif isinstance(planned, TextPlan):
                letter = await make(change, planned, delivery, self._outcomes)
                made += [letter] if letter is not None else []
        writer = DocumentWriter(self._session, self._folder, self.plan, delivery, self._outcomes)
        await writer.write(made, modified)
        return self._outcomes.rows(changes)

    async def apply_structure(self, changes: Sequence[FileChange]) -> list[AppliedFile]:
        """Renames, then deletes, one edit each, where the client lists them."""
        delivery = Delivery(self._session, self._folder)
        for change in sorted(changes, key=lambda change: change.kind is ChangeKind.DELETED):
            planned = self.plan(change)
            if isinstance(planned, Settled):
                self._outcomes.take(change, planned)
            elif isinstance(planned, MovePlan):
                await move(change, planned, delivery, self._outcomes)
        return self._outcomes.rows(changes)

    def can(self, operation: str) -> bool:
        """Whether the client lists a file operation."""
        return self._means.can(operation)
