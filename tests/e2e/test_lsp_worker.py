"""The embedded model behind the server: one worker for all runs, cancelled within a second, replaced when it dies."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.lsp_client import LspClient, to_uri
from tests.e2e.lsp_session import session

pytestmark = [
    pytest.mark.jail,
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.usefixtures("require_jail", "require_model"),
]
DEMO = Path(__file__).parents[2] / "quant" / "tadpole" / "demo"


@pytest.fixture
def project(workspace: Path) -> Path:
    shutil.copytree(DEMO / "workspace", workspace, dirs_exist_ok=True)
    return workspace


def workers(client: LspClient) -> list[int]:
    found = []
    for process in psutil.Process(client.process.pid).children(recursive=True):
        try:
            if any("worker" in part for part in process.cmdline()):
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


async def until(is_true: Callable[[], Any], timeout_s: float = 90.0) -> float:
    begun = time.monotonic()
    while not is_true():
        assert time.monotonic() - begun < timeout_s, "it did not happen"
        await asyncio.sleep(0.02)
    return time.monotonic() - begun


async def start(client: LspClient, project: Path) -> str:
    argument = {"uri": to_uri(project / "README.md"), "issue": (DEMO / "ISSUE.md").read_text()}
    return str((await client.run("frog.fix", argument))["runId"])


def is_thinking(client: LspClient, run_id: str) -> bool:
    return any("thinking" in value["message"] for value in client.progress(f"frog-run-{run_id}"))


@pytest.mark.timeout(300)
async def test_one_worker_for_all_runs(tmp_path: Path, project: Path) -> None:
    options: dict[str, Any] = {"model": {}, "limits": {"maxSteps": 2}}
    async with session(tmp_path, project, options=options) as client:
        first = await start(client, project)
        row = await client.until_over(first, 120)
        assert row["exitReason"] in ("max_turns", "agent"), row
        kept = workers(client)
        assert len(kept) == 1, "the model stays loaded"
        second = await start(client, project)
        await client.until(lambda: is_thinking(client, second))
        begun = time.monotonic()
        await client.run("frog.cancel", {})
        assert (await client.until_over(second))["state"] == "cancelled"
        assert time.monotonic() - begun < 1.5
        assert workers(client) in (kept, [])
        third = await start(client, project)
        await client.until(lambda: is_thinking(client, third))
        for pid in workers(client):
            psutil.Process(pid).kill()
        row = await client.until_over(third)
        assert (row["state"], row["exitReason"]) == ("failed", "model_unavailable")
        fourth = await start(client, project)
        assert (await client.until_over(fourth, 120))["exitReason"] in ("max_turns", "agent")
        children = psutil.Process(client.process.pid).children(recursive=True)
        begun = time.monotonic()
        await client.request("shutdown")
        assert time.monotonic() - begun < 1.0
        client.notify("exit")
        assert await client.process.wait() == 0
        await until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in children), 10)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["shutdown", "kill", "terminate", "eof"])
async def test_the_worker_goes_with_the_server_in_the_middle_of_a_turn(tmp_path: Path, project: Path, how: str) -> None:
    async with session(tmp_path, project, options={"model": {}}) as client:
        run_id = await start(client, project)
        await client.until(lambda: is_thinking(client, run_id), 120)
        children = psutil.Process(client.process.pid).children(recursive=True)
        assert workers(client)
        begun = time.monotonic()
        if how == "shutdown":
            await client.request("shutdown")
            assert time.monotonic() - begun < 0.5
            client.notify("exit")
        elif how == "eof":
            assert client.process.stdin is not None
            client.process.stdin.close()
        else:
            client.process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        await asyncio.wait_for(client.process.wait(), 10)
        await until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in children), 10)
        print(f"{how}: nothing was left after {time.monotonic() - begun:.3f} s")
        assert time.monotonic() - begun < 2.0


@pytest.mark.timeout(300)
async def test_folders_wait_for_the_one_model(tmp_path: Path, project: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(project, other)
    async with session(tmp_path, project, options={"model": {}}) as client:
        event = {"added": [{"uri": to_uri(other), "name": "other"}], "removed": []}
        client.notify("workspace/didChangeWorkspaceFolders", {"event": event})
        first = await start(client, project)
        answer = await client.run("frog.fix", {"uri": to_uri(other / "README.md"), "issue": "x"})
        assert answer["place"] == 1
        row = await client.state_of(answer["runId"])
        assert (row["state"], row["place"], row["folder"]) == ("queued", 1, to_uri(other))
        await client.until(lambda: is_thinking(client, first), 120)
        assert [value["message"] for value in client.progress(f"frog-run-{answer['runId']}")] == ["queued, place 1"]
        await client.run("frog.cancel", {"runId": first})
        await client.until(lambda: is_thinking(client, answer["runId"]), 120)
        assert len(workers(client)) == 1
        assert await client.run("frog.cancel", {}) == {"cancelled": [answer["runId"]]}
        assert (await client.until_over(answer["runId"]))["state"] == "cancelled"
