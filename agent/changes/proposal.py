"""The value that a proposal is, and its form on disk: one JSON object, file contents in base64.

Names that are not UTF-8 are kept by the escapes that JSON has for lone surrogates.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from agent.changes.diff import hunks, select
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
    RunResult,
    RunSpec,
    TestOutcome,
)

FORMAT = 1
"""The version of the form on disk. Another one is refused: a proposal is made again by a new run."""


class ProposalState(StrEnum):
    """What has become of a run, in the words of `frog.runs` (queued and running are never on disk)."""

    PROPOSED = "proposed"
    APPLIED = "applied"
    PARTLY_APPLIED = "partly-applied"
    CONFLICT = "conflict"
    DISCARDED = "discarded"
    NOTHING = "nothing"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a run proposes and all that a reviewer is told of it.

    `workspace` is the absolute path of the real one, `folder` what the client calls it (a URI; the path where
    there is no client). `changes` and `patch` stay what the run made: `applied_files` (wholly) and
    `applied_hunks` (numbers of the whole diff) say what is already in place, so numbers never shift.
    """

    run_id: str
    title: str
    workspace: str
    folder: str
    created_s: float
    exit_reason: ExitReason
    final_message: str
    changes: ChangeSet
    patch: str
    model: ModelInfo
    jail: JailInfo
    state: ProposalState = ProposalState.PROPOSED
    n_steps: int = 0
    elapsed_s: float = 0.0
    test_command: str | None = None
    tests_before: TestOutcome | None = None
    tests_after: TestOutcome | None = None
    trajectory: str | None = None
    notes: tuple[str, ...] = ()
    error: RunError | None = None
    applied_files: tuple[str, ...] = ()
    applied_hunks: tuple[int, ...] = ()

    @classmethod
    def of(cls, spec: RunSpec, result: RunResult, folder: str | None = None) -> Proposal:
        """The proposal that the result of a run is."""
        return cls(
            run_id=result.run_id,
            title=spec.issue.title,
            workspace=spec.workspace,
            folder=folder or spec.workspace,
            created_s=time.time(),
            exit_reason=result.exit_reason,
            final_message=result.final_message,
            changes=result.changes,
            patch=result.patch,
            model=result.model,
            jail=result.jail,
            state=_first_state(result),
            n_steps=result.n_steps,
            elapsed_s=result.elapsed_s,
            test_command=result.test_command,
            tests_before=result.tests_before,
            tests_after=result.tests_after,
            trajectory=result.trajectory,
            notes=result.notes,
            error=result.error,
        )

    def remaining(self) -> ChangeSet:
        """The changes that are not in place yet; of a file that is partly in place, its other hunks."""
        changes: list[FileChange] = []
        by_path: dict[str, set[int]] = {}
        for hunk in hunks(self.changes):
            by_path.setdefault(hunk.path, set()).add(hunk.number)
        for change in self.changes.changes:
            own = by_path.get(change.path, set())
            left = own - set(self.applied_hunks)
            if change.path in self.applied_files or (own and not left):
                continue
            if left == own:
                changes.append(change)
            else:
                changes += select(self.changes, files=[change.path], hunks=left).changes
        return replace(self.changes, changes=tuple(changes))

    def with_applied(self, files: Iterable[str], hunk_numbers: Iterable[int], *, conflict: bool = False) -> Proposal:
        """The proposal after these files (wholly) and hunks were applied; the state follows from what is left."""
        after = replace(
            self,
            applied_files=tuple(sorted({*self.applied_files, *files})),
            applied_hunks=tuple(sorted({*self.applied_hunks, *hunk_numbers})),
        )
        left = [c for c in after.remaining().changes if not any(flag.level == "never" for flag in c.flags)]
        is_started = bool(after.applied_files or after.applied_hunks)
        if conflict:
            state = ProposalState.CONFLICT
        elif not left and is_started:
            state = ProposalState.APPLIED
        else:
            state = ProposalState.PARTLY_APPLIED if is_started else self.state
        return replace(after, state=state)


def _first_state(result: RunResult) -> ProposalState:
    if result.exit_reason is ExitReason.CANCELLED:
        return ProposalState.CANCELLED
    if result.changes.changes:
        return ProposalState.PROPOSED
    return ProposalState.FAILED if result.error is not None else ProposalState.NOTHING


# --- to JSON --------------------------------------------------------------------------------------------------


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
