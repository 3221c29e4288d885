"""`frog-lsp fix` and what follows it, as real subprocesses: outputs, exit codes, questions and Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import Seal
from tests.frog import FROG, Frog, is_alive, name_of
from tests.support import workspace_hash
from tests.unit.test_cli import RESULT_KEYS

pytestmark = [pytest.mark.jail, pytest.mark.slow, pytest.mark.usefixtures("require_jail")]

FIX = {"name": "Edit", "arguments": {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}}
END = {"content": "Done."}


@pytest.fixture
def frog(tmp_path: Path) -> Frog:
    home = tmp_path / "home"
    home.mkdir()
    return Frog(home)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "a.py").write_text("x = 1\n")
    return path


def bash(command: str) -> dict[str, Any]:
    return {"name": "Bash", "arguments": {"command": command}}


def script(frog: Frog, *turns: dict[str, Any] | list[dict[str, Any]]) -> str:
    """A file of turns; a list is a turn with these calls."""
    path = frog.home / "turns.json"
    path.write_text(json.dumps([{"calls": turn} if isinstance(turn, list) else turn for turn in turns]))
    return f"scripted:{path}"


def test_the_patch_is_on_stdout_and_everything_else_on_stderr(frog: Frog, project: Path, sealed: Seal) -> None:
    sealed(project)
    model = script(frog, [FIX], END)
    answer = frog("fix", project, "--issue", "x must be 2", "--model", model, "--test", "grep -q 2 a.py")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("diff --git a/a.py b/a.py\n")
    subprocess.run(["git", "apply", "--check", "-"], input=answer.out.encode(), cwd=project, check=True)
    assert "before: failed (exit code 1) · after: passed (exit code 0)" in answer.err
    assert "   1  Edit   a.py" in answer.err
    assert "\x1b" not in answer.err, "no colours without a terminal"
    assert max(map(len, answer.err.split("\n"))) <= 100


def test_the_object_of_json(frog: Frog, project: Path, sealed: Seal) -> None:
    sealed(project)
    model = script(frog, [FIX, bash("echo out; echo err >&2; exit 3")], END)
    answer = frog("fix", project, "--issue-file", "-", "--model", model, "--json", stdin="Das ist nicht die Zahl, die")
    value = answer.json
    assert answer.code == 0
    assert list(value) == RESULT_KEYS
    assert value["changes"] == [{"path": "a.py", "kind": "modified", "flags": [], "applied_by_default": True}]
    assert value["tests"] == {"command": None, "before": None, "after": None}
    assert any("not checked" in note for note in value["notes"])
    assert (value["n_steps"], value["final_message"], value["error"]) == (2, "Done.", None)
    assert value["model"] == {"kind": "scripted", "name": "turns.json"}
    assert value["jail"] == {"backend": "namespaces", "reduced": None}
    assert Path(value["trajectory"]).stat().st_mode & 0o777 == 0o600
    assert not Path(value["trajectory"]).is_relative_to(project)


def test_the_patch_in_a_file_leaves_stdout_silent(frog: Frog, project: Path, sealed: Seal) -> None:
    sealed(project)
    target = frog.home / "out.patch"
    answer = frog("fix", project, "--issue", "x", "--model", script(frog, [FIX], END), "--patch", target)
    assert (answer.code, answer.out) == (0, "")
    assert target.read_text().startswith("diff --git")


def test_no_change_is_exit_3_and_an_empty_patch(frog: Frog, project: Path, sealed: Seal) -> None:
    sealed(project)
    answer = frog("fix", project, "--issue", "x", "--model", script(frog, END))
    assert (answer.code, answer.out) == (3, "")
    assert "No proposal" in answer.err


def test_a_model_file_that_is_none(frog: Frog, project: Path, sealed: Seal) -> None:
    sealed(project)
    bad = frog.home / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(10))
    for path in (bad, frog.home / "missing.gguf"):
        answer = frog("fix", project, "--issue", "x", "--model", path, "--json")
        assert answer.code == 1, answer.err
        assert answer.json["exit_reason"] == "model_unavailable"
        assert answer.json["error"]["hint"]


def test_an_endpoint_that_is_down_or_not_agreed_to(frog: Frog, project: Path, sealed: Seal) -> None:
    sealed(project)
    answer = frog("fix", project, "--issue", "x", "--endpoint", "http://example.com/v1", "--json")
    assert answer.code == 2
    assert "agreed" in answer.json["error"]["message"]


def test_apply_review_and_discard(frog: Frog, project: Path) -> None:
    before = workspace_hash(project)
    model = script(frog, [FIX, {"name": "Write", "arguments": {"file_path": "conftest.py", "content": "y\n"}}], END)
    run_id = frog("fix", project, "--issue", "x must be 2", "--model", model, "--json").json["run_id"]
    assert workspace_hash(project) == before
    (row,) = frog("runs", "--json").json["runs"]
    assert (row["run_id"], row["state"], row["files"]) == (run_id, "proposed", ["a.py", "conftest.py"])
    assert run_id in frog("runs").out
    review = frog("review", run_id)
    assert "hunk 1" in review.out
    assert "conftest" in review.out
    applied = frog("apply", run_id, "--json")
    assert applied.code == 0
    assert applied.json["applied"] == ["a.py"]
    assert (project / "a.py").read_text() == "x = 2\n"
    assert not (project / "conftest.py").exists()
    assert frog("apply", run_id, "--files", "conftest.py").code == 0
    assert (project / "conftest.py").read_text() == "y\n"
    assert frog("discard", run_id, "--json").json["state"] == "discarded"
    assert frog("apply", run_id).code == 1
    assert frog("review", "nothing", "--json").json["error"]["kind"] == "proposal"
    assert frog("runs", "--forget", "--json").json["forgotten"] == 1
    assert frog("runs", "--json").json["runs"] == []
    assert list((frog.home / "state").rglob("*.jsonl")) == []


def test_apply_with_a_conflict_is_exit_4_and_applies_nothing_of_the_file(frog: Frog, project: Path) -> None:
    model = script(frog, [FIX], {"calls": [bash("sleep 4")]}, END)
    child = frog.start("fix", project, "--issue", "x", "--model", model, "--apply", "--json")
    wait_for_step(frog, 1)
    (project / "a.py").write_text("x = 3\n")
    out, err = child.communicate(timeout=60)
    assert child.returncode == 4, err.decode()
    assert json.loads(out)["changes"][0]["path"] == "a.py"
    assert (project / "a.py").read_text() == "x = 3\n"
    assert b"conflict" in err


def wait_for_step(frog: Frog, number: int, timeout_s: float = 60.0) -> None:
    """Wait until the trajectory holds this step."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        for path in (frog.home / "state").rglob("*.jsonl"):
            if f'{{"step": {number}' in path.read_text():
                return
        time.sleep(0.05)
    raise AssertionError("the run did not get there")


