"""What became of each file while a proposal is applied."""

from __future__ import annotations

from collections.abc import Sequence

from agent.changes.changeset import printable
from agent.types import FileChange
from lsp_server.apply.plan import Settled
from lsp_server.messages import AppliedFile, FileOutcome


class Outcomes:
    """One outcome a file; a later one counts."""

    def __init__(self) -> None:
        self._rows: dict[str, AppliedFile] = {}

    def settle(self, change: FileChange, outcome: FileOutcome, detail: str = "") -> None:
        """Note what became of a file."""
        self._rows[change.path] = {"path": printable(change.path), "outcome": outcome, "detail": detail}

    def take(self, change: FileChange, settled: Settled) -> None:
        """Note a plan that says that there is nothing to send."""
        self.settle(change, settled.outcome, settled.detail)

    def rows(self, changes: Sequence[FileChange]) -> list[AppliedFile]:
        """The outcomes of these changes, in their order."""
        return [self._rows[change.path] for change in changes if change.path in self._rows]
