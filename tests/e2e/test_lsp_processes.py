"""However a server ends, nothing is left of it: real processes, found by a mark in their environment or command.

The mark also finds what has left the tree of the server: a daemon that was started in the jail.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import Seal
from tests.e2e.lsp_client import NEVER, LspClient, to_uri
from tests.e2e.lsp_session import session
from tests.openai_server import Item, hang, turn

pytestmark = [pytest.mark.jail, pytest.mark.slow, pytest.mark.usefixtures("require_jail")]

ANSWER_S = 0.5
GONE_S = 2.0
"""For the kernel and init to reap what was killed, on a machine under load."""


@pytest.fixture
def mark() -> str:
    return str(uuid.uuid4().int)[:15]


@pytest.fixture
def project(workspace: Path, sealed: Seal) -> Path:
    (workspace / "sum.py").write_text("def add(a, b):\n    return a - b\n")
    return sealed(workspace)


@pytest.fixture
async def editor() -> AsyncIterator[asyncio.subprocess.Process]:
    """The process that the server is told is its editor."""
    process = await asyncio.create_subprocess_exec("sleep", "600")
    yield process
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def marked(mark: str) -> set[int]:
    """The processes that are alive and carry the mark, this one apart."""
    found: set[int] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            text = Path(f"/proc/{process.pid}/cmdline").read_bytes() + Path(f"/proc/{process.pid}/environ").read_bytes()
            if mark.encode() in text and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
    return found - {os.getpid()}


def sleepers(mark: str) -> list[str]:
    names: list[str] = []
    for pid in marked(mark):
        with contextlib.suppress(psutil.Error):
            names += [name] if (name := psutil.Process(pid).name()) == "sleep" else []
    return names


async def until(is_true: Callable[[], Any], timeout_s: float) -> float:
    begun = time.monotonic()
    while not is_true():
        assert time.monotonic() - begun < timeout_s, "it did not happen"
        await asyncio.sleep(0.02)
    return time.monotonic() - begun


@contextlib.asynccontextmanager
async def busy(
    tmp_path: Path, project: Path, mark: str, editor: asyncio.subprocess.Process, script: list[Item] | None = None
) -> AsyncIterator[LspClient]:
    """A server with a run in the jail, which has a daemon, and one that waits for it."""
    client = LspClient()
    script = script or [turn(calls=[("Bash", {"command": f"setsid -f sleep 900.{mark}; sleep 901.{mark}"})])]
    async with session(tmp_path, project, script, client=client, env={"FROG_MARK": mark}, processId=editor.pid):
        for issue in ("one", "two"):
            await client.run("frog.fix", {"uri": to_uri(project / "sum.py"), "issue": issue})
        yield client


async def end(client: LspClient, editor: asyncio.subprocess.Process, how: str, answer_s: float = ANSWER_S) -> None:
    """End the server in one way and check what it says last."""
    assert client.process.stdin is not None
    if how == "shutdown":
        begun = time.monotonic()
        assert await client.request("shutdown") is None
        answered_s = time.monotonic() - begun
        client.notify("exit")
        assert await asyncio.wait_for(client.process.wait(), 10) == 0
        print(f"shutdown was answered after {answered_s:.3f} s")
        assert answered_s < answer_s
    elif how == "exit":
        client.notify("exit")
        assert await asyncio.wait_for(client.process.wait(), 10) == 1
    elif how == "eof":
        client.process.stdin.close()
        assert await asyncio.wait_for(client.process.wait(), 10) == 1
    elif how == "terminate":
        client.process.terminate()
        assert await asyncio.wait_for(client.process.wait(), 10) == 1
    elif how == "editor":
        editor.kill()
        await editor.wait()
        assert await asyncio.wait_for(client.process.wait(), 10) == 1
    else:
        client.process.kill()
        await client.process.wait()


@pytest.mark.parametrize("how", ["shutdown", "exit", "eof", "terminate", "editor", "kill"])
async def test_nothing_is_left_of_a_run_in_the_jail(
    tmp_path: Path, project: Path, mark: str, editor: asyncio.subprocess.Process, how: str
) -> None:
    async with busy(tmp_path, project, mark, editor) as client:
        await until(lambda: sleepers(mark) == ["sleep", "sleep"], 60)
        children = psutil.Process(client.process.pid).children(recursive=True)
        assert children
        begun = time.monotonic()
        await end(client, editor, how)
        await until(lambda: not marked(mark), GONE_S)
        await until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in children), GONE_S)
        print(f"{how}: nothing was left after {time.monotonic() - begun:.3f} s")
        assert time.monotonic() - begun < GONE_S


async def test_shutdown_while_the_model_does_not_answer_and_the_editor_neither(
    tmp_path: Path, project: Path, mark: str, editor: asyncio.subprocess.Process
) -> None:
    async with busy(tmp_path, project, mark, editor, [hang(600)]) as client:
        client.handlers["client/registerCapability"] = lambda params: NEVER
        client.handlers["window/workDoneProgress/create"] = lambda params: NEVER
        await client.run("frog.fix", {"uri": to_uri(project / "sum.py"), "issue": "three"})
        await client.until(lambda: any("thinking" in value["message"] for value in client.progress()))
        await end(client, editor, "shutdown")
        await until(lambda: not marked(mark), GONE_S)


async def test_shutdown_as_soon_as_a_run_was_asked_for(
    tmp_path: Path, project: Path, mark: str, editor: asyncio.subprocess.Process
) -> None:
    """While the agent is being loaded on a thread, and the jail is being built."""
    for delay_s in (0.0, 0.3, 1.0):
        async with busy(tmp_path, project, mark, editor) as client:
            await asyncio.sleep(delay_s)
            await end(client, editor, "shutdown", answer_s=1.5)  # Python's one lock is the import's at times
            await until(lambda: not marked(mark), GONE_S)


async def test_watching_does_not_keep_the_server(
    tmp_path: Path, project: Path, mark: str, editor: asyncio.subprocess.Process
) -> None:
    script = [turn(calls=[("Read", {"file_path": "sum.py"})]), hang(600)]
    async with busy(tmp_path, project, mark, editor, script) as client:
        await client.until(lambda: any("step 2" in value["message"] for value in client.progress()))
        await until(lambda: is_watching(client.process.pid), 20)
        await end(client, editor, "shutdown")
        await until(lambda: not marked(mark), GONE_S)


def is_watching(pid: int) -> bool:
    """Whether the process holds an inotify instance with a watch."""
    return any("inotify wd:" in text_of(path) for path in Path(f"/proc/{pid}/fdinfo").iterdir())


def text_of(path: Path) -> str:
    """What a descriptor is; nothing where it was closed since it was listed."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