def children_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def assert_gone(processes: list[psutil.Process], within_s: float = 3.0) -> None:
    _, alive = psutil.wait_procs(processes, timeout=within_s)
    assert [process for process in alive if is_alive(process)] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_cleanly(frog: Frog, project: Path, sealed: Seal, number: signal.Signals) -> None:
    sealed(project)
    model = script(frog, [FIX], [bash("sleep 300")], END)
    child = frog.start("fix", project, "--issue", "x", "--model", model, "--json")
    wait_for_step(frog, 1)
    time.sleep(0.5)
    inside = children_of(child.pid)
    assert inside
    os.killpg(child.pid, number)  # as a terminal does: the whole group gets it
    out, err = child.communicate(timeout=20)
    assert child.returncode == 130, err.decode()
    value = json.loads(out)
    assert (value["exit_reason"], value["changes"], value["patch"]) == ("cancelled", [], "")
    assert_gone(inside)


def test_a_second_interrupt_stops_hard_and_leaves_no_child(frog: Frog, project: Path, sealed: Seal) -> None:
    sealed(project)
    child = frog.start("fix", project, "--issue", "x", "--model", script(frog, [bash("sleep 300")], END), "--json")
    end = time.monotonic() + 60
    while not any("sleep" in name_of(process) for process in children_of(child.pid)):
        assert time.monotonic() < end
        time.sleep(0.05)
    inside = children_of(child.pid)
    os.kill(child.pid, signal.SIGINT)
    os.kill(child.pid, signal.SIGINT)
    time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 130, err.decode()
    assert json.loads(out)
    assert_gone(inside)


def test_kill_9_of_the_command_line_leaves_no_child(frog: Frog, project: Path, sealed: Seal) -> None:
    sealed(project)
    child = frog.start("fix", project, "--issue", "x", "--model", script(frog, [FIX], [bash("sleep 300")], END))
    wait_for_step(frog, 1)
    time.sleep(0.5)
    inside = children_of(child.pid)
    child.kill()
    child.communicate(timeout=20)
    assert_gone(inside, within_s=10)


