"""What is to be done to each file of a proposal, given how it is now. Pure: nothing is sent, read or written.

Both `frog.apply` and the preview of `frog.review` ask here, so that the one does what the other said.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace

from agent.changes.changeset import printable
from agent.changes.merge import Conflict, merge
from agent.changes.renames import LostError
from agent.types import ChangeKind, FileChange
from lsp_server.apply.by_hand import chmod_command, delete_command, link_command, mode_note, rename_command
from lsp_server.apply.now import FileNow, same_text
from lsp_server.messages import FileOutcome
from lsp_server.texts import NotCarriedError, codec_of_file


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing is to be sent for this file; `detail` says why, or the command that does it by hand."""

    outcome: FileOutcome
    detail: str
    conflicts: tuple[Conflict, ...] = ()


@dataclass(frozen=True, slots=True)
class TextPlan:
    """The text that a document shall have, as the client sees texts. `is_new`: the file has to be made first."""

    now: FileNow
    shown: str
    target: str
    target_data: bytes
    is_new: bool = False
    is_merged: bool = False
    """Whether the file is not as the run saw it, so that both sides' edits are in `target`."""


@dataclass(frozen=True, slots=True)
class MovePlan:
    """A file to rename, or, without `new`, to delete."""

    old: FileNow
    new: FileNow | None = None


Plan = Settled | TextPlan | MovePlan


