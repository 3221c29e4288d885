"""The progress of a run in the editor: create (awaited), begin, report, end; always paired."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from agent.types import (
    Limits,
    Note,
    Prefill,
    RunEvent,
    RunStarted,
    StepStarted,
    TestsFinished,
    TextDelta,
    ToolCall,
    ToolStarted,
)
from lsp_server.capabilities import Capabilities
from lsp_server.client import Client, NoAnswerError

logger = logging.getLogger(__name__)

MIN_INTERVAL_S = 0.1
MAX_DETAIL = 60
_SHOWN_ARGUMENT = {"Read": "file_path", "Write": "file_path", "Edit": "file_path", "Glob": "pattern", "Bash": "command"}


class ProgressTokens:
    """Which progress token belongs to which cancel. Shared by a connection."""

    def __init__(self) -> None:
        self._cancels: dict[str, Callable[[], None]] = {}

    def add(self, token: str, cancel: Callable[[], None]) -> None:
        """From now on the client can cancel by this token."""
        self._cancels[token] = cancel

    def remove(self, token: str) -> None:
        """After `end` a token means nothing."""
        self._cancels.pop(token, None)

    def cancel(self, token: object) -> bool:
        """`window/workDoneProgress/cancel`; whether the token was known."""
        cancel = self._cancels.get(token) if isinstance(token, str) else None
        if cancel is not None:
            cancel()
        return cancel is not None


class RunProgress:
    """Shows one run. Where the client has no progress, what happens goes to its log."""

    def __init__(
        self,
        client: Client,
        capabilities: Capabilities,
        tokens: ProgressTokens,
        run_id: str,
        title: str,
        cancel: Callable[[], None],
    ) -> None:
        self._client = client
        self._supported = capabilities.work_done_progress
        self._tokens = tokens
        self._token = f"frog-run-{run_id}"  # a string: numbers can collide with the client's own
        self._title = title
        self._cancel = cancel
        self._begun = False
        self._ended = False
        self._limits = Limits()
        self._step = 0
        self._sent_at = 0.0
        self._last = ""

    async def begin(self, message: str) -> None:
        """Create the token, waiting for the client, then begin."""
        if self._supported:
            try:
                await self._client.request("window/workDoneProgress/create", {"token": self._token})
            except NoAnswerError as error:
                logger.info("%s", error)
                self._supported = False
        if not self._supported:
            self._client.log(f"{self._title}: {message}")
            return
        if self._ended:
            return
        self._tokens.add(self._token, self._cancel)
        self._begun = True
        self._send({"kind": "begin", "title": self._title, "cancellable": True, "message": message})

    def take(self, event: RunEvent) -> None:
        """Show what an event says, if it says something."""
        if isinstance(event, RunStarted):
            self._limits = event.limits
        elif isinstance(event, StepStarted):
            self._step = event.step
        text = self._text(event)
        if text is not None:
            self.report(text, force=not isinstance(event, Prefill | TextDelta))

    def report(self, message: str, *, force: bool = True) -> None:
        """Show a message; without `force` at most ten a second."""
        now = time.monotonic()
        if message == self._last or self._ended or (not force and now - self._sent_at < MIN_INTERVAL_S):
            return
        self._last, self._sent_at = message, now
        if self._begun:
            self._send({"kind": "report", "cancellable": True, "message": message})
        elif not self._supported and force:
            self._client.log(f"{self._title}: {message}")

    def end(self, message: str) -> None:
        """End it, once."""
        if self._ended:
            return
        self._ended = True
        if self._begun:
            self._send({"kind": "end", "message": message})
        elif not self._supported:
            self._client.log(f"{self._title}: {message}")
        self._tokens.remove(self._token)

    def _send(self, value: dict[str, object]) -> None:
        self._client.notify("$/progress", {"token": self._token, "value": value})

    def _text(self, event: RunEvent) -> str | None:
        if isinstance(event, RunStarted):
            return f"{event.model.name} · jail: {event.jail.backend}"
        if isinstance(event, Note):
            return event.text
        if isinstance(event, TestsFinished):
            code = event.outcome.exit_code
            return f"tests {event.phase}: {'timed out' if code is None else f'exit code {code}'}"
        where = f"step {self._step} of {self._limits.max_steps}"
        if isinstance(event, StepStarted):
            return f"{where} · thinking"
        if isinstance(event, ToolStarted):
            return f"{where} · {describe(event.call)}"
        if isinstance(event, Prefill) and event.total:
            return f"{where} · reading {event.done} of {event.total} tokens"
        return None


def describe(call: ToolCall) -> str:
    """A tool call in a few words: `Bash: pytest -q`."""
    argument = call.arguments.get(_SHOWN_ARGUMENT.get(call.name, ""))
    detail = " ".join(argument.split()) if isinstance(argument, str) else ""
    if len(detail) > MAX_DETAIL:
        detail = detail[: MAX_DETAIL - 1] + "…"
    return f"{call.name}: {detail}" if detail else call.name


async def cancel_and_wait(task: asyncio.Task[object]) -> None:
    """Cancel a task and wait until it is over, whatever it raises."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task
