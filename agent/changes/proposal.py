"""The value that a proposal is, and what may become of it: each step gives a new value, and numbers never shift."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from agent.changes.changeset import shown
from agent.changes.diff import hunks as hunks_of
from agent.changes.diff import select
from agent.errors import UsageError
from agent.types import (
    ChangeKind,
    ChangeSet,
    ExitReason,
    FileChange,
    JailInfo,
    ModelInfo,
    RunError,
    RunResult,
    RunSpec,
    TestOutcome,
)


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
    `applied_hunks` (numbers of the whole diff) say what is already in place, `discarded_files` and
    `discarded_hunks` what is never to be, so numbers never shift.
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
    discarded_files: tuple[str, ...] = ()
    discarded_hunks: tuple[int, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    """What the user renamed since, the oldest first; relative to the workspace, absolute outside it."""

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

    def chosen(self, files: Collection[str] | None = None, hunks: Collection[int] | None = None) -> ChangeSet:
        """The part in these files and hunks (None: all), less what was discarded.

        Raises UsageError for files and hunks that are not there, or that were discarded.
        """
        part = self._part(self.discarded_files, self.discarded_hunks, files, hunks)
        if dropped := sorted(set(hunks or ()) & set(self.discarded_hunks)):
            raise UsageError(f"Hunk {dropped[0]} was discarded.", "Run the fix again to get it back.")
        if dropped_files := sorted(set(files or ()) & set(self.discarded_files)):
            raise UsageError(f"{shown(dropped_files[0])} was discarded.", "Run the fix again to get it back.")
        return part

    def remaining(self) -> ChangeSet:
        """The changes that may still be applied; of a file that is partly in place or discarded, its other hunks."""
        return self._part((*self.applied_files, *self.discarded_files), (*self.applied_hunks, *self.discarded_hunks))

    def _part(
        self,
        less_files: Collection[str],
        less_hunks: Collection[int],
        files: Collection[str] | None = None,
        hunks: Collection[int] | None = None,
    ) -> ChangeSet:
        own = self.hunk_numbers()
        part: list[FileChange] = []
        for change in select(self.changes, files, hunks).changes:
            numbers = own.get(change.path, frozenset())
            asked = numbers if hunks is None else numbers & set(hunks)
            left = asked - set(less_hunks)
            if change.path in less_files:
                continue
            if left == asked:
                part.append(change)
            elif left:
                part += select(self.changes, files=[change.path], hunks=left).changes
        return replace(self.changes, changes=tuple(part))

    def hunk_numbers(self) -> dict[str, frozenset[int]]:
        """The hunks of each file that has some, by path."""
        numbers: dict[str, set[int]] = {}
        for hunk in hunks_of(self.changes):
            numbers.setdefault(hunk.path, set()).add(hunk.number)
        return {path: frozenset(own) for path, own in numbers.items()}

    def with_applied(self, files: Iterable[str], hunk_numbers: Iterable[int], *, conflict: bool = False) -> Proposal:
        """The proposal after these files (wholly) and hunks were applied; the state follows from what is left."""
        after = replace(
            self,
            applied_files=tuple(sorted({*self.applied_files, *files})),
            applied_hunks=tuple(sorted({*self.applied_hunks, *hunk_numbers})),
        )
        is_started = bool(after.applied_files or after.applied_hunks)
        if conflict:
            state = ProposalState.CONFLICT
        elif is_started and not after._is_open():
            state = ProposalState.APPLIED
        else:
            state = ProposalState.PARTLY_APPLIED if is_started else self.state
        return replace(after, state=state)

    def with_discarded(self, files: Collection[str] | None = None, hunks: Collection[int] | None = None) -> Proposal:
        """The proposal without these files and hunks (None: without any), whatever was discarded before.

        A file that is made, deleted or a link goes whole with any of its hunks. Where nothing is left, the proposal
        is applied if a part of it was, else discarded. Raises UsageError for what is not there or in place already.
        """
        if files is None and hunks is None:
            return self._discarded()
        own = self.hunk_numbers()
        dropped_files, dropped_hunks = set(self.discarded_files), set(self.discarded_hunks)
        for change in select(self.changes, files, hunks).changes:
            numbers = own.get(change.path, frozenset())
            asked = numbers if hunks is None or change.kind is not ChangeKind.MODIFIED else numbers & set(hunks)
            placed = sorted(asked & set(self.applied_hunks))
            if change.path in self.applied_files or (placed and (hunks is not None or len(placed) == len(numbers))):
                what = f"Hunk {placed[0]}" if placed and hunks is not None else shown(change.path)
                raise UsageError(f"{what} is in place already.", "Undo it in the editor, or with your version control.")
            dropped_hunks |= asked - set(placed)
            if hunks is None or asked == numbers:
                dropped_files.add(change.path)
        after = replace(
            self, discarded_files=tuple(sorted(dropped_files)), discarded_hunks=tuple(sorted(dropped_hunks))
        )
        if after._is_open():
            return after
        if after.applied_files or after.applied_hunks:
            return replace(after, state=ProposalState.APPLIED)
        return after._discarded()

    def _is_open(self) -> bool:
        """Whether anything is left that could be applied."""
        return any(not is_never_applied(change) for change in self.remaining().changes)

    def _discarded(self) -> Proposal:
        return replace(self, state=ProposalState.DISCARDED, changes=ChangeSet(), patch="")


def is_never_applied(change: FileChange) -> bool:
    """Whether a flag says that the change is not to be applied, not even where its file is named."""
    return any(flag.level == "never" for flag in change.flags)


def _first_state(result: RunResult) -> ProposalState:
    if result.exit_reason is ExitReason.CANCELLED:
        return ProposalState.CANCELLED
    if result.changes.changes:
        return ProposalState.PROPOSED
    return ProposalState.FAILED if result.error is not None else ProposalState.NOTHING