@dataclass(frozen=True, slots=True)
class Means:
    """What the client can do: edits at all, and which file operations. One that is not listed either fails or loses
    the file silently."""

    edits: bool
    operations: frozenset[str]

    def can(self, operation: str) -> bool:
        """Whether `create`, `rename` or `delete` may be asked for."""
        return self.edits and operation in self.operations


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of the time of the run."""

    unsaved: Container[str] | None = None
    """The files whose base was a buffer that was not as on disk; None where that is not known."""
    seems_at: Mapping[str, str] = field(default_factory=dict)
    """Where files that are gone may be now: a guess for a person."""
    unseen: Mapping[str, bytes | None] = field(default_factory=dict)
    """Files that the client said it edited while neither a document nor the disk showed it, and the disk then."""


def plan(change: FileChange, look: Callable[[str], FileNow], means: Means, past: Past) -> Plan:
    """What to do for one change. `look` gives the file of a path of the proposal, or raises LostError."""
    try:
        planned = _plan(change, look, means, past)
        if isinstance(planned, TextPlan) and _may_be_in(change, planned, past):
            # The same edit again would put its lines in twice, where the client holds the first one unsaved.
            return Settled("unconfirmed", "the editor says that it has this edit: open or save the file and try again")
    except LostError as error:
        return Settled("conflict", str(error))
    except NotCarriedError as error:
        return Settled("by-hand", str(error))
    place = past.seems_at.get(change.old_path or change.path)
    if place is not None and isinstance(planned, Settled) and planned.outcome == "conflict":
        return replace(planned, detail=f"{planned.detail}; it seems to be {printable(place)} now")
    return planned


def _plan(change: FileChange, look: Callable[[str], FileNow], means: Means, past: Past) -> Plan:
    now = look(change.path)
    if change.kind is ChangeKind.RENAMED:
        return _plan_rename(change, look(change.old_path or change.path), now, means)
    if change.kind is ChangeKind.DELETED:
        return _plan_delete(change, now, means)
    if change.kind is ChangeKind.MODE:
        return _plan_mode(change, now)
    if change.kind is ChangeKind.LINK:
        return _plan_link(change, now)
    is_new = change.kind is ChangeKind.CREATED
    was_clean = past.unsaved is not None and change.path not in past.unsaved
    made = _plan_new(change, now) if is_new else _plan_text(change, now, was_clean=was_clean)
    # Only now: what is in conflict, or in place, is no part of the patch for what is by hand.
    if isinstance(made, TextPlan) and not (means.can("create") if is_new else means.edits):
        what = "make files" if means.edits else "apply edits"
        return Settled("by-hand", f"the editor cannot {what}")
    return made


def _may_be_in(change: FileChange, planned: TextPlan, past: Past) -> bool:
    now = planned.now
    return change.path in past.unseen and not now.is_open and now.disk == past.unseen[change.path]


def _plan_text(change: FileChange, now: FileNow, *, was_clean: bool) -> Plan:
    assert change.after is not None
    if now.link is not None:
        return Settled("conflict", "it is a link now")
    ours = change.after.data
    base = change.before.data if change.before is not None else None
    if ours is None:
        raise NotCarriedError("special files cannot be edited")
    theirs, codec = now.content()
    if theirs is None:
        return Settled("conflict", "it is no plain file any more" if now.is_there else "the file was deleted meanwhile")
    if theirs == ours:
        return _in_place(change, now)
    if base is None or not change.base_known:
        return Settled("conflict", "the file changed during the run before its base was kept")
    if now.is_open and was_clean and theirs == base and now.disk not in (None, base):
        return Settled("conflict", "the file changed on disk under the editor: let it reload the file first")
    outcome = merge(base, theirs, ours)
    if outcome.data is None:
        lines = ", ".join(str(conflict.theirs_line) for conflict in outcome.conflicts)
        return Settled("conflict", f"the same lines changed meanwhile (line {lines})", outcome.conflicts)
    codec = codec or codec_of_file(theirs)
    shown = now.text if now.text is not None else codec.to_text(theirs)
    target = codec.to_text(outcome.data)
    if target == shown:
        return _in_place(change, now)
    return TextPlan(now, shown, target, outcome.data, is_merged=theirs != base)


def _plan_new(change: FileChange, now: FileNow) -> Plan:
    assert change.after is not None
    data = change.after.data
    if data is None:
        raise NotCarriedError("special files cannot be made by an edit")
    target = codec_of_file(data).to_text(data)
    if (now.text is not None and same_text(now.text, target)) or now.disk == data:
        return _in_place(change, now)
    if now.is_there or now.text:
        return Settled("conflict", "the file was made meanwhile, with another content")
    return TextPlan(now, "", target, data, is_new=True)


def _plan_mode(change: FileChange, now: FileNow) -> Settled:
    if _has_mode(change, now):
        return Settled("unchanged", "already as proposed")
    return Settled("by-hand", chmod_command(change, now.relative))


def _plan_link(change: FileChange, now: FileNow) -> Settled:
    if change.after is not None and change.after.link is not None and now.link == change.after.link:
        return Settled("unchanged", "already as proposed")
    return Settled("by-hand", link_command(change, now.relative))


def _plan_rename(change: FileChange, old: FileNow, new: FileNow, means: Means) -> Plan:
    if not old.is_there and change.after is not None and new.disk == change.after.data:
        return Settled("unchanged", "already renamed")
    if not _is_as_before(change, old):
        return Settled("conflict", f"{old.relative} changed meanwhile")
    if new.is_there:
        return Settled("conflict", f"{new.relative} is there already")
    if not means.can("rename"):
        return Settled("by-hand", rename_command(old.relative, new.relative))
    return MovePlan(old, new)


def _plan_delete(change: FileChange, now: FileNow, means: Means) -> Plan:
    if not now.is_there:
        return Settled("unchanged", "already gone")
    if not _is_as_before(change, now):
        return Settled("conflict", "the file changed meanwhile")
    if not means.can("delete"):
        return Settled("by-hand", delete_command(now.relative))
    return MovePlan(now)


def _in_place(change: FileChange, now: FileNow) -> Settled:
    note = "" if _has_mode(change, now) else mode_note(change, now.relative)
    return Settled("unchanged", "already as proposed" + (f"; {note}" if note else ""))


def _has_mode(change: FileChange, now: FileNow) -> bool:
    before, after = (state.mode if state is not None else 0 for state in (change.before, change.after))
    changed = (before ^ after) & 0o777
    return now.mode is not None and (now.mode ^ after) & changed == 0


def _is_as_before(change: FileChange, now: FileNow) -> bool:
    if change.before is not None and change.before.link is not None:
        return now.link == change.before.link
    try:
        theirs, _ = now.content()
    except NotCarriedError:
        return False
    return change.base_known and change.before is not None and theirs == change.before.data
