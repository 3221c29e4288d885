"""The whole flow through a real server, a real jail and a real HTTP endpoint: from a diagnostic to the text."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import Seal
from tests.e2e.lsp_client import LspClient, LspError, to_path, to_uri
from tests.e2e.lsp_session import session
from tests.openai_server import hang, turn

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

SOURCE = "def add(a, b):\n    return a - b\n"
EDIT = ("Edit", {"file_path": "sum.py", "old_string": "a - b", "new_string": "a + b"})
READ = ("Read", {"file_path": "sum.py"})
FIX = [turn(calls=[READ]), turn(calls=[EDIT]), turn(content="Fixed.")]
SLEEP = [turn(calls=[("Bash", {"command": "sleep 987 & sleep 986"})])]


@pytest.fixture
def project(workspace: Path) -> Path:
    (workspace / "sum.py").write_text(SOURCE)
    return workspace


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


async def until(is_true: Callable[[], Any], timeout_s: float = 60.0) -> float:
    """Wait for something outside; the seconds that it took."""
    begun = time.monotonic()
    while not is_true():
        assert time.monotonic() - begun < timeout_s, "it did not happen"
        await asyncio.sleep(0.02)
    return time.monotonic() - begun


def sleepers(pid: int) -> list[psutil.Process]:
    found = []
    for process in descendants(pid):
        try:
            if process.name() == "sleep":
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.slow
async def test_from_a_diagnostic_to_the_text(tmp_path: Path, project: Path, sealed: Seal) -> None:
    sealed(project)
    async with session(tmp_path, project, FIX, ask=True) as client:
        client.handlers["window/showMessageRequest"] = lambda params: {"title": "Review"}
        document = client.open(project / "sum.py")
        client.change(document, SOURCE + "# unsaved\n")
        span = {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 16}}
        problem = {"range": span, "message": "add subtracts", "source": "check", "code": "E1"}
        (action,) = await client.actions(document.uri, 1, [problem])
        command = action["command"]
        run = await client.request(
            "workspace/executeCommand", {"command": command["command"], "arguments": command["arguments"]}
        )
        assert run["place"] == 0
        row = await client.until_over(run["runId"])
        assert row == {
            "runId": run["runId"],
            "state": "proposed",
            "title": "Fix in sum.py, line 2: add subtracts",
            "folder": to_uri(project),
            "exitReason": "agent",
            "files": ["sum.py"],
        }
        kinds = [value["kind"] for value in client.progress()]
        assert (kinds[0], kinds[-1], kinds.count("begin"), kinds.count("end")) == ("begin", "end", 1, 1)
        words = [value["message"] for value in client.progress()]
        assert "step 2 of 150 · Edit: sum.py" in words
        token = next(params["token"] for method, params in client.requests if method.endswith("Progress/create"))
        assert isinstance(token, str)
        (question,) = [p for m, p in await client.until(lambda: asked(client)) if m == "window/showMessageRequest"]
        assert [item["title"] for item in question["actions"]] == ["Review", "Apply", "Discard"]
        shown = await client.until(lambda: [p for m, p in client.requests if m == "window/showDocument"])
        review = text_of(to_path(shown[0]["uri"]))
        assert "+    return a + b" in review
        assert " # unsaved" in review
        assert Path(to_path(shown[0]["uri"])).suffix == ".diff"
        result = await client.run("frog.apply", {"runId": run["runId"]})
        assert result["applied"] is True
        assert result["state"] == "applied"
        assert document.text == SOURCE.replace("a - b", "a + b") + "# unsaved\n"
        assert (await client.run("frog.apply", {"runId": run["runId"]}))["files"][0]["outcome"] == "unchanged"
        assert (await client.run("frog.discard", {"runId": run["runId"]}))["state"] == "discarded"
        with pytest.raises(LspError, match="discarded"):
            await client.run("frog.apply", {"runId": run["runId"]})


def text_of(path: str) -> str:
    return Path(path).read_text()


def asked(client: LspClient) -> list[Any]:
    return [(m, p) for m, p in client.requests if m == "window/showMessageRequest"]


@pytest.mark.slow
async def test_the_model_is_told_of_unsaved_text_and_new_buffers(tmp_path: Path, project: Path, sealed: Seal) -> None:
    sealed(project)
    script = [turn(calls=[("Bash", {"command": "cat sum.py new.py"})]), turn(content="Seen.")]
    client = LspClient()
    async with session(tmp_path, project, script, client=client):
        client.open(project / "sum.py", "unsaved text\n")
        client.open(project / "new.py", "only a buffer\n")
        run = await client.run("frog.fix", {"uri": to_uri(project / "new.py"), "issue": "look"})
        assert (await client.until_over(run["runId"]))["state"] == "nothing"
        log = await client.run("frog.log", {"runId": run["runId"]})
        assert "unsaved text\\nonly a buffer\\n" in text_of(log["path"])


@pytest.mark.slow
async def test_a_proposal_survives_a_restart(tmp_path: Path, project: Path) -> None:
    async with session(tmp_path, project, FIX) as client:
        run = await client.run("frog.fix", {"uri": to_uri(project / "sum.py"), "issue": "add is wrong"})
        await client.until_over(run["runId"])
    async with session(tmp_path, project) as client:
        (row,) = await client.run("frog.runs", {})
        assert (row["runId"], row["state"], row["files"]) == (run["runId"], "proposed", ["sum.py"])
        result = await client.run("frog.apply", {"runId": run["runId"]})
        assert result["applied"] is True
        assert (project / "sum.py").read_text() == SOURCE.replace("a - b", "a + b")
    async with session(tmp_path, project) as client:
        assert (await client.state_of(run["runId"]))["state"] == "applied"


@pytest.mark.slow
async def test_hunks_and_the_rest(tmp_path: Path, project: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(30))
    (project / "long.txt").write_text(text)
    calls = [
        ("Edit", {"file_path": "long.txt", "old_string": "line 2\n", "new_string": "LINE 2\n"}),
        ("Edit", {"file_path": "long.txt", "old_string": "line 25\n", "new_string": "LINE 25\n"}),
    ]
    async with session(tmp_path, project, [turn(calls=calls), turn(content="ok")]) as client:
        run = await client.run("frog.fix", {"uri": to_uri(project / "sum.py"), "issue": "shout"})
        await client.until_over(run["runId"])
        first = await client.run("frog.apply", {"runId": run["runId"], "hunks": [2]})
        assert first["state"] == "partly-applied"
        assert (project / "long.txt").read_text() == text.replace("line 25\n", "LINE 25\n")
        with pytest.raises(LspError) as error:
            await client.run("frog.apply", {"runId": run["runId"], "hunks": [3]})
        assert error.value.code == -32602
        rest = await client.run("frog.apply", {"runId": run["runId"]})
        assert rest["state"] == "applied"
        expected = text.replace("line 25\n", "LINE 25\n").replace("line 2\n", "LINE 2\n")
        assert (project / "long.txt").read_text() == expected


@pytest.mark.slow
@pytest.mark.parametrize("how", ["progress", "command", "all"])
async def test_cancel_stops_everything_within_a_second(tmp_path: Path, project: Path, sealed: Seal, how: str) -> None:
    sealed(project)
    async with session(tmp_path, project, SLEEP) as client:
        run = await client.run("frog.fix", {"uri": to_uri(project / "sum.py"), "issue": "x"})
        await until(lambda: len(sleepers(client.process.pid)) == 2)
        jailed = sleepers(client.process.pid)
        if how == "progress":
            token = next(p["token"] for m, p in client.notifications if m == "$/progress")
            client.notify("window/workDoneProgress/cancel", {"token": token})
        else:
            answer = await client.run("frog.cancel", {} if how == "all" else {"runId": run["runId"]})
            assert answer == {"cancelled": [run["runId"]]}
        assert await until(lambda: not any(p.is_running() for p in jailed), 10) < 1.0
        row = await client.until_over(run["runId"])
        assert (row["state"], row["exitReason"], row["files"]) == ("cancelled", "cancelled", [])
        kinds = [value["kind"] for value in client.progress()]
        assert (kinds.count("begin"), kinds.count("end"), kinds[-1]) == (1, 1, "end")
        assert asked(client) == []


@pytest.mark.slow
async def test_cancel_stops_generation(tmp_path: Path, project: Path) -> None:
    async with session(tmp_path, project, [hang(600)]) as client:
        run = await client.run("frog.fix", {"uri": to_uri(project / "sum.py"), "issue": "x"})
        await client.until(lambda: [v for v in client.progress() if "thinking" in v["message"]])
        begun = time.monotonic()
        await client.run("frog.cancel", {})
        assert (await client.until_over(run["runId"]))["state"] == "cancelled"
        assert time.monotonic() - begun < 1.0


@pytest.mark.slow
async def test_a_second_run_in_a_busy_folder_is_queued(tmp_path: Path, project: Path) -> None:
    script = [turn(calls=[("Bash", {"command": "sleep 986"})]), *FIX]
    async with session(tmp_path, project, script) as client:
        uri = to_uri(project / "sum.py")
        first = await client.run("frog.fix", {"uri": uri, "issue": "one"})
        second = await client.run("frog.fix", {"uri": uri, "issue": "two"})
        third = await client.run("frog.fix", {"uri": uri, "issue": "three"})
        assert [run["place"] for run in (first, second, third)] == [0, 1, 2]
        states = [row["state"] for row in await client.run("frog.runs")]
        assert states == ["running", "queued", "queued"]
        assert (await client.run("frog.cancel", {"runId": second["runId"]}))["cancelled"] == [second["runId"]]
        await until(lambda: sleepers(client.process.pid))
        await client.run("frog.cancel", {"runId": first["runId"]})
        assert (await client.until_over(third["runId"]))["state"] in ("proposed", "failed", "nothing")
        rows = {row["runId"]: row["state"] for row in await client.run("frog.runs")}
        assert (rows[first["runId"]], rows[second["runId"]]) == ("cancelled", "cancelled")


@pytest.mark.slow
async def test_a_model_that_cannot_be_had_fails_with_words(tmp_path: Path, project: Path) -> None:
    options = {"model": {"kind": "endpoint", "baseUrl": "http://127.0.0.1:9/v1", "name": "x"}}
    async with session(tmp_path, project, options=options) as client:
        run = await client.run("frog.fix", {"uri": to_uri(project / "sum.py"), "issue": "x"})
        assert (await client.until_over(run["runId"], 100))["state"] == "failed"
        shown = await client.until(lambda: [p for m, p in client.notifications if m == "window/showMessage"])
        assert shown[0]["type"] == 1
        assert "FrogNano could not work on" in shown[0]["message"]


@pytest.mark.slow
async def test_the_scripted_model_plays_a_file_of_turns(tmp_path: Path, project: Path) -> None:
    turns = [{"calls": [{"name": EDIT[0], "arguments": EDIT[1]}]}, {"content": "Done."}]
    (tmp_path / "turns.json").write_text(json.dumps(turns))
    options = {"model": {"kind": "scripted", "path": str(tmp_path / "turns.json")}}
    async with session(tmp_path, project, options=options) as client:
        run = await client.run("frog.fix", {"uri": to_uri(project / "sum.py"), "issue": "x"})
        assert (await client.until_over(run["runId"]))["state"] == "proposed"


@pytest.mark.slow
async def test_nothing_is_left_of_a_run_that_is_over(tmp_path: Path, project: Path) -> None:
    async with session(tmp_path, project, FIX) as client:
        run = await client.run("frog.fix", {"uri": to_uri(project / "sum.py"), "issue": "x"})
        await client.until_over(run["runId"])
        await until(lambda: not descendants(client.process.pid), 10)
