"""Applying changes of one folder: new files first, then all texts in one edit, renames and deletes apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.types import ChangeKind, FileChange
from lsp_server.apply.delivery import Delivery, Letter
from lsp_server.apply.documents import DocumentWriter
from lsp_server.apply.file_operations import make, move
from lsp_server.apply.now import FolderNow
from lsp_server.apply.outcomes import Outcomes
from lsp_server.apply.plan import Means, MovePlan, Past, Plan, Settled, TextPlan, plan
from lsp_server.messages import AppliedFile
from lsp_server.session import Folder, Session


class Applier:
    """Applies changes of one folder."""

    def __init__(
        self, session: Session, folder: Folder, past: Past | None = None, path_now: Callable[[str], str] = str
    ) -> None:
        """`path_now`: where a file of the run lies since, or LostError."""
        self._session = session
        self._folder = FolderNow(session, folder, path_now)
        self._past = past or Past()
        self._means = means_of(session)
        self._outcomes = Outcomes()

    def plan(self, change: FileChange) -> Plan:
        """What would be done for a change now; nothing is."""
        return plan(change, self._folder.look, self._means, self._past)

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


def means_of(session: Session) -> Means:
    """What the client of a session can do."""
    return Means(session.capabilities.apply_edit, session.capabilities.resource_operations)
