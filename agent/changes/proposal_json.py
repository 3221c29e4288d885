"""The form of a proposal on disk: one JSON object, file contents in base64.

Names that are not UTF-8 are kept by the escapes that JSON has for lone surrogates.
"""

from __future__ import annotations

import base64
from dataclasses import asdict

from agent.changes.proposal import Proposal, ProposalState
from agent.types import (
    ChangeKind,
    ChangeSet,
    ExitReason,
    FileChange,
    FileState,
    Flag,
    JailInfo,
    JsonObject,
    ModelInfo,
    RunError,
    TestOutcome,
)

FORMAT = 1
"""The version of the form on disk. Another one is refused: a proposal is made again by a new run."""


def proposal_to_json(proposal: Proposal) -> JsonObject:
    """The proposal as one JSON object."""
    changes = proposal.changes
    return {
        "format": FORMAT,
        "run_id": proposal.run_id,
        "title": proposal.title,
        "workspace": proposal.workspace,
        "folder": proposal.folder,
        "created_s": proposal.created_s,
        "state": proposal.state.value,
        "exit_reason": proposal.exit_reason.value,
        "final_message": proposal.final_message,
        "n_steps": proposal.n_steps,
        "elapsed_s": proposal.elapsed_s,
        "model": {
            "kind": proposal.model.kind,
            "name": proposal.model.name,
            "demonstration": proposal.model.demonstration,
        },
        "jail": asdict(proposal.jail),
        "tests": {
            "command": proposal.test_command,
            "before": None if proposal.tests_before is None else asdict(proposal.tests_before),
            "after": None if proposal.tests_after is None else asdict(proposal.tests_after),
        },
        "trajectory": proposal.trajectory,
        "notes": list(proposal.notes),
        "error": None if proposal.error is None else asdict(proposal.error),
        "applied_files": list(proposal.applied_files),
        "applied_hunks": list(proposal.applied_hunks),
        "discarded_files": list(proposal.discarded_files),
        "discarded_hunks": list(proposal.discarded_hunks),
        "renames": [list(pair) for pair in proposal.renames],
        "changes": [_change_to_json(change) for change in changes.changes],
        "n_generated": changes.n_generated,
        "omitted": list(changes.omitted),
        "change_notes": list(changes.notes),
        "patch": proposal.patch,
    }


def _change_to_json(change: FileChange) -> JsonObject:
    return {
        "path": change.path,
        "kind": change.kind.value,
        "old_path": change.old_path,
        "base_known": change.base_known,
        "before": _state_to_json(change.before),
        "after": _state_to_json(change.after),
        "flags": [asdict(flag) for flag in change.flags],
    }


def _state_to_json(state: FileState | None) -> JsonObject | None:
    if state is None:
        return None
    data = None if state.data is None else base64.b64encode(state.data).decode("ascii")
    return {"data": data, "mode": state.mode, "link": state.link}


# --- from JSON ------------------------------------------------------------------------------------------------


def proposal_from_json(value: JsonObject) -> Proposal:
    """The proposal of a JSON object. Raises ValueError, KeyError, TypeError or AttributeError for any other."""
    if value["format"] != FORMAT:
        raise ValueError(f"format {value['format']!r} is not {FORMAT}")
    tests = value["tests"]
    return Proposal(
        run_id=str(value["run_id"]),
        title=str(value["title"]),
        workspace=str(value["workspace"]),
        folder=str(value["folder"]),
        created_s=float(value["created_s"]),
        state=ProposalState(value["state"]),
        exit_reason=ExitReason(value["exit_reason"]),
        final_message=str(value["final_message"]),
        n_steps=int(value["n_steps"]),
        elapsed_s=float(value["elapsed_s"]),
        model=ModelInfo(**value["model"]),
        jail=JailInfo(**value["jail"]),
        test_command=tests["command"],
        tests_before=None if tests["before"] is None else TestOutcome(**tests["before"]),
        tests_after=None if tests["after"] is None else TestOutcome(**tests["after"]),
        trajectory=value["trajectory"],
        notes=tuple(map(str, value["notes"])),
        error=None if value["error"] is None else RunError(**value["error"]),
        applied_files=tuple(map(str, value["applied_files"])),
        applied_hunks=tuple(map(int, value["applied_hunks"])),
        discarded_files=tuple(map(str, value.get("discarded_files", ()))),
        discarded_hunks=tuple(map(int, value.get("discarded_hunks", ()))),
        renames=tuple((str(old), str(new)) for old, new in value.get("renames", ())),
        changes=ChangeSet(
            changes=tuple(map(_change_from_json, value["changes"])),
            n_generated=int(value["n_generated"]),
            omitted=tuple(map(str, value["omitted"])),
            notes=tuple(map(str, value["change_notes"])),
        ),
        patch=str(value["patch"]),
    )


def _change_from_json(value: JsonObject) -> FileChange:
    return FileChange(
        path=str(value["path"]),
        kind=ChangeKind(value["kind"]),
        old_path=value["old_path"],
        base_known=bool(value["base_known"]),
        before=_state_from_json(value["before"]),
        after=_state_from_json(value["after"]),
        flags=tuple(Flag(**flag) for flag in value["flags"]),
    )


def _state_from_json(value: JsonObject | None) -> FileState | None:
    if value is None:
        return None
    data = None if value["data"] is None else base64.b64decode(value["data"], validate=True)
    return FileState(data=data, mode=int(value["mode"]), link=value["link"])
