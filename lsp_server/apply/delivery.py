"""Edits on their way to the client, and the texts that come back while they are."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from agent.types import FileChange
from lsp_server.apply.now import FolderNow, same_text
from lsp_server.apply.plan import TextPlan
from lsp_server.buffers import Buffer
from lsp_server.client import ANSWER_TIMEOUT_S, NoAnswerError
from lsp_server.edits import DocumentEdit, JsonObject, workspace_edit
from lsp_server.session import Session, read_file
from lsp_server.slices import Slices

OPEN_WAIT_S = 2.0
"""How long the change of an open document may take to come back."""
CLOSED_WAIT_S = 0.5
"""How long we look whether a client opens or saves a document that was closed."""
LEAST_ANSWER_S = 0.5
"""Also a client that did not answer an earlier edit is given so long for the next."""
MAX_HISTORY = 200
"""Texts of one document that are kept while an edit is on its way."""
ANSWER_GRACE_S = 0.5
"""How long a client may take to answer once its texts are as they should be; ALE never answers (measured)."""
LABEL = "FrogNano: apply"
_POLL_S = 0.02


@dataclass(slots=True)
class Letter:
    """The edit of one document. `shown` and `target` are texts as the client sees them."""

    change: FileChange
    uri: str
    path: str
    shown: str
    target: str
    target_data: bytes
    version: int | None
    is_open: bool
    edits: tuple[JsonObject, ...]
    is_new: bool = False
    history: list[str] = field(default_factory=list)
    """The texts that the document had since the edit was sent."""
    is_reached: bool = False

    def is_in(self, text: str) -> bool:
        """Whether a text of the document is the one that it shall have, line ends of the client's own kind aside."""
        if text == self.target:
            return True
        return same_text(text, self.target) and not same_text(self.shown, self.target)

    @classmethod
    def of(cls, change: FileChange, plan: TextPlan, edits: tuple[JsonObject, ...]) -> Letter:
        """The letter that a plan asks for."""
        now = plan.now
        return cls(
            *(change, now.uri, now.path, plan.shown, plan.target, plan.target_data, now.version, now.is_open, edits),
            is_new=plan.is_new,
        )


class Delivery:
    """Sends the edits of one command and looks what the client makes of them."""

    def __init__(self, session: Session, folder: FolderNow) -> None:
        self._session = session
        self._folder = folder
        # All edits of a command share the patience of the client that waits for it.
        self._end_s = asyncio.get_running_loop().time() + ANSWER_TIMEOUT_S

    async def send(self, edit: JsonObject, label: str = LABEL) -> str | None:
        """`workspace/applyEdit`: None when the client says true, else why not."""
        left_s = max(LEAST_ANSWER_S, self._end_s - asyncio.get_running_loop().time())
        try:
            answer = await self._session.client.request("workspace/applyEdit", {"label": label, "edit": edit}, left_s)
        except NoAnswerError as error:
            return str(error)
        if isinstance(answer, dict) and answer.get("applied") is True:
            return None
        reason = answer.get("failureReason") if isinstance(answer, dict) else None
        return f"the editor rejected the edit: {reason}" if reason else "the editor rejected the edit"

    async def send_texts(self, letters: Sequence[Letter]) -> str | None:
        """One edit for all. None when the client says that it applied it or has the texts, else why not."""
        documents = [DocumentEdit(letter.uri, letter.version, letter.edits) for letter in letters]
        with self.listening(letters):
            sending = asyncio.create_task(self.send(workspace_edit(documents, self._session.capabilities)))
            try:
                while not sending.done() and not all(letter.is_reached for letter in letters):
                    await asyncio.wait({sending}, timeout=_POLL_S)
                await asyncio.wait({sending}, timeout=ANSWER_GRACE_S)
                return sending.result() if sending.done() else None
            finally:
                sending.cancel()

    @contextlib.contextmanager
    def listening(self, letters: Sequence[Letter]) -> Iterator[None]:
        """Note each text that the documents get, even if the user types on at once."""
        by_path = {letter.path: letter for letter in letters}
        by_path |= {os.path.realpath(letter.path): letter for letter in letters}

        def listen(buffer: Buffer) -> None:
            letter = by_path.get(buffer.path or "")
            if letter is not None and len(letter.history) < MAX_HISTORY:
                letter.history.append(buffer.text)
                letter.is_reached = letter.is_reached or letter.is_in(buffer.text)

        self._session.buffers.listeners.add(listen)
        try:
            yield
        finally:
            self._session.buffers.listeners.discard(listen)

    async def watch(self, letters: Sequence[Letter], *, is_rejected: bool) -> None:
        """Wait until each text has been seen, or time is up."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        slices = Slices()
        with self.listening(letters):
            while loop.time() - began < (CLOSED_WAIT_S if is_rejected else OPEN_WAIT_S):
                for letter in letters:
                    letter.is_reached = letter.is_reached or self._has_arrived(letter)
                    await slices.rest()
                waiting = [letter for letter in letters if not letter.is_reached]
                is_late = loop.time() - began > CLOSED_WAIT_S
                if not waiting or (is_late and not any(self.buffer(letter) for letter in waiting)):
                    return
                await asyncio.sleep(_POLL_S)

    def buffer(self, letter: Letter) -> Buffer | None:
        """The open document that the letter is for."""
        return self._folder.buffer(letter.change.path)

    def _has_arrived(self, letter: Letter) -> bool:
        if (buffer := self.buffer(letter)) is not None:
            return letter.is_in(buffer.text)
        return read_file(letter.path) == letter.target_data


async def until(is_true: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for something that the client does outside the protocol; whether it came."""
    end = asyncio.get_running_loop().time() + timeout_s
    while not is_true():
        if asyncio.get_running_loop().time() > end:
            return False
        await asyncio.sleep(_POLL_S)
    return True
