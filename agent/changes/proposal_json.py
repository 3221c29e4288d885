"""The form of a proposal on disk: one JSON object, file contents in base64.

Names that are not UTF-8 are kept by the escapes that JSON has for lone surrogates.
"""

from __future__ import annotations

import base64
import math
from dataclasses import asdict
from typing import Literal

from agent.changes.changeset import is_git_internal
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

_MODEL_KINDS: dict[str, Literal["worker", "endpoint", "scripted"]] = {
    "worker": "worker",
    "endpoint": "endpoint",
    "scripted": "scripted",
}
_FLAG_LEVELS: dict[str, Literal["never", "runs", "used", "note"]] = {
    "never": "never",
    "runs": "runs",
    "used": "used",
    "note": "note",
}


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
    """The proposal of a JSON object. Raises ValueError, KeyError, TypeError or AttributeError for any other.

    What is on disk may be damaged, or made by somebody else: values have their types, and paths lie in the workspace.
    """
    if value["format"] != FORMAT:
        raise ValueError(f"format {value['format']!r} is not {FORMAT}")
    tests = value["tests"]
    return Proposal(
        run_id=_text(value["run_id"]),
        title=_text(value["title"]),
        workspace=_text(value["workspace"]),
        folder=_text(value["folder"]),
        created_s=_seconds(value["created_s"]),
        state=ProposalState(value["state"]),
        exit_reason=ExitReason(value["exit_reason"]),
        final_message=_text(value["final_message"]),
        n_steps=_whole(value["n_steps"]),
        elapsed_s=_seconds(value["elapsed_s"]),
        model=_model_from_json(value["model"]),
        jail=_jail_from_json(value["jail"]),
        test_command=_text_or_none(tests["command"]),
        tests_before=_tests_from_json(tests["before"]),
        tests_after=_tests_from_json(tests["after"]),
        trajectory=_text_or_none(value["trajectory"]),
        notes=tuple(map(_text, value["notes"])),
        error=None if value["error"] is None else RunError(**{k: _text(part) for k, part in value["error"].items()}),
        applied_files=tuple(map(_text, value["applied_files"])),
        applied_hunks=tuple(map(_whole, value["applied_hunks"])),
        discarded_files=tuple(map(_text, value.get("discarded_files", ()))),
        discarded_hunks=tuple(map(_whole, value.get("discarded_hunks", ()))),
        renames=tuple((_text(old), _text(new)) for old, new in value.get("renames", ())),
        changes=ChangeSet(
            changes=tuple(map(_change_from_json, value["changes"])),
            n_generated=_whole(value["n_generated"]),
            omitted=tuple(map(_text, value["omitted"])),
            notes=tuple(map(_text, value["change_notes"])),
        ),
        patch=_text(value["patch"]),
    )


def _model_from_json(value: JsonObject) -> ModelInfo:
    kind, name = _MODEL_KINDS[_text(value["kind"])], _text(value["name"])
    return ModelInfo(kind=kind, name=name, demonstration=bool(value["demonstration"]))


def _jail_from_json(value: JsonObject) -> JailInfo:
    return JailInfo(
        backend=_text(value["backend"]), reduced=_text_or_none(value["reduced"]), root=_text_or_none(value.get("root"))
    )


def _tests_from_json(value: JsonObject | None) -> TestOutcome | None:
    if value is None:
        return None
    exit_code = value["exit_code"]
    return TestOutcome(exit_code=None if exit_code is None else _whole(exit_code), tail=_text(value["tail"]))


def _change_from_json(value: JsonObject) -> FileChange:
    kind, old_path = ChangeKind(value["kind"]), value["old_path"]
    before, after = _state_from_json(value["before"]), _state_from_json(value["after"])
    is_whole = (after is None) == (kind is ChangeKind.DELETED) and (old_path is None) == (
        kind is not ChangeKind.RENAMED
    )
    if not is_whole or (kind is not ChangeKind.LINK and (before is None) != (kind is ChangeKind.CREATED)):
        raise ValueError(f"a change that is {kind} has other parts")
    return FileChange(
        path=_path(value["path"]),
        kind=kind,
        old_path=None if old_path is None else _path(old_path),
        base_known=bool(value["base_known"]),
        before=before,
        after=after,
        flags=tuple(map(_flag_from_json, value["flags"])),
    )


def _flag_from_json(value: JsonObject) -> Flag:
    return Flag(code=_text(value["code"]), level=_FLAG_LEVELS[_text(value["level"])], why=_text(value["why"]))


def _state_from_json(value: JsonObject | None) -> FileState | None:
    if value is None:
        return None
    data = None if value["data"] is None else base64.b64decode(value["data"], validate=True)
    return FileState(data=data, mode=_whole(value["mode"]) & 0o7777, link=_text_or_none(value["link"]))


def _path(value: object) -> str:
    path = _text(value)
    if "\0" in path or is_git_internal(path) or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{path!r} is no path of a file in the workspace")
    return path


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, not {value!r:.40}")
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"a whole number was expected, not {value!r:.40}")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise TypeError(f"seconds were expected, not {value!r:.40}")
    return float(value)
