"""Applying a kept proposal from the command line: one process at a time, and what came of it in words."""

from __future__ import annotations

import os
from collections.abc import Collection

from agent.changes.apply import ApplyOutcome, apply_to_disk
from agent.changes.changeset import printable, shown
from agent.changes.merge import conflict_block
from agent.changes.proposals import Proposal, ProposalState, ProposalStore
from agent.errors import ProposalError
from agent.types import JsonObject, RunResult, RunSpec
from agent.visible import visible

__all__ = ["ApplyOutcome", "applied_json", "apply_proposal", "describe_outcome", "discard_proposal"]


def apply_proposal(
    run_id: str,
    *,
    files: Collection[str] | None = None,
    hunks: Collection[int] | None = None,
    with_flagged: bool = False,
) -> ApplyOutcome:
    """Apply and remember what is in place. Raises ProposalError, UsageError, WorkspaceError."""
    store = ProposalStore()
    files = _normal(files)
    with store.lock(run_id) as name:
        proposal = store.load(name)
        outcome = apply_to_disk(proposal, files=files, hunks=hunks, include_flagged=with_flagged)
        store.save(outcome.proposal)
    return outcome


def discard_proposal(
    run_id: str, *, files: Collection[str] | None = None, hunks: Collection[int] | None = None
) -> tuple[str, ProposalState]:
    """Take these files and hunks out of a proposal, or all of it; its whole id and its state after it.

    Raises ProposalError where there is none, UsageError for what is not there or in place already.
    """
    store = ProposalStore()
    name = store.find(run_id)
    after = store.discard(name, _normal(files), hunks)
    return name, ProposalState.DISCARDED if after is None else after.state


def _normal(files: Collection[str] | None) -> Collection[str] | None:
    return files and [path if os.path.isabs(path) else os.path.normpath(path) for path in files]


def apply_result(spec: RunSpec, result: RunResult, *, with_flagged: bool = False) -> ApplyOutcome:
    """Apply the proposal of a run that has just ended, also where it could not be kept (a full disk)."""
    try:
        return apply_proposal(result.run_id, with_flagged=with_flagged)
    except ProposalError:
        return apply_to_disk(Proposal.of(spec, result), include_flagged=with_flagged)


def describe_outcome(outcome: ApplyOutcome) -> str:
    """What was applied, left out, in conflict or failed, a line each."""
    lines = [f"applied   {shown(path)}" for path in outcome.applied]
    lines += [f"left out  {shown(path)}: {reason}" for path, reason in outcome.skipped]
    lines += [f"failed    {shown(path)}: {reason}" for path, reason in outcome.failed]
    for info in outcome.conflicts:
        lines.append(f"conflict  {shown(info.path)}: {info.reason}; nothing of this file was applied")
        for conflict in info.conflicts:
            lines.append(f"          line {conflict.theirs_line} of the file now:")
            lines += [f"          {line}" for line in conflict_block(conflict).rstrip("\n").split("\n")]
    if not lines:
        lines.append("nothing was applied")
    return visible("\n".join(lines)) + "\n"


def applied_json(outcome: ApplyOutcome) -> JsonObject:
    """The object of `apply --json`."""
    return {
        "run_id": outcome.proposal.run_id,
        "state": str(outcome.proposal.state),
        "applied": [printable(path) for path in outcome.applied],
        "skipped": [{"path": printable(path), "reason": reason} for path, reason in outcome.skipped],
        "failed": [{"path": printable(path), "reason": reason} for path, reason in outcome.failed],
        "conflicts": [{"path": printable(info.path), "reason": info.reason} for info in outcome.conflicts],
        "error": None,
    }
