"""`frog-lsp demo` and `fix` with the bundled model: real inference in the real worker, in the real jail."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from quant.tadpole.generator import demo_project, project
from tests.e2e.test_fix_cli import assert_gone, children_of, in_terminal, wait_for_step
from tests.frog import Answer, Frog

pytestmark = [
    *(pytest.mark.jail, pytest.mark.model, pytest.mark.slow),
    pytest.mark.usefixtures("require_jail", "require_model"),
]


@pytest.fixture
def frog(tmp_path: Path) -> Frog:
    home = tmp_path / "home"
    home.mkdir()
    made = Frog(home)
    made.env["TMPDIR"] = str(tmp_path)
    return made


def folder_of(answer: Answer) -> Path:
    match = re.search(r"project was made in\s+(\S+)", answer.err)
    assert match is not None, answer.err
    return Path(match[1])


def files_of(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_bundled_project_is_solved_and_nothing_changes_before_a_yes(frog: Frog) -> None:
    answer = frog("demo")
    assert answer.code == 0, answer.err
    assert answer.out == ""
    assert "demonstration model, replace it with `frog-lsp model pull`" in answer.err
    assert "   1  Read   depot/parcel.py" in answer.err
    assert "tok/s" in answer.err
    assert "before: failed (exit code 1) · after: passed (exit code 0)" in answer.err
    assert "Nothing was applied" in answer.err
    assert files_of(folder_of(answer)) == demo_project().files
    assert max(map(len, answer.err.split("\n"))) <= 100


def test_yes_applies_the_proposal(frog: Frog) -> None:
    answer = frog("demo", "--yes", "--json")
    assert answer.code == 0, answer.err
    value = answer.json
    assert value["tests"]["before"]["exit_code"] != 0
    assert value["tests"]["after"]["exit_code"] == 0
    assert value["usage"]["evaluated_tokens"] > 0
    assert value["usage"]["redecoded_tokens"] == 0, "not one token is read twice"
    assert files_of(folder_of(answer)) != demo_project().files


def test_a_seed_is_another_project_and_the_exit_code_says_what_the_tests_say(frog: Frog) -> None:
    answer = frog("demo", "--seed", "3", "--json")
    value = answer.json
    assert files_of(folder_of(answer)) == project(3).files
    assert value["tests"]["before"]["exit_code"] == 1
    after = value["tests"]["after"]
    assert answer.code == (0 if after is not None and after["exit_code"] == 0 else 1)


def test_the_question_in_a_terminal(frog: Frog) -> None:
    code, shown = in_terminal(frog, ["demo"], "y\n")
    assert code == 0, shown
    assert "Apply these changes" in shown
    assert "applied   " in shown


def workers_of(pid: int) -> list[psutil.Process]:
    return [child for child in children_of(pid) if any("worker" in word for word in words_of(child))]


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []


def test_an_interrupt_ends_the_worker_too(frog: Frog) -> None:
    child = frog.start("demo")
    end = time.monotonic() + 60
    while not workers_of(child.pid):
        assert time.monotonic() < end
        time.sleep(0.02)
    time.sleep(0.5)
    inside = children_of(child.pid)
    os.killpg(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130, err.decode()
    assert_gone(inside)


def test_kill_9_of_the_worker_keeps_the_changes_so_far(frog: Frog, tmp_path: Path) -> None:
    """The model is killed after its first step: the run says so and ends in order."""
    folder = tmp_path / "project"
    for name, text in demo_project().files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    child = frog.start("fix", folder, "--issue", demo_project().issue, "--model", "tadpole", "--json")
    wait_for_step(frog, 1)
    for worker in workers_of(child.pid):
        worker.kill()
    out, err = child.communicate(timeout=60)
    assert b'"exit_reason": "model_unavailable"' in out or child.returncode == 0, err.decode()
    assert files_of(folder) == demo_project().files
