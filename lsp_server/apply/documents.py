"""All texts of a proposal in one edit: sent, looked at, once more where somebody typed, mended where it went wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.types import FileChange
from lsp_server.apply.by_hand import mode_note
from lsp_server.apply.delivery import Delivery, Letter
from lsp_server.apply.now import FolderNow, is_there, same_text
from lsp_server.apply.outcomes import Outcomes
from lsp_server.apply.plan import Plan, Settled, TextPlan
from lsp_server.apply.prepared import Prepared
from lsp_server.edits import DocumentEdit, text_edits, workspace_edit
from lsp_server.session import Session
from lsp_server.slices import Slices
from lsp_server.stale import find_misapplied, mended

UNSEEN = "the editor says that it applied the edit, but the file is not open and not changed: open it and look"
N_ATTEMPTS = 2
"""Typing between our check and the client's answer is merged once more, then left to the person."""


class DocumentWriter:
    """Writes texts into documents. `plan` is what to do for a change now."""

    def __init__(
        self,
        session: Session,
        folder: FolderNow,
        plan: Callable[[FileChange], Plan],
        delivery: Delivery,
        outcomes: Outcomes,
    ) -> None:
        self._session = session
        self._folder = folder
        self._plan = plan
        self._delivery = delivery
        self._outcomes = outcomes

    async def write(self, made: list[Letter], modified: Sequence[FileChange]) -> None:
        """Fill the new files `made`, and change those that are there."""
        prepared = Prepared(self._folder, self._plan, self._session.capabilities.encoding)
        for attempt in range(1, N_ATTEMPTS + 1):
            await prepared.make(modified)
            # No await between looking at the buffers and sending: the edit is for exactly these versions.
            letters = [*self._refresh(made), *self._letters(modified, prepared)]
            if not letters:
                return
            reason = await self._delivery.send_texts(letters)
            await self._watch(letters, is_rejected=reason is not None)
            left = [letter for letter in letters if not letter.is_reached]
            again = self._stale(left, is_rejected=reason is not None) if attempt < N_ATTEMPTS else []
            over = [letter for letter in left if not any(letter is other for other in again)]
            for letter in over:
                self._judge(letter, reason)
            await self._mend([letter for letter in over if reason is None and not letter.is_new])
            if not again:
                return
            made = [letter for letter in again if letter.is_new]
            modified = [letter.change for letter in again if not letter.is_new]

    def _stale(self, left: Sequence[Letter], *, is_rejected: bool) -> list[Letter]:
        """What is to be sent once more, because somebody typed before the edit came.

        Neovim skips the first document of a stale edit and applies the others to the wrong lines: those are mended,
        it is sent again. Where anything else came of a document, a person ticked the edit in part.
        """
        if not any(self._has_moved(letter) for letter in left):
            return []
        if is_rejected:
            return list(left)
        skipped = [letter for letter in left if self._was_skipped(letter)]
        others = [letter for letter in left if not any(letter is other for other in skipped)]
        return skipped if all(self._misapplied(letter) for letter in others) else []

    def _letters(self, changes: Sequence[FileChange], prepared: Prepared) -> list[Letter]:
        letters: list[Letter] = []
        for change, ready in prepared.get(changes):
            if isinstance(ready.plan, TextPlan):
                letters.append(Letter.of(change, ready.plan, ready.edits))
            elif isinstance(ready.plan, Settled):
                self._outcomes.take(change, ready.plan)
        return letters

    def _refresh(self, made: Sequence[Letter]) -> list[Letter]:
        """New files with the version that the client gave them since; those that got a text meanwhile conflict."""
        left: list[Letter] = []
        for letter in made:
            now = self._folder.look(letter.change.path)
            if now.text not in (None, "", "\n", "\r\n") or now.disk:
                self._outcomes.settle(letter.change, "conflict", "somebody wrote into the new file meanwhile")
                continue
            letter.uri, letter.version = now.uri, now.version
            left.append(letter)
        return left

    async def _watch(self, letters: Sequence[Letter], *, is_rejected: bool) -> None:
        await self._delivery.watch(letters, is_rejected=is_rejected)
        slices = Slices()
        for letter in letters:
            await slices.rest()
            if letter.is_reached:
                now = self._folder.look(letter.change.path)
                notes = [mode_note(letter.change, now.relative)]
                if now.text is not None and now.text != letter.target and same_text(now.text, letter.target):
                    notes.append("with the line ends that the editor has there")
                self._outcomes.settle(letter.change, "applied", "; ".join(filter(None, notes)))

    # --- what came of it --------------------------------------------------------------------------------------

    def _has_moved(self, letter: Letter) -> bool:
        """Whether somebody typed before the edit came."""
        buffer = self._delivery.buffer(letter)
        return (
            buffer is not None and letter.is_open and buffer.version != letter.version and buffer.text != letter.shown
        )

    def _was_skipped(self, letter: Letter) -> bool:
        """For an edit "applied" whose text is not as it should be: whether nothing of it was put in.

        That is a stale edit that Neovim skipped, as opposed to one that a person ticked in part, whose choice is
        not to be overruled. Skipped means that every piece is still to be put in.
        """
        fresh = self._plan(letter.change) if self._has_moved(letter) else None
        if not isinstance(fresh, TextPlan):
            return False
        return self._pieces(fresh.shown, fresh.target) == self._pieces(letter.shown, letter.target)

    def _misapplied(self, letter: Letter) -> tuple[str, str] | None:
        """The texts before and after an edit that went to the wrong lines."""
        encoding = self._session.capabilities.encoding
        return find_misapplied(letter.shown, letter.edits, letter.history, encoding)

    def _pieces(self, shown: str, target: str) -> list[str]:
        return [edit["newText"] for edit in text_edits(shown, target, self._session.capabilities.encoding)]

    def _judge(self, letter: Letter, reason: str | None) -> None:
        buffer = self._delivery.buffer(letter)
        text = buffer.text if buffer is not None else None
        settle = self._outcomes.settle
        if reason is not None:
            settle(letter.change, "rejected", reason)
        elif text is None and not is_there(letter.path):
            settle(letter.change, "rejected", "the editor says that it made the file, but it did not")
        elif text is None:
            settle(letter.change, "unconfirmed", UNSEEN)
        elif same_text(text, letter.shown):
            settle(letter.change, "rejected", "the editor says that it applied the edit, but the text is the same")
        else:
            settle(letter.change, "mismatch", "the text in the editor is not what the edit gives: look at it")

    async def _mend(self, letters: Sequence[Letter]) -> None:
        """Put right what was applied to another text than it was made for."""
        mending: list[tuple[Letter, bool]] = []
        documents: list[DocumentEdit] = []
        encoding = self._session.capabilities.encoding
        for letter in letters:
            buffer = self._delivery.buffer(letter)
            found = self._misapplied(letter)
            made = mended(letter.shown, letter.target, *found, buffer.text) if found and buffer is not None else None
            if made is not None and buffer is not None:
                letter.target, is_in = made
                letter.shown, letter.is_reached, letter.history = buffer.text, False, []
                mending.append((letter, is_in))
                edits = text_edits(letter.shown, letter.target, encoding)
                documents.append(DocumentEdit(letter.uri, buffer.version, edits))
        if not mending:
            return
        chosen = [letter for letter, _ in mending]
        with self._delivery.listening(chosen):
            reason = await self._delivery.send(workspace_edit(documents, self._session.capabilities))
        await self._watch(chosen, is_rejected=reason is not None)
        for letter, is_in in mending:
            if not letter.is_reached:
                self._outcomes.settle(letter.change, "mismatch", "an edit went to other lines: undo it in the editor")
            elif not is_in:
                self._outcomes.settle(letter.change, "conflict", "the same lines were changed while the edit arrived")
