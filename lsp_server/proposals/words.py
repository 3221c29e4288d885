"""What is said of a run and its proposal, for a person."""

from __future__ import annotations

from collections.abc import Sequence

from agent.changes.proposal import Proposal
from agent.changes.review_summary import ENDINGS
from agent.errors import sentences
from agent.types import ExitReason
from lsp_server.messages import AppliedFile, FileOutcome, RunState
from lsp_server.runs import RunRecord


def summary(title: str, proposal: Proposal) -> str:
    """The question at the end of a run."""
    n_files = len(proposal.changes.changes)
    text = f"FrogNano proposes changes in {n_files} {'file' if n_files == 1 else 'files'} for “{title}”"
    before, after = proposal.tests_before, proposal.tests_after
    if before is not None and after is not None:
        text += f"; tests: exit code {before.exit_code} before, {after.exit_code} after"
    else:
        text += "; tests: not checked"
    if proposal.exit_reason is not ExitReason.AGENT:
        text += f"; the run ended early: {ENDINGS[proposal.exit_reason]}"
    n_flagged = sum(not change.applied_by_default for change in proposal.changes.changes)
    if n_flagged:
        text += f"; {n_flagged} flagged, not applied unless named"
    if proposal.model.demonstration:
        text += "; demonstration model"
    return text + "."


def failure(record: RunRecord) -> str:
    """Why a run could not be done."""
    error = record.result.error if record.result is not None else None
    if error is None:
        return record.exit_reason or "see the log"
    return sentences(error.message, error.hint)


def report(outcomes: Sequence[AppliedFile], patch_path: str | None, state: RunState) -> str:
    """What happened, in one line for a person."""
    if not outcomes:
        return "FrogNano: nothing to apply. Flagged changes are applied only when they are named."
    parts: list[str] = []
    words: dict[FileOutcome, str] = {
        "applied": "applied",
        "unchanged": "already in place",
        "unconfirmed": "said to be applied, but nothing shows it",
        "conflict": "in conflict, nothing applied there",
        "mismatch": "not as expected, look at it",
        "rejected": "not applied",
        "by-hand": "to be done by hand",
        "asked": "waiting for your answer",
    }
    for outcome, text in words.items():
        names = [row["path"] for row in outcomes if row["outcome"] == outcome]
        if names:
            parts.append(f"{text}: {', '.join(names)}")
    if state == "partly-applied":
        parts.append("the rest stays a proposal")
    return "FrogNano: " + "; ".join(parts) + (f". Patch: {patch_path}" if patch_path else "")
