"""Applying a proposal to the real workspace: read again, merge, write, and look what is there then.

The base of every merge is the snapshot that the run worked on, so what the user did meanwhile stays. A file with a
conflict is left wholly as it is. What is flagged "never" is never written; what is flagged "runs", or ignored by git,
only where the caller names it.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from agent.changes.changeset import is_git_internal, shown
from agent.changes.diff import select
from agent.changes.merge import Conflict
from agent.changes.placement import InTheWay, leads_outside, put
from agent.changes.proposal import Proposal, ProposalState
from agent.changes.renames import LostError, Renames
from agent.changes.tree import ChangedMeanwhileError, Tree
from agent.errors import ProposalError, WorkspaceError
from agent.types import ChangeKind, FileChange

MAX_ATTEMPTS = 3
"""How often a file that is saved in the very moment of writing is read and merged anew."""

_LEAVING = {ChangeKind.DELETED, ChangeKind.RENAMED}
_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictInfo:
    """A file that was left as it is, why, and the stretches where both sides changed the same lines."""

    path: str
    reason: str
    conflicts: tuple[Conflict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOutcome:
    """What happened. `skipped` and `failed` are (path, reason); `proposal` is the one to keep from now on."""

    applied: tuple[str, ...] = ()
    conflicts: tuple[ConflictInfo, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    proposal: Proposal


def apply_to_disk(
    proposal: Proposal,
    *,
    files: Collection[str] | None = None,
    hunks: Collection[int] | None = None,
    include_flagged: bool = False,
) -> ApplyOutcome:
    """Apply what is not in place yet: all that is applied by default, or these files and hunks (of the whole diff).

    Naming a file in `files`, or `include_flagged`, consents to what "runs by itself" and to what git ignores.
    Save the outcome's proposal (`ProposalStore`), best while holding its lock. Raises UsageError for files and
    hunks that are not there, ProposalError for a discarded proposal, WorkspaceError when the workspace is gone.
    """
    if proposal.state is ProposalState.DISCARDED:
        raise ProposalError(f"The proposal of run {proposal.run_id} was discarded.", "Run the fix again.")
    work = _Work(proposal)
    chosen = list(work.choose(files, hunks, include_flagged))
    try:
        tree = Tree(proposal.workspace)
    except OSError as error:
        raise WorkspaceError(
            f"The workspace {shown(proposal.workspace)} cannot be opened: {error.strerror}.",
            "Bring it back to where it was, or discard the proposal.",
        ) from error
    with tree:
        for change in _in_safe_order(list(work.placed(chosen))):
            work.apply(tree, change)
    return work.outcome()


@dataclass(slots=True)
class _Work:
    proposal: Proposal
    applied: list[str] = field(default_factory=list)
    conflicts: list[ConflictInfo] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    whole: set[str] = field(default_factory=set)
    numbers: dict[str, frozenset[int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """By the path where a file is now, the one that the proposal has for it."""
    is_disk_full: bool = False

    def choose(
        self, files: Collection[str] | None, hunks: Collection[int] | None, include_flagged: bool
    ) -> Iterator[FileChange]:
        """The changes to apply, cut down to the hunks that were asked for."""
        changes = self.proposal.changes
        part = {change.path for change in self.proposal.chosen(files, hunks).changes}
        own = self.proposal.hunk_numbers()
        settled = {*self.proposal.applied_hunks, *self.proposal.discarded_hunks}
        for change in changes.changes:
            if change.path not in part:
                continue
            numbers = own.get(change.path, frozenset())
            wanted = (numbers if hunks is None else numbers & set(hunks)) - settled
            reason = why_never(change, self.proposal.workspace)
            if reason is None and not (files is not None or include_flagged):
                reason = _why_not_by_default(change)
            if reason is not None:
                self.skipped.append((change.path, reason))
            elif change.path in self.proposal.applied_files or (numbers and not wanted):
                self.skipped.append((change.path, "it is in place already"))
            elif wanted == numbers or change.kind is not ChangeKind.MODIFIED:
                self.whole.add(change.path)
                self.numbers[change.path] = numbers
                yield change
            else:
                yield self._partial(change, wanted, is_last=wanted | settled >= numbers)

    def _partial(self, change: FileChange, wanted: frozenset[int], *, is_last: bool) -> FileChange:
        """The file with these hunks alone; the last of them brings its mode along."""
        [part] = select(self.proposal.changes, files=[change.path], hunks=wanted).changes
        self.numbers[change.path] = wanted
        if is_last:
            self.whole.add(change.path)
            if part.after is not None and change.after is not None:
                return replace(part, after=replace(part.after, mode=change.after.mode))
        return part

    def placed(self, changes: Iterable[FileChange]) -> Iterator[FileChange]:
        """The changes of the files where they are now: the user may have renamed them in an editor since."""
        renames = Renames(self.proposal.renames)
        for change in changes:
            try:
                now = renames.follow(change, is_applied=change.path in self.proposal.applied_files)
                reason = why_never(now, self.proposal.workspace)
            except LostError as lost:
                reason = str(lost)
            if reason is not None:
                self.conflicts.append(ConflictInfo(path=change.path, reason=reason))
                continue
            self.names[now.path] = change.path
            yield now

    def apply(self, tree: Tree, change: FileChange) -> None:
        """Apply one change and note what came of it; trouble with it never stops the others, a full disk does."""
        name = self.names[change.path]
        if self.is_disk_full:
            self.failed.append((name, "the disk is full; nothing was written: make room and apply again"))
            return
        try:
            for attempt in range(1, MAX_ATTEMPTS + 1):
                try:
                    put(tree, change)
                    break
                except ChangedMeanwhileError:
                    if attempt == MAX_ATTEMPTS:
                        raise InTheWay("it keeps changing while it is written") from None
        except InTheWay as conflict:
            info = ConflictInfo(path=name, reason=conflict.reason, conflicts=conflict.conflicts)
            self.conflicts.append(info)
        except FileExistsError:
            self.conflicts.append(ConflictInfo(path=name, reason="something was made there meanwhile"))
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EISDIR):
                reason = "a folder on the way to it is a file or a link now, or a folder is in its place"
                self.conflicts.append(ConflictInfo(path=name, reason=reason))
            else:
                self.is_disk_full = error.errno in _FULL
                self.failed.append((name, _explained(error)))
        else:
            self.applied.append(name)

    def outcome(self) -> ApplyOutcome:
        """All of it, and the proposal with what is in place now."""
        numbers = [number for path in self.applied for number in self.numbers.get(path, ())]
        after = self.proposal.with_applied(
            [path for path in self.applied if path in self.whole], numbers, conflict=bool(self.conflicts)
        )
        return ApplyOutcome(
            applied=tuple(sorted(self.applied)),
            conflicts=tuple(sorted(self.conflicts, key=lambda info: info.path)),
            skipped=tuple(self.skipped),
            failed=tuple(sorted(self.failed)),
            proposal=after,
        )


def why_never(change: FileChange, workspace: str) -> str | None:
    """Why a change is not to be applied, whatever is named; None where it may be."""
    never = next((flag for flag in change.flags if flag.level == "never"), None)
    if never is not None:
        return f"never applied: {never.why}"
    for path in (change.path, change.old_path):
        if path is not None and (is_git_internal(path) or any(p in ("", ".", "..") for p in path.split("/"))):
            return "never applied: the path is git's own or does not lie in the workspace"
    if change.after is not None and change.after.data is None and change.after.link is None:
        return "never applied: it is not a file"
    link = change.after.link if change.after is not None else None
    if link is not None and leads_outside(change.path, link, workspace):
        return "never applied: the link would lead out of the workspace"
    return None


def _why_not_by_default(change: FileChange) -> str | None:
    held = next((flag for flag in change.flags if flag.level == "runs" or flag.code == "ignored"), None)
    return f"{held.why}; name the file to apply it" if held is not None else None


def _explained(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return f"{reason}: the file is as it was; make room and apply again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{reason}: the file is as it was; check who may write there"
    return f"{reason}: the file is as it was"


def _in_safe_order(changes: list[FileChange]) -> list[FileChange]:
    """Deletions last, so that a full disk never leaves less than there was; but before what needs their place.

    A file may take the place of a folder, or a folder that of a file, once what was there is deleted or moved away.
    """
    leaves = {change.old_path or change.path: change for change in changes if change.kind in _LEAVING}
    below: dict[str, list[str]] = {}
    for path in leaves:
        for folder in _folders_above(path):
            below.setdefault(folder, []).append(path)
    ordered: dict[str, FileChange] = {}
    started: set[str] = set()

    def place(change: FileChange) -> None:
        if change.path in started:
            return
        started.add(change.path)
        for path in (*_folders_above(change.path), *below.get(change.path, ())):
            if path in leaves:
                place(leaves[path])
        ordered[change.path] = change

    for change in sorted(changes, key=lambda change: change.kind is ChangeKind.DELETED):
        place(change)
    return list(ordered.values())


def _folders_above(path: str) -> list[str]:
    return [path[:at] for at, character in enumerate(path) if character == "/"]
