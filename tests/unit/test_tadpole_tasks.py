"""The test set of the bundled model: 200 real bugs, and nothing that its training could have seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from quant.tadpole import foreign, unseen
from quant.tadpole.tasks import KINDS, N_TASKS, Task, all_tasks, by_hand, sample

ARGV = [sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-q"]
MODULES = {task.name.rsplit("-", 1)[0]: task for task in by_hand()}


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return all_tasks()


def _passes(files: dict[str, str], folder: Path) -> bool:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return subprocess.run(ARGV, cwd=folder, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.mark.slow
def test_there_are_200_of_all_kinds_and_a_third_of_them_are_written_by_hand(tasks: list[Task]) -> None:
    assert len({task.name for task in tasks}) == len(tasks) == N_TASKS
    counts = [sum(task.kind == kind for task in tasks) for kind in KINDS]
    assert sum(counts) == N_TASKS and max(counts) - min(counts) <= 1
    assert sum(task.by_hand for task in tasks) >= 67
    assert {task.kind for task in sample()} == set(KINDS) and len(sample()) == 20
    assert all(10 <= task.files[task.path].count("\n") <= 40 for task in tasks)


def test_every_issue_says_where_to_look(tasks: list[Task]) -> None:
    assert [task.name for task in tasks if task.path not in task.issue] == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_written_by_hand_is_right_without_its_bugs(module: str, tmp_path: Path) -> None:
    task = MODULES[module]
    assert _passes({**task.files, task.path: task.right}, tmp_path / "right")
    assert not _passes(task.files, tmp_path / "wrong")


def test_a_repair_may_touch_the_faulty_line_alone(tasks: list[Task]) -> None:
    for task in tasks:
        assert task.is_clean(task.right), task.name
        assert not task.is_clean(task.right + "\nextra = 1\n"), task.name
        assert not task.is_clean("\n" + task.right.replace("return", "return  ", 1)), task.name


@pytest.mark.slow
def test_training_shares_no_name_no_shape_and_no_wording_with_them(tasks: list[Task]) -> None:
    assert unseen.violations(tasks, 240) == []


def test_the_check_for_what_was_seen_finds_it() -> None:
    """The same check, on tasks made of training's own templates."""
    seen = [
        Task("seen", made.family, made.files, made.issue, made.path, 0, False, made.fixed[made.path])
        for made in unseen.training(10)
    ]
    found = unseen.violations(seen, 10)
    assert found.count("seen: the same text") == 10
    assert sum("wording" in text for text in found) == 10
    assert "seen: shape of a function" in found and any(text.startswith("seen: name ") for text in found)


def test_there_are_fifty_issues_that_are_not_for_it() -> None:
    cases = foreign.cases()
    assert len({case.issue for case in cases}) == len(cases) == 50
    assert foreign.LONG["flow/steps.py"].count("\n") > 400
