"""A real Neovim, headless, drives the real server through the file that `frog-lsp setup nvim` prints."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from quant.tadpole.generator import demo_project
from tests.e2e.real_editors import (
    EDIT,
    FIXED,
    ROOT,
    SLEEP,
    SOURCE,
    bash,
    drive,
    edit,
    print_snippet,
    require_editor,
    scripted,
    write,
    write_workspace,
)
from tests.editors.install import NEOVIM

NEW = write("pkg/new.py", "x = 1\ny = 2\n")
INIT = """
vim.g.loaded_python3_provider = 0 -- Neovim looks for one in every Python file: a second
vim.lsp.config('frog', { init_options = vim.json.decode(vim.env.FROG_OPTIONS) })
vim.lsp.enable('frog')
"""
FILES = {"sum.py": SOURCE, "gone.py": "GONE = 1\n"}

pytestmark = [pytest.mark.editor, pytest.mark.jail, pytest.mark.usefixtures("require_jail")]


@pytest.fixture(autouse=True)
def require_neovim() -> None:
    require_editor(NEOVIM)


def run_neovim(tmp_path: Path, scenario: str, options: Mapping[str, Any], **env: str) -> dict[str, Any]:
    """Run a scenario of neovim_scenarios.lua as a person who installed the snippet; what it wrote."""
    config = tmp_path / "home/config/nvim"
    (config / "lsp").mkdir(parents=True)
    (config / "lsp/frog.lua").write_bytes(print_snippet("nvim"))
    (config / "init.lua").write_text(INIT)
    command = [NEOVIM.command(), "--headless", "-i", "NONE", "-n", "-S", f"{ROOT}/tests/e2e/neovim.lua"]
    found = drive(tmp_path, command, options, SCENARIO=scenario, **env)
    assert found["deprecated"] == [], "calls that a newer Neovim will not have"
    kinds = [event["kind"] for event in found["events"]]
    assert kinds.count("begin") == kinds.count("end") >= 1, "progress is paired"
    return found


def play(tmp_path: Path, scenario: str, *calls: Any, ask: bool = False) -> dict[str, Any]:
    """A scenario in the small workspace, with a model that plays a script."""
    write_workspace(tmp_path)
    return run_neovim(tmp_path, scenario, scripted(tmp_path, calls, ask=ask))


def test_from_a_diagnostic_to_the_saved_file_and_back(tmp_path: Path) -> None:
    found = play(tmp_path, "flow", EDIT, NEW, ask=True)
    assert found["encoding"] == "utf-8"
    assert found["after"] == FIXED
    assert found["disk"] == {**FILES, "pkg/new.py": ""} or found["disk"] == FILES, "nothing is saved but by the user"
    assert found["written"] == {**FILES, "sum.py": FIXED, "pkg/new.py": "x = 1\ny = 2\n"}, "no extra blank line"
    assert found["undone"] == SOURCE
    question = found["asked"][1]
    assert question["items"] == ["Review", "Apply", "Discard"]
    assert "2 files" in question["prompt"]
    assert "step 1 of 150 · Edit: sum.py" in [event["message"] for event in found["events"]]
    assert all(isinstance(event["token"], str) for event in found["events"])


def test_the_answer_review_shows_the_review_and_its_hunks(tmp_path: Path) -> None:
    found = play(tmp_path, "question", EDIT, ask=True)
    assert found["quickfix"] == [["sum.py", 2, "hunk 1: -    return a - b"]]


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.usefixtures("require_model")
def test_the_bundled_model_fixes_the_bundled_project(tmp_path: Path) -> None:
    project = demo_project()
    workspace = write_workspace(tmp_path, project.files)
    options = {"tests": {"command": project.test_command}, "review": {"ask": False}}
    issue = " ".join(project.issue.split())
    found = run_neovim(tmp_path, "model", options, ISSUE=issue, FILE=project.path)
    assert "demonstration model" in found["review"]
    assert re.search(r"after.*exit code 0", found["review"]), found["review"]
    for name, text in project.fixed.items():
        assert (workspace / name).read_text() == text


LONG = "first = 1\n" + "".join(f"line_{n} = {n}\n" for n in range(40)) + "last = 1\n"


def test_review_quickfix_and_hunks_one_by_one(tmp_path: Path) -> None:
    write_workspace(tmp_path, {"long.py": LONG})
    calls = [edit("first", "FIRST", "long.py"), edit("last = 1\n", "LAST = 1\n", "long.py"), NEW]
    found = run_neovim(tmp_path, "hunks", scripted(tmp_path, calls))
    assert "+LAST = 1" in found["review"]
    assert (found["modifiable"], found["filetype"]) == (False, "diff")
    assert found["quickfix_is_open"]
    *in_file, new = found["quickfix"]
    assert in_file == [["long.py", 1, "hunk 1: -first = 1"], ["long.py", 42, "hunk 2: -last = 1"]]
    assert new[0].endswith(".diff") and new[2] == "hunk 3: +x = 1", "one that is not there: in the review"
    assert found["after_second"] == LONG.replace("last", "LAST")
    assert [row[2] for row in found["quickfix_after_second"]] == [in_file[0][2], new[2]]
    assert found["n_clients"] == 1, "the review starts no server of its own"


def test_what_stands_beside_a_hunk_can_be_done_there(tmp_path: Path) -> None:
    write_workspace(tmp_path, {"long.py": LONG})
    calls = [edit("first", "FIRST", "long.py"), edit("last = 1\n", "LAST = 1\n", "long.py")]
    found = run_neovim(tmp_path, "lenses", scripted(tmp_path, calls))
    assert {"Apply hunk 1", "Discard hunk 1", "Apply hunk 2", "Discard hunk 2"} <= set(found["lenses"])
    assert found["after_first"] == found["after_discard"] == LONG.replace("first", "FIRST")


def test_one_server_for_all_folders_and_the_doctor(tmp_path: Path) -> None:
    found = play(tmp_path, "folders")
    assert found["n_clients"] == 1
    assert found["folder"] == (tmp_path / "other").as_uri()
    report = found["doctor"]
    assert "Workspace ~" in report and "What a run needs ~" in report
    for folder in ("ws", "other"):
        assert f"- ✅ OK folder {tmp_path / folder}: runs are allowed" in report
    assert any(line.startswith("- ✅ OK jail: ") for line in report)


def test_unsaved_text_is_seen_and_what_is_typed_during_the_run_is_kept(tmp_path: Path) -> None:
    both = edit("# unsaved é 🐸\n" + SOURCE, "# unsaved é 🐸\n" + FIXED)
    found = play(tmp_path, "stale", both, bash("sleep 1"))
    assert found["after"] == "# typed\n# meanwhile\n# unsaved é 🐸\n" + FIXED
    assert found["n_edits"] == 2, "the one that came too late was sent again"


def test_the_same_line_is_a_conflict_and_can_be_dropped(tmp_path: Path) -> None:
    found = play(tmp_path, "conflict", EDIT)
    assert "in conflict" in found["message"]
    assert found["after"] == SOURCE.replace("a - b", "a * b")
    assert (found["state"], found["state_after"]) == ("conflict", "discarded")
    assert "a * b" in found["review"] and "a + b" in found["review"]
    assert not found["review_is_open"]


def test_a_new_file_and_a_deleted_one(tmp_path: Path) -> None:
    found = play(tmp_path, "files", EDIT, NEW, bash("rm gone.py"))
    assert ["gone.py", 1, "hunk 1: -GONE = 1"] in found["quickfix"]
    assert found["disk"] == {"sum.py": SOURCE, "pkg/new.py": "x = 1\ny = 2\n"}
    assert found["state"] == "partly-applied"


def test_a_file_that_was_renamed_meanwhile_loses_nothing(tmp_path: Path) -> None:
    found = play(tmp_path, "renamed", EDIT)
    assert "sum.py" in found["message"] and "applied: sum.py" not in found["message"].removeprefix("FrogNano: not ")
    assert found["state"] in ("proposed", "conflict")
    assert "sum.py" not in found["buffers"]


def test_cancel(tmp_path: Path) -> None:
    found = play(tmp_path, "cancel", SLEEP)
    assert (found["last"], found["status_after"]) == ("cancelled", "")
    assert found["status"].endswith("Bash: sleep 984")
    assert found["cancel_ms"] < 1000


def test_a_second_run_waits_and_a_new_server_knows_both(tmp_path: Path) -> None:
    found = play(tmp_path, "queue", EDIT, bash("sleep 1"))
    assert found["states"] == ["running", "queued"]
    assert found["asked"][0]["items"] == ["* proposed: second (sum.py)", "proposed: first (sum.py)"]
    assert found["after"] == FIXED
    assert [(row["title"], row["state"]) for row in found["rows"]] == [("first", "applied"), ("second", "proposed")]


def test_selected_characters_are_the_issue(tmp_path: Path) -> None:
    found = play(tmp_path, "selection", EDIT)
    issue = json.loads(found["log"].splitlines()[0])["issue"]
    assert re.search(r"selected[^\n]*:\s+🐸 wrong(\n|$)", issue), issue
    assert found["n_clients"] == 1, "the log starts no server of its own"


def test_a_question_waits_for_the_end_of_typing(tmp_path: Path) -> None:
    found = play(tmp_path, "typing", EDIT, ask=True)
    assert (found["mode"], found["n_asked"]) == ("i", 0)
    assert found["after"] == "# typed\n" + FIXED