def test_resume_after_kill_9(frog: Frog, project: Path, sealed: Seal) -> None:
    sealed(project)
    model = script(frog, [FIX], {"calls": [bash("cat a.py")], "delay_s": 0}, {"content": "Late.", "delay_s": 3})
    child = frog.start("fix", project, "--issue", "x must be 2", "--model", model, "--test", "grep -q 2 a.py")
    wait_for_step(frog, 2)
    child.kill()
    child.communicate(timeout=20)
    (path,) = (frog.home / "state").rglob("*.jsonl")
    (row,) = frog("runs", "--json").json["runs"]
    assert row["state"] == "unfinished"
    answer = frog("fix", project, "--resume", path, "--model", model, "--json")
    value = answer.json
    assert answer.code == 0, answer.err
    assert (value["exit_reason"], value["n_steps"], value["final_message"]) == ("agent", 3, "Late.")
    assert value["tests"]["after"]["exit_code"] == 0
    assert "cat a.py" in frog("replay", path).out
    replayed = frog("replay", value["run_id"], "--json").json
    assert [step["step"] for step in replayed["steps"]] == [1, 2, 3]
    assert "x = 2" in frog("replay", value["run_id"], "--full").out


@pytest.mark.parametrize(("reply", "expected"), [("y\n", "x = 2\n"), ("\n", "x = 1\n"), ("\x04", "x = 1\n")])
def test_a_person_is_asked_and_no_is_the_default(frog: Frog, project: Path, reply: str, expected: str) -> None:
    model = script(frog, [FIX], END)
    code, shown = in_terminal(frog, ["fix", project, "--issue", "x", "--model", model], reply)
    assert code == 0, shown
    assert "Apply these changes" in shown
    assert "+x = 2" in shown
    assert "diff --git a/a.py b/a.py" in shown
    assert (project / "a.py").read_text() == expected


def in_terminal(frog: Frog, arguments: list[Any], reply: str, timeout_s: float = 90.0) -> tuple[int, str]:
    """Run in a terminal of 80 columns, and reply to the question."""
    import fcntl
    import struct
    import termios

    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    child = subprocess.Popen(
        [FROG, *map(str, arguments)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=frog.env | {"TERM": "xterm", "NO_COLOR": "1"},
        cwd=frog.home,
        start_new_session=True,
    )
    os.close(slave)
    shown, replied, end = b"", False, time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
        if not replied and b"[y/N]" in shown:
            os.write(master, reply.encode())
            replied = True
    os.close(master)
    return child.wait(timeout=20), shown.decode()


def test_hostile_text_never_reaches_the_terminal(frog: Frog, project: Path, sealed: Seal) -> None:
    (project / "b\x1b[2J.py").write_text("y\n")
    sealed(project)
    evil = "\x1b]0;owned\x07\x9b2J"
    write = {"name": "Write", "arguments": {"file_path": f"n{evil}", "content": f"{evil}\n"}}
    model = script(frog, [write, bash(f"printf '\\033[2J'; echo '{evil}'")], {"content": f"All good {evil}"})
    code, shown = in_terminal(frog, ["fix", project, "--issue", f"x {evil}", "--model", model], "\n")
    assert code == 0
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    assert "\x9b" not in shown
    for arguments in (["runs"], ["review", "2"], ["replay", next((frog.home / "state").rglob("*.jsonl")), "--full"]):
        answer = frog(*arguments)
        assert "\x1b" not in answer.out + answer.err, arguments


def test_a_state_folder_that_cannot_be_written_loses_nothing(frog: Frog, project: Path) -> None:
    frog.env["XDG_STATE_HOME"] = "/dev/null/state"
    answer = frog("fix", project, "--issue", "x", "--model", script(frog, [FIX], END), "--json", "--apply")
    value = answer.json
    assert answer.code == 0, answer.err
    assert value["trajectory"] is None
    assert any("could not be kept" in note for note in value["notes"])
    assert any("trajectory" in note for note in value["notes"])
    assert (project / "a.py").read_text() == "x = 2\n"


def test_a_test_command_that_never_ends_is_bounded_by_the_time_limit(frog: Frog, project: Path, sealed: Seal) -> None:
    sealed(project)
    limits = ["--time-limit", "2", "--test", "sleep 600"]
    answer = frog("fix", project, "--issue", "x", "--model", script(frog, [FIX], END), "--json", *limits)
    assert answer.json["tests"]["before"] == {"exit_code": None, "tail": ""}


def test_the_workspace_runs_nothing_of_itself_outside_the_jail(frog: Frog, project: Path, sealed: Seal) -> None:
    (project / "agent").mkdir()
    (project / "agent" / "__init__.py").write_text("import os; os.system('touch /tmp/frog-owned')\n")
    (project / "sitecustomize.py").write_text("import os; os.system('touch /tmp/frog-owned')\n")
    Path("/tmp/frog-owned").unlink(missing_ok=True)
    sealed(project)
    model = script(frog, [FIX], END)
    done = subprocess.run(
        [FROG, "fix", ".", "--issue", "x", "--model", model, "--json"],
        cwd=project,
        env=frog.env,
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not Path("/tmp/frog-owned").exists()
