"""What applying a proposal would do now, in the words of its review. Nothing is sent or written."""

from __future__ import annotations

from collections.abc import Callable

from agent.changes.outlook import Outlook, Prospect
from agent.changes.proposal import Proposal, is_never_applied
from agent.changes.renames import LostError
from agent.types import FileChange
from lsp_server.apply.by_hand import mode_note
from lsp_server.apply.now import FileNow, FolderNow
from lsp_server.apply.plan import Means, MovePlan, Past, Plan, Settled, TextPlan, plan
from lsp_server.slices import Slices

_PROSPECTS = {
    "conflict": Prospect.CONFLICT,
    "unchanged": Prospect.IN_PLACE,
    "by-hand": Prospect.BY_HAND,
    "unconfirmed": Prospect.BY_HAND,
}


async def prepare(proposal: Proposal, folder: FolderNow, means: Means, past: Past) -> Callable[[], dict[str, Outlook]]:
    """Read the files of a proposal as they are now; what it gives computes their outlooks, in any thread.

    Files that are discarded, or never applied, have no outlook.
    """
    changes = [change for change in proposal.chosen().changes if not is_never_applied(change)]
    files: dict[str, FileNow | LostError] = {}
    slices = Slices()
    for change in changes:
        await slices.rest()
        for path in (change.path, change.old_path):
            if path is not None and path not in files:
                try:
                    files[path] = folder.look(path)
                except LostError as lost:
                    files[path] = lost

    def look(path: str) -> FileNow:
        found = files[path]
        if isinstance(found, LostError):
            raise found
        return found

    return lambda: {change.path: outlook(change, plan(change, look, means, past)) for change in changes}


def outlook(change: FileChange, planned: Plan) -> Outlook:
    """A plan in the words of a review."""
    if isinstance(planned, Settled):
        detail = planned.detail.removeprefix("already as proposed").lstrip("; ")
        return Outlook(prospect=_PROSPECTS[planned.outcome], detail=detail, conflicts=planned.conflicts)
    if isinstance(planned, MovePlan):
        return Outlook(prospect=Prospect.CLEAN, detail="you are asked first")
    return Outlook(
        prospect=Prospect.MERGED if planned.is_merged else Prospect.CLEAN, detail="; ".join(_besides(change, planned))
    )


def _besides(change: FileChange, planned: TextPlan) -> list[str]:
    relative = planned.now.relative
    said = [f"it is {relative} now"] if relative != change.path else []
    note = mode_note(change, relative)
    return said + ([f"then {note}"] if note else [])
