"""The runs of a connection and their progress, with runs that do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.types import (
    ChangeKind,
    ChangeSet,
    ExitReason,
    FileChange,
    FileState,
    Issue,
    JailInfo,
    Limits,
    ModelInfo,
    ModelSpec,
    Prefill,
    RunError,
    RunEvent,
    RunResult,
    RunSpec,
    RunStarted,
    StepStarted,
    ToolCall,
    ToolStarted,
    Usage,
)
from lsp_server.capabilities import resolve
from lsp_server.client import Client
from lsp_server.progress import ProgressTokens, RunProgress, describe
from lsp_server.runs import RunManager, RunRecord
from lsp_server.session import Session
from tests.e2e.lsp_client import FULL, to_uri

MODEL = ModelInfo(kind="scripted", name="m")
CHANGE = FileChange(path="a.py", kind=ChangeKind.CREATED, before=None, after=FileState(data=b"x\n"))


class Wire:
    """A client that answers each question with `answer`: a value, an exception, or nothing at all (Ellipsis)."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.sent: list[tuple[str, Any]] = []

    def ask(self, method: str, params: Any) -> asyncio.Future[Any]:
        self.sent.append((method, params))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        elif self.answer is not Ellipsis:
            future.set_result(self.answer)
        return future

    def notify(self, method: str, params: Any) -> None:
        self.sent.append((method, params))

    def kinds(self) -> list[str]:
        return [p["value"]["kind"] if m == "$/progress" else m for m, p in self.sent]


class Handle:
    def __init__(self, spec: RunSpec, on_event: Callable[[RunEvent], None]) -> None:
        self.spec = spec
        self.on_event = on_event
        self.end: asyncio.Future[RunResult] = asyncio.get_running_loop().create_future()
        self.is_running = False

    async def execute(self) -> RunResult:
        self.is_running = True
        return await self.end

    def cancel(self) -> None:
        self.finish(exit_reason=ExitReason.CANCELLED)

    def finish(self, **more: Any) -> None:
        values = {
            "run_id": self.spec.run_id,
            "exit_reason": ExitReason.AGENT,
            "final_message": "",
            "n_steps": 1,
            "usage": Usage(),
            "elapsed_s": 1.0,
            "model": MODEL,
            "jail": JailInfo(backend="none"),
            "changes": ChangeSet(),
            "patch": "",
        }
        if not self.end.done():
            self.end.set_result(RunResult(**values | more))


class Runs:
    """A manager whose runs are ended by the test."""

    def __init__(self, *folders: Path, wire: Wire | None = None, capabilities: Any = FULL) -> None:
        self.wire = wire or Wire()
        params = {"capabilities": capabilities, "workspaceFolders": [{"uri": to_uri(f), "name": "w"} for f in folders]}
        self.session = Session(Client(self.wire), resolve(params), params)
        self.handles: dict[str, Handle] = {}
        self.finished: list[RunRecord] = []
        self.is_closed = False
        self.tokens = ProgressTokens()
        self.manager = RunManager(self.session, self.tokens, self, self.finished.append)

    def make(self, spec: RunSpec, on_event: Callable[[RunEvent], None], idle_unload_s: float) -> Handle:
        self.handles[spec.run_id] = Handle(spec, on_event)
        return self.handles[spec.run_id]

    async def close(self) -> None:
        self.is_closed = True

    def start(self, name: str, folder: int = 0, kind: Any = "scripted") -> int:
        where = self.session.folders[folder]
        spec = RunSpec(run_id=name, workspace=where.path, issue=Issue(text=name), model=ModelSpec(kind=kind))
        return self.manager.start(spec, where, 600.0)[1]

    @property
    def states(self) -> list[str]:
        return [record.state for record in self.manager.records.values()]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


