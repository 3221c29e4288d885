"""`frog-lsp tool`: tool calls as lines of JSON in, observations as lines of JSON out, in a jail."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, BinaryIO

from agent.changes.changeset import assemble, changes_json
from agent.changes.diff import patch
from agent.errors import ToolRunnerDied
from agent.jail.risk import flag
from agent.jail.session import open_session
from agent.jail.spec import JailSpec
from agent.tools.bundle import runner_bundle
from agent.tools.host import ToolHost
from agent.types import JsonObject, ToolCall
from agent.worktree.baseline import Baseline
from agent.worktree.collect import collect
from agent.worktree.ignore import ignore_rules
from agent.worktree.installed import installed_modules

OnNote = Callable[[str], None]

_LINES_AHEAD = 16


async def serve_tool_lines(
    spec: JailSpec, stdin: BinaryIO, stdout: BinaryIO, *, backend: str = "auto", on_note: OnNote = lambda _: None
) -> int:
    """Answer each line of `stdin` with one line, and its end with `{"changes", "patch"}`.

    The real workspace is not written. Where the runner died on the way each further call says so, and the last
    line holds what had been changed until then. Returns the exit code, 0. Raises WorkspaceError, UsageError,
    JailUnavailable, and ToolRunnerDied where the runner did not even start.
    """
    spec = spec.checked()
    with Baseline(spec.workspace, {}) as baseline:
        async with await open_session(spec, runner_bundle(), backend=backend) as session:
            for note in session.notes:
                on_note(note)
            host = ToolHost(session.reader, session.writer, on_touch=_remember(baseline), moved=session.moved)
            try:
                await host.start()
                async for line in _lines(stdin):
                    _print(stdout, {"observation": await _answer(host, line)})
            finally:
                await host.close()
            view = await session.stop()
            try:
                collected = await asyncio.to_thread(collect, view, baseline)
            finally:
                os.close(view.upper_fd)
    changes = assemble(collected.deltas, collected.notes)
    changes = flag(changes, spec.workspace, ignore_rules(spec.workspace), installed_modules(spec.workspace))
    for note in changes.notes:
        on_note(note)
    _print(stdout, {"changes": changes_json(changes), "patch": patch(changes)})
    return 0


def read_call(line: bytes) -> ToolCall:
    """The call in a line: `{"name", "arguments"}`, `{"tool", …}`, or the `{"function": {…}}` of OpenAI.

    Arguments may be a JSON text themselves; anything but an object counts as `{}`. Raises ValueError.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the line is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("the line is not a JSON object")
    call: JsonObject = value["function"] if isinstance(value.get("function"), dict) else value
    name = call.get("name", call.get("tool"))
    if not isinstance(name, str) or not name:
        raise ValueError("name is required")
    return ToolCall(name=name, arguments=_arguments(call.get("arguments", call.get("args"))))


def _arguments(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    return value if isinstance(value, dict) else {}


async def _answer(host: ToolHost, line: bytes) -> str:
    try:
        call = read_call(line)
    except ValueError as error:
        return f"ValueError: {error}"
    try:
        return (await host.execute(call)).text
    except ToolRunnerDied as error:
        return f"ToolRunnerDied: {error.message}"


def _remember(baseline: Baseline) -> Callable[[str], None]:
    """Keeps the base of a file by its workspace path; `path` is as the call has it."""

    def remember(path: str) -> None:
        if "\0" in path:
            return
        relative = os.path.relpath(os.path.join(baseline.workspace, path), baseline.workspace)
        if relative != "." and relative != ".." and not relative.startswith("../"):
            baseline.remember(relative)

    return remember


async def _lines(stdin: BinaryIO) -> AsyncIterator[bytes]:
    """The lines as they come. A thread of its own reads, since stdin may be a file, a pipe or a terminal."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(_LINES_AHEAD)

    def read() -> None:
        try:
            while line := stdin.readline():
                asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()
            asyncio.run_coroutine_threadsafe(queue.put(b""), loop).result()
        except (RuntimeError, asyncio.CancelledError):
            return  # the loop has ended: nobody wants the rest

    threading.Thread(target=read, name="lines of stdin", daemon=True).start()
    while line := await queue.get():
        yield line


def _print(stdout: BinaryIO, value: JsonObject) -> None:
    """One line, at once. ASCII only: names that are not UTF-8 survive, and no locale can break it."""
    stdout.write(json.dumps(value).encode("ascii") + b"\n")
    stdout.flush()
