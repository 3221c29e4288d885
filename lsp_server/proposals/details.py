"""A proposal as data: what a client with a review of its own shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from agent.changes.changeset import printable
from agent.changes.diff import Hunk, sections
from agent.changes.merge import conflict_block
from agent.changes.outlook import Outlook, Prospect
from agent.changes.proposal import Proposal
from agent.types import FileChange, FileState, TestOutcome
from lsp_server import messages
from lsp_server.texts import NotCarriedError, codec_of_file

_PROSPECTS: dict[Prospect, messages.Prospect] = {
    Prospect.CLEAN: "clean",
    Prospect.MERGED: "merged",
    Prospect.CONFLICT: "conflict",
    Prospect.IN_PLACE: "in-place",
    Prospect.BY_HAND: "by-hand",
}


def describe(
    proposal: Proposal, folder: str, outlooks: Mapping[str, Outlook], uris: Mapping[str, str | None]
) -> messages.ProposalResult:
    """The proposal of a folder (a URI); `outlooks` and `uris` are by the paths of its changes."""
    hunks: dict[str, list[Hunk]] = {}
    for section in sections(proposal.changes):
        hunks.setdefault(section.change.path, []).extend(section.hunks)
    return {
        "runId": proposal.run_id,
        "state": proposal.state.value,
        "title": proposal.title,
        "folder": folder,
        "exitReason": proposal.exit_reason.value,
        "finalMessage": proposal.final_message,
        "notes": list(proposal.notes),
        "nSteps": proposal.n_steps,
        "elapsedS": proposal.elapsed_s,
        "model": {
            "kind": proposal.model.kind,
            "name": proposal.model.name,
            "demonstration": proposal.model.demonstration,
        },
        "jail": {"backend": proposal.jail.backend, "reduced": proposal.jail.reduced},
        "tests": {
            "command": proposal.test_command,
            "before": _test_run(proposal.tests_before),
            "after": _test_run(proposal.tests_after),
        },
        "files": [
            _file(proposal, change, hunks.get(change.path, []), outlooks.get(change.path), uris[change.path])
            for change in proposal.changes.changes
        ],
    }


def _file(
    proposal: Proposal, change: FileChange, hunks: list[Hunk], outlook: Outlook | None, uri: str | None
) -> messages.ProposedFile:
    rows = [_hunk(proposal, hunk) for hunk in hunks]
    return {
        "path": printable(change.path),
        "oldPath": None if change.old_path is None else printable(change.old_path),
        "uri": uri,
        "kind": change.kind.value,
        "state": _file_state(proposal, change.path, rows),
        "flags": [{"code": flag.code, "level": flag.level, "why": flag.why} for flag in change.flags],
        "appliedByDefault": change.applied_by_default,
        "prospect": None if outlook is None else _PROSPECTS[outlook.prospect],
        "detail": "" if outlook is None else outlook.detail,
        "conflict": "".join(map(conflict_block, outlook.conflicts)) or None if outlook is not None else None,
        "before": _text(change.before),
        "after": _text(change.after),
        "hunks": rows,
    }


def _file_state(proposal: Proposal, path: str, hunks: list[messages.ProposedHunk]) -> messages.PartState:
    """A file is settled once it was as a whole, or once each of its hunks was."""
    if path in proposal.discarded_files:
        return "discarded"
    states = {hunk["state"] for hunk in hunks}
    if path in proposal.applied_files or (states and "open" not in states):
        return "applied"
    return "open"


def _hunk(proposal: Proposal, hunk: Hunk) -> messages.ProposedHunk:
    state: messages.PartState = "open"
    if hunk.number in proposal.discarded_hunks:
        state = "discarded"
    elif hunk.number in proposal.applied_hunks:
        state = "applied"
    return {
        "number": hunk.number,
        "state": state,
        "oldStart": hunk.old_start,
        "oldLines": hunk.n_old,
        "newStart": hunk.new_start,
        "newLines": hunk.n_new,
        "text": hunk.text,
    }


def _test_run(outcome: TestOutcome | None) -> messages.TestRun | None:
    return None if outcome is None else {"exitCode": outcome.exit_code, "tail": outcome.tail}


def _text(state: FileState | None) -> str | None:
    if state is None:
        return None
    if state.link is not None:
        return printable(state.link)
    if state.data is None:
        return None
    try:
        return codec_of_file(state.data).to_text(state.data)
    except NotCarriedError:
        return None
