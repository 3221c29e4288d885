"""Applying a proposal through the editor: read again, merge, one edit, and then look what is really there.

What a client answers is not evidence. VS Code says true for a partly ticked preview, Neovim for a stale edit that
it skipped; some never answer (all measured). The text that the client then has, or the disk, is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field

from agent.changes.changeset import printable
from agent.changes.merge import Conflict, merge
from agent.types import ChangeKind, FileChange
from lsp_server.buffers import Buffer
from lsp_server.client import ANSWER_TIMEOUT_S, NoAnswerError
from lsp_server.edits import (
    DocumentEdit,
    JsonObject,
    create_edit,
    delete_edit,
    first_text,
    rename_edit,
    text_edits,
    workspace_edit,
)
from lsp_server.messages import AppliedFile, FileOutcome
from lsp_server.session import Folder, Session, read_file
from lsp_server.stale import find_misapplied, mended
from lsp_server.texts import Codec, NotCarriedError, codec_of_buffer, codec_of_file

OPEN_WAIT_S = 2.0
"""How long the change of an open document may take to come back."""
CLOSED_WAIT_S = 0.5
"""How long we look whether a client opens or saves a document that was closed."""
CREATED_WAIT_S = 0.3
"""How long we look for what the client says that it made, moved or removed."""
LEAST_ANSWER_S = 0.5
"""Also a client that did not answer an earlier edit is given so long for the next."""
MAX_HISTORY = 200
"""Texts of one document that are kept while an edit is on its way."""
ANSWER_GRACE_S = 0.5
"""How long a client may take to answer once its texts are as they should be; ALE never answers (measured)."""
_POLL_S = 0.02


@dataclass(slots=True)
class _Plan:
    """One document as it is and as it shall be. `shown` and `target` are texts as the client sees them."""

    change: FileChange
    uri: str
    path: str
    shown: str
    target: str
    target_data: bytes
    version: int | None
    is_open: bool
    is_new: bool = False
    edits: tuple[JsonObject, ...] = ()
    history: list[str] = field(default_factory=list)
    """The texts that the document had since the edit was sent."""
    is_reached: bool = False


class Applier:
    """Applies changes of one folder."""

    def __init__(self, session: Session, folder: Folder, unsaved: Container[str] | None = None) -> None:
        """`unsaved`: the files whose base was a buffer that was not as on disk; None where that is not known."""
        self._session = session
        self._folder = folder
        self._unsaved = unsaved
        self._outcomes: dict[str, AppliedFile] = {}
        self._end_s = 0.0
        self.conflicts: dict[str, tuple[Conflict, ...]] = {}
        """By path, for the review."""

    async def apply(self, changes: Sequence[FileChange]) -> list[AppliedFile]:
        """Created files, then all texts in one edit. Other kinds are listed with what does them by hand.

        Deletes and renames: see `apply_structure`.
        """
        self._end_s = asyncio.get_running_loop().time() + ANSWER_TIMEOUT_S
        if not self._session.capabilities.apply_edit:
            for change in changes:
                self._by_hand(change, "the editor cannot apply edits")
            return self._in_order(changes)
        created = [change for change in changes if change.kind is ChangeKind.CREATED]
        modified = [change for change in changes if change.kind is ChangeKind.MODIFIED]
        for change in changes:
            if change.kind is ChangeKind.MODE and change.after is not None:
                self._by_hand(change, _chmod(change))
            elif change.kind is ChangeKind.LINK:
                self._by_hand(change, _link(change))
        made = [plan for change in created if (plan := await self._create(change)) is not None]
        await self._write_texts(made, modified)
        return self._in_order(changes)

    async def apply_structure(self, changes: Sequence[FileChange]) -> list[AppliedFile]:
        """Renames, then deletes, one edit each, where the client lists them."""
        self._end_s = asyncio.get_running_loop().time() + ANSWER_TIMEOUT_S
        for change in sorted(changes, key=lambda change: change.kind is ChangeKind.DELETED):
            if change.kind is ChangeKind.RENAMED:
                await self._rename(change)
            elif change.kind is ChangeKind.DELETED:
                await self._delete(change)
        return self._in_order(changes)

    def can(self, operation: str) -> bool:
        """Whether the client lists a file operation. One that does not either fails or loses the file silently."""
        capabilities = self._session.capabilities
        return capabilities.apply_edit and operation in capabilities.resource_operations

    # --- texts ------------------------------------------------------------------------------------------------

    async def _write_texts(self, made: list[_Plan], modified: Sequence[FileChange]) -> None:
        for attempt in (1, 2):
            # No await between reading the buffers and sending: the edit is for exactly these versions.
            plans = [*self._refresh(made), *self._plan_all(modified)]
            if not plans:
                return
            reason = await self._send_texts(plans)
            await self._watch(plans, is_rejected=reason is not None)
            left = [plan for plan in plans if not plan.is_reached]
            moved = [plan for plan in left if self._has_moved(plan)]
            if attempt == 1 and moved and (reason is not None or all(self._was_skipped(plan) for plan in left)):
                made = [plan for plan in left if plan.is_new]
                modified = [plan.change for plan in left if not plan.is_new]
                continue
            for plan in left:
                self._judge(plan, reason)
            await self._mend([plan for plan in left if reason is None and plan.is_open])
            return

    def _plan_all(self, changes: Sequence[FileChange]) -> list[_Plan]:
        plans: list[_Plan] = []
        for change in changes:
            try:
                if (plan := self._plan(change)) is not None:
                    plans.append(plan)
            except NotCarriedError as error:
                self._by_hand(change, str(error))
        return plans

    def _plan(self, change: FileChange) -> _Plan | None:
        """What to do to a modified file, None where it is settled. Raises NotCarriedError."""
        assert change.after is not None
        ours = change.after.data
        base = change.before.data if change.before is not None else None
        if ours is None:
            raise NotCarriedError("special files cannot be edited")
        path, buffer, disk, theirs, codec = self._now(change.path)
        if theirs is None:
            self._settle(change, "conflict", "the file was deleted meanwhile")
            return None
        if theirs == ours:
            self._settle(change, "unchanged", "already as proposed" + _mode_note(change))
            return None
        if base is None or not change.base_known:
            self._settle(change, "conflict", "the file changed during the run before its base was kept")
            return None
        was_clean = self._unsaved is not None and change.path not in self._unsaved
        if buffer is not None and was_clean and theirs == base and disk not in (None, base):
            self._settle(change, "conflict", "the file changed on disk under the editor: let it reload the file first")
            return None
        outcome = merge(base, theirs, ours)
        if outcome.data is None:
            self.conflicts[change.path] = outcome.conflicts
            lines = ", ".join(str(conflict.theirs_line) for conflict in outcome.conflicts)
            self._settle(change, "conflict", f"the same lines changed meanwhile (line {lines})")
            return None
        codec = codec or codec_of_file(theirs)
        shown = buffer.text if buffer is not None else codec.to_text(theirs)
        target = codec.to_text(outcome.data)
        if target == shown:
            self._settle(change, "unchanged", "already as proposed" + _mode_note(change))
            return None
        return _Plan(
            change,
            self._session.uri_for(self._folder, change.path),
            path,
            shown,
            target,
            outcome.data,
            buffer.version if buffer is not None else None,
            buffer is not None,
        )

    def _now(self, relative: str) -> tuple[str, Buffer | None, bytes | None, bytes | None, Codec | None]:
        """Path, buffer, disk and what counts as the file now: the buffer where there is one. Raises NotCarriedError."""
        path = os.path.join(self._folder.path, relative)
        buffer = self._session.buffer_of(self._folder, relative)
        disk = read_file(path)
        if buffer is None:
            return path, None, disk, disk, None
        codec = codec_of_buffer(buffer.text, disk)
        return path, buffer, disk, codec.to_bytes(buffer.text), codec

    async def _send_texts(self, plans: Sequence[_Plan]) -> str | None:
        """One edit for all. None when the client says that it applied it, else why not."""
        encoding = self._session.capabilities.encoding
        for plan in plans:
            is_first = plan.is_new and not plan.is_open
            plan.edits = first_text(plan.target) if is_first else text_edits(plan.shown, plan.target, encoding)
        documents = [DocumentEdit(plan.uri, plan.version, plan.edits) for plan in plans]
        with self._listening(plans):
            sending = asyncio.create_task(
                self._send(workspace_edit(documents, self._session.capabilities), "FrogNano: apply")
            )
            try:
                while not sending.done() and not all(plan.is_reached for plan in plans):
                    await asyncio.wait({sending}, timeout=_POLL_S)
                await asyncio.wait({sending}, timeout=ANSWER_GRACE_S)
                return sending.result() if sending.done() else None
            finally:
                sending.cancel()

    @contextlib.contextmanager
    def _listening(self, plans: Sequence[_Plan]) -> Iterator[None]:
        """Note each text that the documents get, even if the user types on at once."""
        by_path = {plan.path: plan for plan in plans} | {os.path.realpath(plan.path): plan for plan in plans}

        def listen(buffer: Buffer) -> None:
            plan = by_path.get(buffer.path or "")
            if plan is not None and len(plan.history) < MAX_HISTORY:
                plan.history.append(buffer.text)
                plan.is_reached = plan.is_reached or same_text(buffer.text, plan.target)

        self._session.buffers.listeners.add(listen)
        try:
            yield
        finally:
            self._session.buffers.listeners.discard(listen)

    async def _watch(self, plans: Sequence[_Plan], *, is_rejected: bool) -> None:
        """Wait until each text has been seen, or time is up."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        with self._listening(plans):
            while loop.time() - began < (CLOSED_WAIT_S if is_rejected else OPEN_WAIT_S):
                for plan in plans:
                    self._look(plan)
                waiting = [plan for plan in plans if not plan.is_reached]
                is_late = loop.time() - began > CLOSED_WAIT_S
                if not waiting or (is_late and not any(self._buffer(plan) for plan in waiting)):
                    return
                await asyncio.sleep(_POLL_S)

    def _buffer(self, plan: _Plan) -> Buffer | None:
        return self._session.buffer_of(self._folder, plan.change.path)

    def _look(self, plan: _Plan) -> None:
        if plan.is_reached:
            pass
        elif (buffer := self._buffer(plan)) is not None:
            if same_text(buffer.text, plan.target):
                plan.is_reached = True
        elif read_file(plan.path) == plan.target_data:
            plan.is_reached = True
        if plan.is_reached:
            self._settle(plan.change, "applied", _mode_note(plan.change).lstrip("; "))

    def _has_moved(self, plan: _Plan) -> bool:
        """Whether somebody typed before the edit came."""
        buffer = self._buffer(plan)
        return buffer is not None and plan.is_open and buffer.version != plan.version and buffer.text != plan.shown

    def _was_skipped(self, plan: _Plan) -> bool:
        """For an edit "applied" whose text is not as it should be: whether nothing of it was put in.

        That is a stale edit that Neovim skipped, as opposed to one that a person ticked in part, whose choice is
        not to be overruled. Skipped means that every piece is still to be put in.
        """
        try:
            fresh = self._plan(plan.change) if self._has_moved(plan) else None
        except NotCarriedError:
            return False
        return fresh is not None and self._pieces(fresh) == self._pieces(plan)

    def _pieces(self, plan: _Plan) -> list[str]:
        encoding = self._session.capabilities.encoding
        return [edit["newText"] for edit in text_edits(plan.shown, plan.target, encoding)]

    def _judge(self, plan: _Plan, reason: str | None) -> None:
        buffer = self._buffer(plan)
        text = buffer.text if buffer is not None else None
        if reason is not None:
            self._settle(plan.change, "rejected", reason)
        elif text is None and not is_there(plan.path):
            self._settle(plan.change, "rejected", "the editor says that it made the file, but it did not")
        elif text is None:
            self._settle(plan.change, "unconfirmed", "the editor says that it applied the edit; the file is not open")
        elif same_text(text, plan.shown):
            self._settle(plan.change, "rejected", "the editor says that it applied the edit, but the text is the same")
        else:
            self._settle(plan.change, "mismatch", "the text in the editor is not what the edit gives: look at it")

    async def _mend(self, plans: Sequence[_Plan]) -> None:
        """Put right what was applied to another text than it was made for."""
        mending: list[tuple[_Plan, bool]] = []
        documents: list[DocumentEdit] = []
        encoding = self._session.capabilities.encoding
        for plan in plans:
            buffer = self._buffer(plan)
            found = find_misapplied(plan.shown, plan.edits, plan.history, encoding)
            made = mended(plan.shown, plan.target, *found, buffer.text) if found and buffer is not None else None
            if made is not None and buffer is not None:
                plan.target, is_in = made
                plan.shown, plan.is_reached, plan.history = buffer.text, False, []
                mending.append((plan, is_in))
                documents.append(DocumentEdit(plan.uri, buffer.version, text_edits(plan.shown, plan.target, encoding)))
        if not mending:
            return
        chosen = [plan for plan, _ in mending]
        with self._listening(chosen):
            reason = await self._send(workspace_edit(documents, self._session.capabilities), "FrogNano: apply")
        await self._watch(chosen, is_rejected=reason is not None)
        for plan, is_in in mending:
            if not plan.is_reached:
                self._settle(plan.change, "mismatch", "an edit went to the wrong lines: undo it in the editor")
            elif not is_in:
                self._settle(plan.change, "conflict", "the same lines were changed while the edit arrived")

    # --- new files --------------------------------------------------------------------------------------------

    async def _create(self, change: FileChange) -> _Plan | None:
        """Make an empty file through the client; the plan of its text, None where it is settled."""
        assert change.after is not None
        data = change.after.data
        path = os.path.join(self._folder.path, change.path)
        uri = self._session.uri_for(self._folder, change.path)
        buffer = self._session.buffer_of(self._folder, change.path)
        try:
            if data is None:
                raise NotCarriedError("special files cannot be made by an edit")
            target = codec_of_file(data).to_text(data)
        except NotCarriedError as error:
            self._by_hand(change, str(error))
            return None
        if (buffer is not None and same_text(buffer.text, target)) or read_file(path) == data:
            self._settle(change, "unchanged", "already as proposed" + _mode_note(change))
            return None
        if is_there(path) or (buffer is not None and buffer.text):
            self._settle(change, "conflict", "the file was made meanwhile, with another content")
            return None
        if not self.can("create"):
            self._by_hand(change, "the editor cannot make files")
            return None
        reason = await self._send(create_edit(uri), f"FrogNano: create {change.path}")
        if reason is not None:
            self._settle(change, "rejected", reason)
            return None
        if not await _until(lambda: is_there(path), CREATED_WAIT_S):
            # With these options Neovim 0.11 makes a buffer and no file; without the folder it could not be saved.
            make_folder_of(path)
        if read_file(path):
            self._settle(change, "conflict", "somebody made the file meanwhile, with another content")
            return None
        if not target:
            self._settle(change, "applied", _mode_note(change).lstrip("; "))
            return None
        return _Plan(change, uri, path, "", target, data, None, is_open=False, is_new=True)

    def _refresh(self, made: Sequence[_Plan]) -> list[_Plan]:
        """New files with the version that the client gave them since; those that got a text meanwhile conflict."""
        left: list[_Plan] = []
        for plan in made:
            buffer = self._buffer(plan)
            now = buffer.text if buffer is not None else None
            if now not in (None, "", "\n", "\r\n") or read_file(plan.path):
                self._settle(plan.change, "conflict", "somebody wrote into the new file meanwhile")
                continue
            plan.uri = self._session.uri_for(self._folder, plan.change.path)
            plan.version = buffer.version if buffer is not None else None
            left.append(plan)
        return left

    # --- renames and deletes ----------------------------------------------------------------------------------

    async def _rename(self, change: FileChange) -> None:
        old = change.old_path or change.path
        old_path, new_path = (os.path.join(self._folder.path, name) for name in (old, change.path))
        if not self._is_as_before(change, old):
            self._settle(change, "conflict", f"{old} changed meanwhile")
        elif is_there(new_path):
            self._settle(change, "conflict", f"{change.path} is there already")
        elif not self.can("rename"):
            self._by_hand(change, f"git mv {shlex.quote(old)} {shlex.quote(change.path)}")
        else:
            uris = (self._session.uri_for(self._folder, name) for name in (old, change.path))
            reason = await self._send(rename_edit(*uris), f"FrogNano: rename {old}")
            if await _until(lambda: is_there(new_path) and not is_there(old_path), CREATED_WAIT_S):
                self._settle(change, "applied", "")
            else:
                self._settle(change, "rejected", reason or "the editor did not rename the file")

    async def _delete(self, change: FileChange) -> None:
        path = os.path.join(self._folder.path, change.path)
        if not is_there(path):
            self._settle(change, "unchanged", "already gone")
        elif not self._is_as_before(change, change.path):
            self._settle(change, "conflict", "the file changed meanwhile")
        elif not self.can("delete"):
            self._by_hand(change, f"rm {shlex.quote(change.path)}")
        else:
            uri = self._session.uri_for(self._folder, change.path)
            reason = await self._send(delete_edit(uri), f"FrogNano: delete {change.path}")
            if await _until(lambda: not is_there(path), CREATED_WAIT_S):
                self._settle(change, "applied", "")
            else:
                self._settle(change, "rejected", reason or "the editor did not delete the file")

    def _is_as_before(self, change: FileChange, relative: str) -> bool:
        path = os.path.join(self._folder.path, relative)
        if change.before is not None and change.before.link is not None:
            return os.path.islink(path) and os.readlink(path) == change.before.link
        try:
            theirs = self._now(relative)[3]
        except NotCarriedError:
            return False
        return change.base_known and change.before is not None and theirs == change.before.data

    # --- all --------------------------------------------------------------------------------------------------

    async def _send(self, edit: JsonObject, label: str) -> str | None:
        """`workspace/applyEdit`: None when the client says true, else why not."""
        # All edits of a command share the patience of the client that waits for it.
        left_s = max(LEAST_ANSWER_S, self._end_s - asyncio.get_running_loop().time())
        try:
            answer = await self._session.client.request("workspace/applyEdit", {"label": label, "edit": edit}, left_s)
        except NoAnswerError as error:
            return str(error)
        if isinstance(answer, dict) and answer.get("applied") is True:
            return None
        reason = answer.get("failureReason") if isinstance(answer, dict) else None
        return f"the editor rejected the edit: {reason}" if reason else "the editor rejected the edit"

    def _settle(self, change: FileChange, outcome: FileOutcome, detail: str) -> None:
        self._outcomes[change.path] = {"path": printable(change.path), "outcome": outcome, "detail": detail}

    def _by_hand(self, change: FileChange, detail: str) -> None:
        self._settle(change, "by-hand", detail)

    def _in_order(self, changes: Sequence[FileChange]) -> list[AppliedFile]:
        return [self._outcomes[change.path] for change in changes if change.path in self._outcomes]


