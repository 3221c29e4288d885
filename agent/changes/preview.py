"""What applying a proposal to the disk would do now. Nothing is written."""

from __future__ import annotations

from agent.changes.apply import why_never
from agent.changes.changeset import printable
from agent.changes.outlook import Outlook, Prospect
from agent.changes.placement import InTheWay, foresee
from agent.changes.proposal import Proposal
from agent.changes.renames import LostError, Renames
from agent.changes.tree import Tree


def foresee_on_disk(proposal: Proposal) -> dict[str, Outlook]:
    """By path, what `apply_to_disk` would do to each file that is not discarded, nor never applied.

    Empty where the workspace is gone: then there is nothing to say of it.
    """
    try:
        tree = Tree(proposal.workspace)
    except OSError:
        return {}
    outlooks: dict[str, Outlook] = {}
    with tree:
        for change in proposal.chosen().changes:
            if why_never(change, proposal.workspace) is not None:
                continue
            try:
                now = Renames(proposal.renames).follow(change, is_applied=change.path in proposal.applied_files)
                if (reason := why_never(now, proposal.workspace)) is not None:
                    raise LostError(reason)
                is_due, is_as_before = foresee(tree, now)
            except LostError as lost:
                outlook = Outlook(prospect=Prospect.CONFLICT, detail=str(lost))
            except InTheWay as found:
                outlook = Outlook(prospect=Prospect.CONFLICT, detail=found.reason, conflicts=found.conflicts)
            except OSError:
                reason = "a folder on the way to it is a file or a link now, or it cannot be read"
                outlook = Outlook(prospect=Prospect.CONFLICT, detail=reason)
            else:
                as_it_goes = Prospect.CLEAN if is_as_before else Prospect.MERGED
                detail = f"it is {printable(now.path)} now" if now.path != change.path else ""
                outlook = Outlook(prospect=as_it_goes if is_due else Prospect.IN_PLACE, detail=detail)
            outlooks[change.path] = outlook
    return outlooks