async def test_one_run_a_folder_in_order(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    assert [runs.start(name) for name in "abc"] == [0, 1, 2]
    await settle()
    assert runs.states == ["running", "queued", "queued"]
    runs.handles["a"].finish()
    await settle()
    assert runs.states == ["nothing", "running", "queued"]
    runs.handles["b"].finish(changes=ChangeSet(changes=(CHANGE,)))
    await settle()
    assert runs.states == ["nothing", "proposed", "running"]
    runs.handles["c"].finish(exit_reason=ExitReason.MODEL_UNAVAILABLE, error=RunError(kind="x", message="m"))
    await settle()
    assert runs.states == ["nothing", "proposed", "failed"]
    assert [record.run_id for record in runs.finished] == ["a", "b", "c"]
    row = runs.finished[1].row()
    assert (row["files"], row["exitReason"], row["title"]) == (["a.py"], "agent", "b")


async def test_folders_share_the_one_model_but_no_endpoint(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "one", tmp_path / "two")
    assert [runs.start("a", 0, "worker"), runs.start("b", 1, "worker")] == [0, 1]
    assert [runs.start("c", 1, "endpoint")] == [1], "behind the run of its own folder"
    await settle()
    assert runs.states == ["running", "queued", "queued"]
    runs.handles["a"].finish()
    await settle()
    assert runs.states == ["nothing", "running", "queued"]
    runs.handles["b"].finish()
    await settle()
    assert runs.states[2] == "running"
    assert runs.start("d", 0, "endpoint") == 0
    await settle()
    assert runs.states[3] == "running"
    await runs.manager.close(1.0)


async def test_cancel_queued_running_and_over(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    for name in "abc":
        runs.start(name)
    await settle()
    assert runs.manager.cancel("b") == ["b"]
    await settle()
    assert runs.states == ["running", "cancelled", "queued"]
    assert runs.manager.cancel("b") == []
    assert runs.manager.cancel() == ["a", "c"]
    await settle()
    assert runs.states == ["cancelled", "cancelled", "cancelled"]
    assert "c" not in runs.handles, "it never began"


async def test_close_ends_everything_once(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.start("a")
    await settle()
    await runs.manager.close(1.0)
    assert runs.states == ["cancelled"]
    assert runs.is_closed


async def test_a_run_that_breaks_is_failed_and_lets_the_next_through(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.start("a")
    runs.start("b")
    await settle()
    runs.handles["a"].end.set_exception(RuntimeError("broken"))
    await settle()
    assert runs.states == ["failed", "running"]
    await runs.manager.close(1.0)


# --- progress ---------------------------------------------------------------------------------------------------


def progress(wire: Wire, capabilities: Any = None) -> tuple[RunProgress, ProgressTokens, list[str]]:
    tokens, cancelled = ProgressTokens(), []
    known = resolve({"capabilities": FULL if capabilities is None else capabilities})
    made = RunProgress(Client(wire), known, tokens, "r", "title", lambda: cancelled.append("r"))
    return made, tokens, cancelled


async def test_progress_is_paired_and_words_are_those_of_the_steps() -> None:
    wire = Wire()
    shown, tokens, cancelled = progress(wire)
    await shown.begin("starting")
    limits = Limits(max_steps=9)
    shown.take(RunStarted(run_id="r", model=MODEL, jail=JailInfo(backend="b"), limits=limits))
    shown.take(StepStarted(step=4))
    shown.take(Prefill(step=4, done=1, total=2))
    shown.take(ToolStarted(step=4, call=ToolCall(name="Bash", arguments={"command": "pytest\n -q"})))
    assert tokens.cancel("frog-run-r")
    assert not tokens.cancel(5)
    shown.end("done")
    shown.end("twice")
    shown.report("late")
    assert cancelled == ["r"]
    assert not tokens.cancel("frog-run-r"), "a token means nothing after its end"
    assert wire.kinds() == ["window/workDoneProgress/create", "begin", "report", "report", "report", "end"]
    assert [p["value"]["message"] for m, p in wire.sent if m == "$/progress"] == [
        "starting",
        "m · jail: b",
        "step 4 of 9 · thinking",
        "step 4 of 9 · Bash: pytest -q",
        "done",
    ]
    assert all("percentage" not in p["value"] for m, p in wire.sent if m == "$/progress")


@pytest.mark.parametrize("answer", [RuntimeError("no"), None])
async def test_without_progress_it_is_logged(answer: Any) -> None:
    wire = Wire(answer)
    shown, _, _ = progress(wire, {} if answer is None else None)
    await shown.begin("starting")
    shown.take(StepStarted(step=1))
    shown.end("done")
    assert [m for m, _ in wire.sent if not m.endswith("create")] == ["window/logMessage"] * 3


async def test_a_run_that_ends_before_the_client_answers_begins_nothing() -> None:
    wire = Wire(Ellipsis)
    shown, _, _ = progress(wire)
    beginning = asyncio.create_task(shown.begin("starting"))
    await settle()
    shown.end("done")
    beginning.cancel()
    await asyncio.gather(beginning, return_exceptions=True)
    assert wire.kinds() == ["window/workDoneProgress/create"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (ToolCall(name="Read", arguments={"file_path": "a.py"}), "Read: a.py"),
        (ToolCall(name="Glob", arguments={}), "Glob"),
        (ToolCall(name="Bash", arguments={"command": "x" * 100}), "Bash: " + "x" * 59 + "…"),
        (ToolCall(name="Odd", arguments={"file_path": 5}), "Odd"),
    ],
)
def test_a_call_in_a_few_words(call: ToolCall, words: str) -> None:
    assert describe(call) == words
