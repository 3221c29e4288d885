"""Whole runs in the real jail, with a model whose turns are written here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.errors import ModelUnavailable
from agent.run import Run
from agent.trajectory import read_trajectory
from agent.types import (
    ChangeKind,
    ExitReason,
    Issue,
    JailSettings,
    Limits,
    ModelInfo,
    ModelSpec,
    RunEvent,
    RunFinished,
    RunResult,
    RunSpec,
    RunStarted,
    TestsFinished,
    Turn,
)
from tests.conftest import Seal
from tests.e2e.turns import Turns, bash, call, edit, read, turn, write
from tests.frog import is_alive, name_of
from tests.support import workspace_hash

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE", "CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))


@pytest.fixture
def project(workspace: Path) -> Path:
    (workspace / "app").mkdir()
    (workspace / "app" / "sum.py").write_text("def add(a, b):\n    return a - b\n")
    (workspace / "check.py").write_text("from app.sum import add\nassert add(1, 2) == 3\n")
    (workspace / "old.txt").write_text("old\n")
    (workspace / "blob.bin").write_bytes(bytes(range(256)) * 4)
    return workspace


FIX = edit("app/sum.py", "a - b", "a + b")


async def fix(
    path: Path, *items: Any, on_event: Callable[[RunEvent], None] | None = None, **spec: Any
) -> tuple[RunResult, Turns, list[RunEvent]]:
    model, events = Turns(*items), []

    def take(event: RunEvent) -> None:
        events.append(event)
        if on_event is not None:
            on_event(event)

    values = {"run_id": f"r{time.monotonic_ns()}", "workspace": str(path), "issue": Issue(text="add is wrong")} | spec
    return await Run(RunSpec(**values), take, model=model).execute(), model, events


def git(path: Path, *arguments: str, stdin: str = "") -> None:
    subprocess.run(["git", *arguments], input=stdin.encode(), cwd=path, check=True)


def cut(path: Path, n_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:-n_bytes])


def kinds(result: RunResult) -> dict[str, ChangeKind]:
    return {change.path: change.kind for change in result.changes.changes}


async def test_a_fix_is_a_checked_proposal(project: Path, sealed: Seal) -> None:
    sealed(project)
    result, model, events = await fix(
        project, turn(read("app/sum.py")), turn(FIX), turn(content="Fixed."), test_command="python3 check.py"
    )
    assert result.error is None
    assert (result.exit_reason, result.final_message, result.n_steps) == (ExitReason.AGENT, "Fixed.", 3)
    assert kinds(result) == {"app/sum.py": ChangeKind.MODIFIED}
    assert result.tests_before is not None
    assert result.tests_after is not None
    assert (result.tests_before.exit_code, result.tests_after.exit_code) == (1, 0)
    assert [event.phase for event in events if isinstance(event, TestsFinished)] == ["before", "after"]
    assert model.seen[1][0].text == "app/sum.py\n1. def add(a, b):\n2.     return a - b"
    assert model.begun[0][1] == "add is wrong"
    assert str(project) in model.begun[0][0]
    assert [tool["function"]["name"] for tool in model.tools] == ["Read", "Write", "Edit", "Glob", "Bash"]
    assert not model.is_closed, "a model that is handed in belongs to the caller"
    assert isinstance(events[-1], RunFinished)
    git(project, "apply", "--check", "-", stdin=result.patch)
    assert result.trajectory is not None
    kept = read_trajectory(result.trajectory)
    assert kept.outcome is not None
    assert kept.outcome["output_patch"] == result.patch
    assert len(kept.steps) == 3
    assert kept.header["workspace_hash"]


async def test_without_a_test_command_it_says_not_checked(project: Path, sealed: Seal) -> None:
    sealed(project)
    result, *_ = await fix(project, turn(FIX), turn())
    assert (result.tests_before, result.tests_after) == (None, None)
    assert any("not checked" in note for note in result.notes)


async def test_every_kind_of_change(project: Path, sealed: Seal) -> None:
    sealed(project)
    command = "mv old.txt new.txt; rm blob.bin; chmod +x check.py; printf '\\0\\1' > made.bin; ln -s check.py link"
    result, *_ = await fix(project, turn(bash(command)), turn(write("deep/er/x.py", "x = 1\n")), turn())
    assert kinds(result) == {
        "blob.bin": ChangeKind.DELETED,
        "check.py": ChangeKind.MODE,
        "deep/er/x.py": ChangeKind.CREATED,
        "link": ChangeKind.LINK,
        "made.bin": ChangeKind.CREATED,
        "new.txt": ChangeKind.RENAMED,
    }
    assert [change.path for change in result.changes.changes] == sorted(kinds(result))


async def test_nothing_changed_is_no_proposal(project: Path, sealed: Seal) -> None:
    sealed(project)
    result, *_ = await fix(project, turn(bash("touch old.txt; python3 -m compileall -q app")), turn(content="Nothing."))
    assert (result.changes.changes, result.patch) == ((), "")
    assert result.changes.n_generated > 0


async def test_many_calls_in_one_turn(project: Path, sealed: Seal) -> None:
    sealed(project)
    result, model, _ = await fix(project, turn(FIX, bash("python3 check.py"), read("app/sum.py")), turn())
    assert [item.text.split("\n")[0] for item in model.seen[1]] == [
        "Edited app/sum.py (1 replacement).",
        "Exit code: 0",
        "app/sum.py",
    ]
    assert result.n_steps == 2


async def test_a_binary_in_the_way_is_a_plain_error(project: Path, sealed: Seal) -> None:
    sealed(project)
    result, model, _ = await fix(project, turn(read("blob.bin")), turn(edit("blob.bin", "a", "b")), turn())
    assert model.seen[1][0].text.startswith("ValueError: binary file")
    assert "Error" in model.seen[2][0].text
    assert result.changes.changes == ()


async def test_a_loop_is_stuck_and_keeps_what_was_done(project: Path, sealed: Seal) -> None:
    sealed(project)
    result, *_ = await fix(project, turn(FIX), *[turn(bash("cat old.txt"))] * 5)
    assert result.exit_reason is ExitReason.STUCK
    assert kinds(result) == {"app/sum.py": ChangeKind.MODIFIED}
    assert result.n_steps == 4


async def test_a_flood_of_output_is_cut(project: Path, sealed: Seal) -> None:
    sealed(project)
    result, model, _ = await fix(project, turn(bash("yes y | head -c 50000000")), turn())
    text = model.seen[1][0].text
    assert len(text) < 31_000
    assert "[truncated " in text
    assert result.exit_reason is ExitReason.AGENT


@pytest.mark.slow
async def test_the_time_limit_ends_a_command(project: Path, sealed: Seal) -> None:
    sealed(project)
    began = time.monotonic()
    result, *_ = await fix(project, turn(FIX), turn(bash("sleep 60")), limits=Limits(time_s=3))
    assert result.exit_reason is ExitReason.MAX_TIME
    assert kinds(result) == {"app/sum.py": ChangeKind.MODIFIED}
    assert time.monotonic() - began < 40


async def test_a_model_that_dies_leaves_the_changes_so_far(project: Path, sealed: Seal) -> None:
    sealed(project)
    result, *_ = await fix(project, turn(FIX), ModelUnavailable("the worker died", "Start it again."))
    assert result.exit_reason is ExitReason.MODEL_UNAVAILABLE
    assert kinds(result) == {"app/sum.py": ChangeKind.MODIFIED}
    assert result.error is not None
    assert (result.error.kind, result.error.hint) == ("model_unavailable", "Start it again.")


async def test_the_runner_killed_in_mid_call_leaves_the_changes_so_far(project: Path, sealed: Seal) -> None:
    sealed(project)

    async def kill() -> Turn:
        victims = [child for child in children() if "python" in name_of(child)]
        assert victims
        for child in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        return turn(bash("sleep 30"))

    result, *_ = await fix(project, turn(FIX), kill, turn())
    assert result.exit_reason is ExitReason.TOOL_ERROR
    assert result.error is not None
    assert kinds(result) == {"app/sum.py": ChangeKind.MODIFIED}


async def test_a_command_that_kills_everything_it_can(project: Path, sealed: Seal) -> None:
    sealed(project)
    result, *_ = await fix(project, turn(FIX), turn(bash("kill -9 -1; sleep 1")), turn())
    assert result.exit_reason in (ExitReason.AGENT, ExitReason.TOOL_ERROR)
    assert kinds(result) == {"app/sum.py": ChangeKind.MODIFIED}


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


async def no_children(before: set[int], within_s: float) -> None:
    end = time.monotonic() + within_s
    while left := {child.pid for child in children() if is_alive(child)} - before:
        assert time.monotonic() < end, f"still there: {left}"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("where", ["generating", "command", "start"])
async def test_cancel_leaves_no_process_and_no_proposal(project: Path, sealed: Seal, where: str) -> None:
    sealed(project)
    before = {child.pid for child in children()}
    model = Turns(turn(FIX))
    model.items.append(model.for_ever if where == "generating" else turn(bash("touch x; sleep 300 & sleep 300")))
    started = asyncio.Event()
    running = asyncio.Event()

    def on_event(event: RunEvent) -> None:
        started.set() if isinstance(event, RunStarted) else None
        if getattr(event, "step", 0) == 2 and type(event).__name__ == "ToolStarted":
            running.set()

    spec = RunSpec(run_id=f"c-{where}", workspace=str(project), issue=Issue(text="x"))
    run = Run(spec, on_event, model=model)
    task = asyncio.create_task(run.execute())
    if where == "generating":
        await model.waiting.wait()
    elif where == "command":
        await running.wait()
        await asyncio.sleep(0.3)
    else:
        await asyncio.sleep(0.1)
    began = time.monotonic()
    run.cancel()
    run.cancel()
    result = await task
    assert time.monotonic() - began < 2.0, "1 s, on a machine that does nothing else"
    assert result.exit_reason is ExitReason.CANCELLED
    assert (result.changes.changes, result.patch, result.error) == ((), "", None)
    await no_children(before, 1.0)


async def test_cancelling_the_task_cleans_up_too(project: Path, sealed: Seal) -> None:
    sealed(project)
    before = {child.pid for child in children()}
    model = Turns()
    model.items.append(model.for_ever)
    spec = RunSpec(run_id="task", workspace=str(project), issue=Issue(text="x"))
    task = asyncio.create_task(Run(spec, lambda _: None, model=model).execute())
    await model.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await no_children(before, 1.0)


async def test_cancel_before_the_start(project: Path, sealed: Seal) -> None:
    sealed(project)
    run = Run(RunSpec(run_id="early", workspace=str(project), issue=Issue(text="x")), lambda _: None, model=Turns())
    run.cancel()
    assert (await run.execute()).exit_reason is ExitReason.CANCELLED


async def test_unsaved_buffers_are_part_of_the_snapshot(project: Path, sealed: Seal) -> None:
    sealed(project)
    buffers = {"app/sum.py": b"def add(a, b):\n    return a * b\n", "new.py": b"x = 1\n"}
    result, model, _ = await fix(
        project,
        turn(read("app/sum.py"), read("new.py")),
        turn(edit("app/sum.py", "a * b", "a + b")),
        turn(),
        buffers=buffers,
        test_command="python3 check.py",
    )
    assert "a * b" in model.seen[1][0].text
    assert "x = 1" in model.seen[1][1].text
    assert kinds(result) == {"app/sum.py": ChangeKind.MODIFIED}
    (change,) = result.changes.changes
    assert change.before is not None
    assert change.before.data == buffers["app/sum.py"]
    assert result.tests_after is not None
    assert result.tests_after.exit_code == 0


async def test_the_proposal_is_checked_and_not_what_the_run_left_lying(project: Path, sealed: Seal) -> None:
    sealed(project)
    result, *_ = await fix(
        project,
        turn(bash("mkdir -p app/__pycache__; echo 1 > app/__pycache__/flag; echo 1 > /tmp/flag"), FIX),
        turn(),
        test_command="test ! -e app/__pycache__/flag && test ! -e /tmp/flag && grep -q 'a + b' app/sum.py",
    )
    assert result.tests_after is not None
    assert result.tests_after.exit_code == 0, result.tests_after.tail


@pytest.mark.edits_workspace
async def test_a_file_that_the_user_changes_meanwhile(project: Path) -> None:
    path = project / "app" / "sum.py"

    def change_it() -> Turn:
        path.write_text("def add(a, b):\n    return a - b\n\n# mine\n")
        return turn(FIX)

    result, *_ = await fix(project, turn(read("app/sum.py")), change_it, turn())
    (change,) = result.changes.changes
    assert change.path == "app/sum.py"
    assert change.after is not None
    assert b"a + b" in (change.after.data or b"")
    assert path.read_text().endswith("# mine\n"), "what the user wrote stays"


async def test_git_internals_are_named_and_left_out(project: Path, sealed: Seal) -> None:
    git(project, "init", "-q")
    sealed(project)
    result, *_ = await fix(project, turn(bash("echo x >> .git/config; git status >/dev/null; echo y > y.py")), turn())
    assert kinds(result) == {"y.py": ChangeKind.CREATED}
    assert any(".git/config" in note for note in result.notes)


@pytest.mark.parametrize("where", ["/", "~", "missing", "a file"])
async def test_what_is_no_workspace_is_an_error_of_the_result(tmp_path: Path, where: str) -> None:
    (tmp_path / "a file").write_text("")
    path = {"/": "/", "~": os.environ["HOME"]}.get(where, str(tmp_path / where))
    result, *_ = await fix(Path(path))
    assert result.error is not None
    assert result.error.kind == "workspace"
    assert result.changes.changes == ()


async def test_an_endpoint_elsewhere_needs_consent(project: Path, sealed: Seal) -> None:
    sealed(project)
    spec = RunSpec(
        run_id="remote",
        workspace=str(project),
        issue=Issue(text="x"),
        model=ModelSpec(kind="endpoint", base_url="https://models.example.com/v1", name="m"),
    )
    result = await Run(spec, lambda _: None).execute()
    assert result.error is not None
    assert "agreed" in result.error.message
    assert "model consent" in result.error.hint


async def test_the_reduced_jail_has_file_tools_and_says_so(project: Path, sealed: Seal) -> None:
    sealed(project)
    result, model, _ = await fix(
        project, turn(FIX, bash("ls")), turn(), jail=JailSettings(backend="files"), test_command="python3 check.py"
    )
    assert (result.jail.backend, bool(result.jail.reduced)) == ("files", True)
    assert kinds(result) == {"app/sum.py": ChangeKind.MODIFIED}
    assert "not available" in model.seen[1][1].text
    assert result.tests_before is None
    assert any("reduced" in note for note in result.notes)


async def test_the_models_own_prompt_and_tools_win(project: Path, sealed: Seal) -> None:
    sealed(project)
    info = ModelInfo(
        kind="worker", name="tiny", demonstration=True, context_tokens=64, system_prompt="Own.", tools=({"a": 1},)
    )
    model = Turns(turn(), info=info)
    events: list[RunEvent] = []
    spec = RunSpec(run_id="own", workspace=str(project), issue=Issue(text="Der Wert ist nicht in der Liste, die"))
    result = await Run(spec, events.append, model=model).execute()
    assert model.begun == [("Own.", spec.issue.text)]
    assert model.tools == ({"a": 1},)
    assert any(note == "demonstration model, replace it with `frog-lsp model pull`" for note in result.notes)
    assert not any("lowered" in note for note in result.notes), "nobody chose the context of the tiny model"
    assert any("English" in note for note in result.notes)
    (started,) = [event for event in events if isinstance(event, RunStarted)]
    assert started.limits.context_tokens == 64


async def test_a_context_asked_for_by_hand_that_does_not_fit(project: Path, sealed: Seal) -> None:
    sealed(project)
    info = ModelInfo(kind="worker", name="tiny", context_tokens=64)
    spec = RunSpec(
        run_id="ctx",
        workspace=str(project),
        issue=Issue(text="x"),
        limits=Limits(context_tokens=128),
        context_is_explicit=True,
    )
    result = await Run(spec, lambda _: None, model=Turns(info=info)).execute()
    assert result.error is not None
    assert result.error.kind == "context_too_large"
    assert "64" in result.error.hint


async def test_a_bug_of_ours_loses_nothing(project: Path, sealed: Seal) -> None:
    sealed(project)
    result, *_ = await fix(project, turn(FIX), RuntimeError("a bug"))
    assert result.error is not None
    assert (result.error.kind, result.n_steps) == ("internal", 1)
    assert kinds(result) == {"app/sum.py": ChangeKind.MODIFIED}


async def test_a_context_that_was_not_asked_for_is_lowered_with_a_note(project: Path, sealed: Seal) -> None:
    sealed(project)
    info = ModelInfo(kind="worker", name="m", context_tokens=4096)
    spec = RunSpec(run_id="low", workspace=str(project), issue=Issue(text="x"))
    result = await Run(spec, lambda _: None, model=Turns(turn(), info=info)).execute()
    assert "The context was lowered from 131072 to 4096 tokens." in result.notes


async def test_a_listener_that_fails_ends_nothing(project: Path, sealed: Seal) -> None:
    sealed(project)

    def fail(event: RunEvent) -> None:
        raise RuntimeError("a bug of the listener")

    result, *_ = await fix(project, turn(FIX), turn(content="ok"), on_event=fail)
    assert (result.exit_reason, len(result.changes.changes)) == (ExitReason.AGENT, 1)


async def test_a_run_is_resumed_after_a_crash(project: Path, sealed: Seal) -> None:
    sealed(project)
    crashed, *_ = await fix(
        project, turn(read("app/sum.py")), turn(FIX), turn(bash("python3 check.py")), ModelUnavailable("died")
    )
    assert crashed.trajectory is not None
    path = Path(crashed.trajectory)
    cut(path, 20)  # and its last line was half written
    result, model, _ = await fix(project, turn(content="Done."), resume_from=str(path))
    assert result.error is None
    assert (result.exit_reason, result.n_steps) == (ExitReason.AGENT, 4)
    assert kinds(result) == {"app/sum.py": ChangeKind.MODIFIED}
    assert len(model.recalled) == 3
    assert model.seen == [[]]
    assert result.trajectory is not None
    assert len(read_trajectory(result.trajectory).steps) == 4


async def test_a_full_window_goes_on_from_a_summary_and_is_resumed_there(project: Path, sealed: Seal) -> None:
    sealed(project)
    info = ModelInfo(kind="worker", name="m", context_tokens=4_000)
    full = replace(turn(read("app/sum.py")), context_tokens=3_500)
    model = Turns(full, Turn(content="add subtracts."), turn(FIX), ModelUnavailable("died"), info=info)
    spec = RunSpec(run_id="summary", workspace=str(project), issue=Issue(text="add is wrong"))
    crashed = await Run(spec, lambda _: None, model=model).execute()
    assert (crashed.n_steps, kinds(crashed)) == (2, {"app/sum.py": ChangeKind.MODIFIED})
    assert [user.split("\n")[0] for _, user in model.begun] == ["add is wrong", "add is wrong"]
    assert model.begun[1][1].endswith("add subtracts.")
    result, again, _ = await fix(project, turn(content="Done."), resume_from=crashed.trajectory)
    assert (result.exit_reason, result.n_steps) == (ExitReason.AGENT, 3)
    assert [user for _, user in again.begun] == [user for _, user in model.begun]
    assert kinds(result) == {"app/sum.py": ChangeKind.MODIFIED}


@pytest.mark.edits_workspace
async def test_resume_is_refused_where_an_outcome_differs(project: Path) -> None:
    crashed, *_ = await fix(project, turn(read("app/sum.py")), ModelUnavailable("died"))
    (project / "app" / "sum.py").write_text("other\n")
    sealed = workspace_hash(project)
    result, *_ = await fix(project, turn(), resume_from=crashed.trajectory)
    assert result.error is not None
    assert result.error.kind == "resume"
    assert result.changes.changes == ()
    assert workspace_hash(project) == sealed


async def test_resume_of_a_run_that_had_ended_is_refused(project: Path, sealed: Seal) -> None:
    sealed(project)
    ended, *_ = await fix(project, turn(content="Nothing to do."))
    result, *_ = await fix(project, turn(), resume_from=ended.trajectory)
    assert result.error is not None
    assert result.error.kind == "usage"


async def test_an_unknown_tool_and_a_bad_argument_are_observations(project: Path, sealed: Seal) -> None:
    sealed(project)
    _, model, _ = await fix(project, turn(call("Grep", pattern="x"), call("Read")), turn())
    assert [item.text for item in model.seen[1]] == ["Unknown tool: Grep", "ValueError: file_path is required"]
