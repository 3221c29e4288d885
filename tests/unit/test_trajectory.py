"""The trajectory file: complete up to the last step at any crash, and read back exactly."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.trajectory import (
    Restart,
    Step,
    TrajectoryWriter,
    forget_trajectories,
    peek_trajectory,
    read_trajectory,
)
from agent.types import (
    CallProblem,
    ChangeSet,
    ConversationRestarted,
    ExitReason,
    Issue,
    JailInfo,
    ModelInfo,
    Observation,
    RunFinished,
    RunResult,
    RunSpec,
    ToolCall,
    ToolFinished,
    Turn,
    TurnFinished,
    Usage,
)

MODEL = ModelInfo(kind="scripted", name="turns")
CALL = ToolCall(name="Bash", arguments={"command": "printf 'é\\u00e9'"}, id="c1")
TURN = Turn(
    reasoning="Hm.",
    content="Now.",
    calls=(CALL,),
    raw="Hm.\n</think>…",
    usage=Usage(prompt_tokens=5, completion_tokens=2, evaluated_tokens=None),
    context_tokens=7,
    duration_s=0.5,
)
SEEN = Observation(tool="Bash", text="Exit code: 0\nSTDOUT:\né\nSTDERR:\n", duration_s=0.25, call_id="c1")


def writer(tmp_path: Path) -> TrajectoryWriter:
    made = TrajectoryWriter(tmp_path / "state" / "r1.jsonl")
    spec = RunSpec(run_id="r1", workspace=str(tmp_path), issue=Issue(text="Fix."), seed=3)
    made.open(spec, MODEL, [{"type": "function"}], "abc")
    made.message("system", "You fix.")
    made.message("user", "Fix.")
    return made


def finished() -> RunFinished:
    result = RunResult(
        run_id="r1",
        exit_reason=ExitReason.AGENT,
        final_message="ok",
        n_steps=1,
        usage=Usage(),
        elapsed_s=1.25,
        model=MODEL,
        jail=JailInfo(backend="files"),
        changes=ChangeSet(),
        patch="diff",
    )
    return RunFinished(result=result)


def test_every_line_as_the_interface_says(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.record(TurnFinished(step=1, turn=TURN))
    made.record(ToolFinished(step=1, call=CALL, observation=SEEN))
    lines = [json.loads(line) for line in made.path.read_text().splitlines()]
    assert len(lines) == 4, "a step is on the disk as soon as its observations are there"
    made.record(finished())
    made.close()
    made.close()
    assert os.stat(made.path).st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in made.path.read_text().splitlines()]
    header = lines[0]
    assert header["trajectory_format"] == "leaf-function-calling"
    assert header["trajectory_id"] == "r1"
    assert header["seed"] == 3
    assert {"instance_id", "model", "tools", "limits", "workspace_hash"} < set(header)
    assert lines[1:3] == [{"role": "system", "content": "You fix."}, {"role": "user", "content": "Fix."}]
    step = lines[3]
    assert step["step"] == 1
    assert step["context_tokens"] == 7
    assert step["assistant"]["reasoning_content"] == "Hm."
    assert step["observations"] == [{"tool": "Bash", "observation": SEEN.text, "duration_s": 0.25}]
    call = step["assistant"]["tool_calls"][0]
    assert call["id"] == "c1"
    assert json.loads(call["function"]["arguments"]) == dict(CALL.arguments)
    assert lines[4] == {
        "n_steps": 1,
        "exit_reason": "agent",
        "error": None,
        "final_message": "ok",
        "elapsed_sec": 1.25,
        "output_patch": "diff",
        "partial": False,
    }
    assert "é" in made.path.read_text("utf-8"), "text is not escaped"


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    made = writer(tmp_path)
    problem = CallProblem(index=0, call=None, message="no end")
    bad = Turn(problems=(problem,), raw="<tool_call>")
    answer = Observation(tool="invalid", text="ValueError")
    made.record(TurnFinished(step=1, turn=TURN))
    made.record(ToolFinished(step=1, call=CALL, observation=SEEN))
    made.record(ConversationRestarted(step=2, user="Fix.\n\nSummary"))
    made.record(TurnFinished(step=2, turn=bad))
    made.record(ToolFinished(step=2, call=CALL, observation=answer))
    made.record(finished())
    made.close()
    read = read_trajectory(made.path)
    assert (read.system, read.user, read.issue) == ("You fix.", "Fix.", Issue(text="Fix."))
    assert read.entries == (
        Step(turn=TURN, observations=(SEEN,)),
        Restart(user="Fix.\n\nSummary"),
        Step(turn=bad, observations=(answer,)),
    )
    assert read.outcome is not None
    assert read.outcome["exit_reason"] == "agent"


def test_an_interrupted_step_keeps_what_there_is(tmp_path: Path) -> None:
    made = writer(tmp_path)
    two = Turn(calls=(CALL, CALL))
    made.record(TurnFinished(step=1, turn=two))
    made.record(ToolFinished(step=1, call=CALL, observation=SEEN))
    made.close()
    (step,) = read_trajectory(made.path).steps
    assert step.observations == (SEEN,)


@pytest.mark.parametrize("n_cut", [1, 2, 30])
def test_a_half_written_last_line_is_left_out(tmp_path: Path, n_cut: int) -> None:
    made = writer(tmp_path)
    for number in (1, 2):
        made.record(TurnFinished(step=number, turn=TURN))
        made.record(ToolFinished(step=number, call=CALL, observation=SEEN))
    made.close()
    data = made.path.read_bytes()
    made.path.write_bytes(data[: -1 - n_cut])
    assert len(read_trajectory(made.path).steps) == 1
    made.path.write_bytes(data.replace(b'{"step": 1', b'{"step: 1'))
    with pytest.raises(UsageError, match="line 4"):
        read_trajectory(made.path)


def test_cut_at_any_byte_what_was_complete_is_read(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.record(TurnFinished(step=1, turn=TURN))
    made.record(ToolFinished(step=1, call=CALL, observation=SEEN))
    made.record(finished())
    made.close()
    data = made.path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    for n_bytes in range(ends[0], len(data)):
        made.path.write_bytes(data[:n_bytes])
        read = read_trajectory(made.path)
        header, outcome = peek_trajectory(made.path)
        assert header == read.header
        assert (outcome is None) is (read.outcome is None)
        # a line without its newline is whole too
        assert len(read.steps) == int(n_bytes >= ends[3] - 1)


@pytest.mark.parametrize("data", [b"", b"[]\n", b"not json\n", b'{"trajectory_format": "other"}\n', b"\xff\xfe\n"])
def test_what_is_no_trajectory_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    with pytest.raises(UsageError):
        read_trajectory(path)
    with pytest.raises(UsageError):
        read_trajectory(tmp_path / "missing")


def test_names_that_are_not_utf8_survive(tmp_path: Path) -> None:
    made = writer(tmp_path)
    call = ToolCall(name="Read", arguments={"file_path": "caf\udce9"}, id="1")
    made.record(TurnFinished(step=1, turn=Turn(calls=(call,))))
    made.close()
    assert read_trajectory(made.path).steps[0].turn.calls == (call,)


def test_a_disk_in_trouble_is_kept_and_ends_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    made = TrajectoryWriter(blocked / "r1.jsonl")
    made.open(RunSpec(run_id="r", workspace=str(tmp_path), issue=Issue(text="x")), MODEL, [], None)
    made.record(finished())
    made.close()
    assert made.error is not None


def test_old_trajectories_are_forgotten(tmp_path: Path) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    for path in (old, new):
        path.write_text("{}")
    os.utime(old, (time.time() - 31 * 86_400,) * 2)
    assert forget_trajectories(older_than_days=30, folder=tmp_path) == 1
    assert (old.exists(), new.exists()) == (False, True)
    assert forget_trajectories(older_than_days=0, folder=tmp_path / "none") == 0