def same_text(a: str, b: str) -> bool:
    r"""Whether two texts are the same but for the kind of their line ends, which some clients make uniform."""
    return a == b or a.replace("\r\n", "\n").replace("\r", "\n") == b.replace("\r\n", "\n").replace("\r", "\n")


def is_there(path: str) -> bool:
    """Whether the path names anything, a dangling link included."""
    return os.path.lexists(path)


def make_folder_of(path: str) -> None:
    """Make the folders above a new file; where that fails, saving it will say so."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)


async def _until(is_true: Callable[[], bool], timeout_s: float) -> bool:
    end = asyncio.get_running_loop().time() + timeout_s
    while not is_true():
        if asyncio.get_running_loop().time() > end:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def _mode_note(change: FileChange) -> str:
    before = change.before.mode & 0o111 if change.before is not None else 0
    after = change.after.mode & 0o111 if change.after is not None else 0
    return f"; by hand: {_chmod(change)}" if before != after else ""


def _chmod(change: FileChange) -> str:
    assert change.after is not None
    before = change.before.mode & 0o111 if change.before is not None else 0
    after = change.after.mode & 0o111
    if before != after:
        return f"chmod {'+x' if after else '-x'} {shlex.quote(change.path)}"
    return f"chmod {change.after.mode:o} {shlex.quote(change.path)}"


def _link(change: FileChange) -> str:
    if change.after is None or change.after.link is None:
        return "a link became a file: apply the patch"
    return f"ln -sfn {shlex.quote(change.after.link)} {shlex.quote(change.path)}"
