"""One model worker seen from outside: started, spoken to, and killed where it does not obey."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from agent.errors import (
    ContextOverflow,
    FrogError,
    ModelFileError,
    ModelQueryError,
    ModelUnavailable,
    ProtocolError,
)
from agent.ipc.exits import wait_for_exit
from agent.ipc.messages import check_hello, hello_params
from agent.ipc.peer import Peer, PeerError
from agent.model.death import count_oom_kills, describe_death
from agent.model.worker import HINT_MARK
from agent.types import JsonObject

HANDSHAKE_S = 60.0  # importing on a cold disk
STOP_S = 1.0
_TAIL_BYTES = 8192
COMMAND = "from agent.model.worker import main; main()"
_ERRORS: dict[str, type[FrogError]] = {
    kind.kind: kind for kind in (ContextOverflow, ModelFileError, ModelQueryError, ModelUnavailable)
}

OnNotification = Callable[[str, JsonObject], None]


class WorkerProcess:
    """A running worker. Make it with `start`; every method raises ModelUnavailable once the process is gone."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None and process.stdin is not None and process.stderr is not None
        self._process = process
        self.on_notification: OnNotification | None = None
        self._oom_kills_before = count_oom_kills()
        self._tail = bytearray()
        self._stderr = asyncio.create_task(self._keep_tail(process.stderr), name="stderr of the model worker")
        self._peer = Peer(process.stdout, process.stdin, name="model worker", on_notification=self._notified)

    @classmethod
    async def start(cls, command: str = COMMAND) -> WorkerProcess:
        """Start a worker in a folder that is nobody's project; `command` is Python. Raises ModelUnavailable."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LD_PRELOAD"))}
        environment["GGML_NO_BACKTRACE"] = "1"  # no debugger is started over an assertion, whose text is the last word
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-c",
                command,
                cwd="/",
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in a terminal is for the parent, which then stops the worker
            )
        except OSError as error:
            raise ModelUnavailable(f"the model worker cannot be started: {error}", "Install frog-lsp again.") from error
        worker = cls(process)
        try:
            check_hello(await worker.request("hello", hello_params(), timeout_s=HANDSHAKE_S))
        except BaseException:
            await worker.kill()
            raise
        return worker

    @property
    def is_alive(self) -> bool:
        """Whether a request may still be answered."""
        return self._process.returncode is None and not self._peer.is_closed

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def request(self, method: str, params: JsonObject | None = None, timeout_s: float | None = None) -> Any:
        """Ask and wait. The worker's own errors come as ours; its death as ModelUnavailable with its last words."""
        try:
            return await self._peer.request(method, params, timeout_s)
        except PeerError as error:
            kind = _ERRORS.get(error.kind, ModelUnavailable)
            message, _, hint = error.message.partition(HINT_MARK)
            if issubclass(kind, ModelUnavailable):
                message += self._last_words()
            raise kind(message, hint or "Run `frog-lsp doctor`.") from error
        except ProtocolError as error:
            raise await self._death(str(error)) from error
        except TimeoutError as error:
            await self.kill()
            raise ModelUnavailable(f"the model worker did not answer `{method}` in {timeout_s} s") from error

    async def stop_generating(self) -> None:
        """Stop what is going on; a worker that does not stop within a second is killed. Never raises."""
        try:
            await self._peer.request("abort", timeout_s=STOP_S)
        except (FrogError, TimeoutError):
            await self.kill()

    async def close(self) -> None:
        """End the process: its stdin ends, and it exits at once. Idempotent; never raises."""
        await self._peer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await wait_for_exit(self._process)
        await self.kill()

    async def kill(self) -> None:
        """Kill and reap. Idempotent; never raises."""
        if self._process.returncode is None:
            # Not by `Process.kill`: that may reap a child that has just died, and its exit code would be lost.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        await wait_for_exit(self._process)
        await self._peer.close()
        await asyncio.wait([self._stderr], timeout=STOP_S)
        self._stderr.cancel()

    def _notified(self, method: str, params: JsonObject) -> None:
        if self.on_notification is not None:
            self.on_notification(method, params)

    async def _keep_tail(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(4096):
            self._tail += data
            del self._tail[:-_TAIL_BYTES]

    async def _death(self, what: str) -> ModelUnavailable:
        await self.kill()
        is_out_of_memory = count_oom_kills() > self._oom_kills_before
        how, hint = describe_death(self._process.returncode or 0, self._last_lines(), is_out_of_memory)
        return ModelUnavailable(f"the model worker {how} ({what}){self._last_words()}", hint)

    def _last_words(self) -> str:
        lines = self._last_lines()
        return f"\n{chr(10).join(lines)}" if lines else ""

    def _last_lines(self) -> list[str]:
        lines = [line.strip() for line in self._tail.decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-8:]
