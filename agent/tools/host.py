"""The outside of the tools: sends calls to the jailed runner and believes nothing that comes back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agent.errors import FrogError, JailUnavailable, ProtocolError, ToolRunnerDied
from agent.ipc.messages import check_hello, hello_params, to_base64
from agent.ipc.peer import Peer, PeerError
from agent.tools.inputs import read_arguments
from agent.types import FileState, JsonObject, Observation, TestOutcome, ToolCall

OnTouch = Callable[[str], None]
"""Gets the path of a file, as the model wrote it, before a tool reads or changes it."""

_START_TIMEOUT_S = 30.0
_FILE_TIMEOUT_S = 120.0
_CANCEL_TIMEOUT_S = 0.5
_MARGIN_S = 15.0  # for ending the tree of a command that timed out (5 s at most), on a machine under load
_MAX_OBSERVATION_CHARS = 5_000_000  # a Glob of 1,000 of the longest names is the largest honest one
_SEED_BATCH_BYTES = 24 << 20
_PATHS = frozenset({"file_path", "path"})
_REMARK = (
    "\n[Commands run in a copy of {0} at {1}. What was installed with paths into {0} (editable installs, "
    "scripts of a virtual environment) does not see the copy: prefer `python -m`.]"
)
_HINT = "What had been changed until then is kept. Start the run again."


class ToolHost:
    """A ToolExecutor on the other end of a jail session's pipes. Make it inside a running event loop.

    `moved` is where the workspace and its copy are, for a jail where these differ: paths are understood both ways, and
    the first command's observation says so.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        on_touch: OnTouch | None = None,
        moved: tuple[str, str] | None = None,
    ) -> None:
        self._peer = Peer(reader, writer, name="tool runner")
        self._on_touch = on_touch
        self._moved = moved
        self._remark = moved and _REMARK.format(*moved)
        self.has_bash = False

    async def start(self) -> None:
        """Shake hands. Raises ToolRunnerDied."""
        answer = await self._request("hello", hello_params(), _START_TIMEOUT_S)
        try:
            self.has_bash = bool(check_hello(answer).get("bash"))
        except ProtocolError as error:
            raise ToolRunnerDied(error.message, error.hint) from error

    async def execute(self, call: ToolCall) -> Observation:
        """Run one call; its every trouble is an observation. Raises ToolRunnerDied when the runner is gone."""
        began = time.monotonic()
        text = await self._observe(call)
        return Observation(tool=call.name, text=text, duration_s=time.monotonic() - began, call_id=call.id)

    async def seed(self, states: Mapping[str, FileState | None]) -> None:
        """Put states of files into the private view (None: nothing is there), removals first.

        Special files cannot be made and are left out. Raises ToolRunnerDied, and FrogError for a state that
        cannot be had.
        """
        for batch in _batches(states):
            await self._request("seed", {"states": batch}, _FILE_TIMEOUT_S)

    async def run_tests(self, command: str, timeout_s: float) -> TestOutcome:
        """Run the test command in the private view. Raises JailUnavailable without Bash, and ToolRunnerDied."""
        if not self.has_bash:
            raise JailUnavailable("the tests cannot be run, since commands cannot be jailed on this machine")
        answer = await self._request("bash", {"command": command, "timeout_s": timeout_s}, timeout_s + _MARGIN_S)
        match answer:
            case {"exit_code": int() | None as exit_code, "output_tail": str() as tail}:
                return TestOutcome(exit_code=exit_code, tail=tail)
        raise await self._distrust("an outcome of the tests")

    async def cancel(self) -> None:
        """End the command that runs, at once. Never raises, and never waits for a runner that is stopped."""
        with contextlib.suppress(FrogError, TimeoutError):
            async with asyncio.timeout(_CANCEL_TIMEOUT_S):
                await self._peer.notify("cancel")

    async def close(self) -> None:
        """End the connection; the runner then ends itself. Idempotent."""
        await self._peer.close()

    async def _observe(self, call: ToolCall) -> str:
        try:
            arguments = read_arguments(call.name, call.arguments)
        except LookupError as error:
            return str(error)
        except ValueError as error:
            return f"ValueError: {error}"
        if self._on_touch is not None and "file_path" in arguments:
            self._on_touch(_moved(arguments["file_path"], self._moved and self._moved[::-1]))
        for name in _PATHS & arguments.keys():
            arguments[name] = _moved(arguments[name], self._moved)
        timeout_s = arguments["timeout"] + _MARGIN_S if call.name == "Bash" else _FILE_TIMEOUT_S
        try:
            answer = await self._request("call", {"name": call.name, "arguments": arguments}, timeout_s)
        except ToolRunnerDied:
            raise
        except FrogError as error:  # the runner is there, but did not take this call
            return f"ValueError: {error.message}"
        match answer:
            case {"observation": str() as text} if len(text) <= _MAX_OBSERVATION_CHARS:
                return text + self._remark_once(call.name)
        raise await self._distrust("an observation")

    def _remark_once(self, tool: str) -> str:
        if tool != "Bash" or not self._remark or not self.has_bash:
            return ""
        remark, self._remark = self._remark, None
        return remark

    async def _request(self, method: str, params: JsonObject, timeout_s: float) -> Any:
        try:
            return await self._peer.request(method, params, timeout_s)
        except TimeoutError as error:
            await self._peer.close()
            raise ToolRunnerDied(f"the tool runner did not answer within {timeout_s:.0f} s", _HINT) from error
        except ProtocolError as error:
            if self._peer.is_closed:
                raise ToolRunnerDied(error.message, error.hint or _HINT) from error
            raise
        except PeerError as error:
            raise FrogError(f"{error.kind}: {error.message}") from error
        except asyncio.CancelledError:
            await self.cancel()
            raise

    async def _distrust(self, what: str) -> ToolRunnerDied:
        await self._peer.close()
        return ToolRunnerDied(f"the tool runner sent what is not {what}", _HINT)


def _moved(path: str, moved: tuple[str, str] | None) -> str:
    """An absolute path below the first folder as the same one below the second."""
    if moved is None or not (path == moved[0] or path.startswith(f"{moved[0]}/")):
        return path
    return moved[1] + path[len(moved[0]) :]


def _batches(states: Mapping[str, FileState | None]) -> Iterator[list[JsonObject]]:
    """The states as messages below the cap of a frame."""
    batch: list[JsonObject] = []
    n_bytes = 0
    for path, state in sorted(states.items(), key=lambda item: item[1] is not None):
        if state is not None and state.data is None and state.link is None:
            continue
        data = state.data if state is not None else None
        size = len(data or b"") + len(path)
        if batch and n_bytes + size > _SEED_BATCH_BYTES:
            yield batch
            batch, n_bytes = [], 0
        batch.append(
            {
                "path": path,
                "data_b64": None if data is None else to_base64(data),
                "mode": None if state is None else state.mode,
                "link": None if state is None else state.link,
            }
        )
        n_bytes += size
    if batch:
        yield batch
