"""A real Emacs with Eglot, in batch, drives the real server through the snippet that `frog-lsp setup emacs` prints.

Eglot announces no file operations and the old one answers true to those that it drops: files come as a patch.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Seal
from tests.e2e.real_editors import EDIT, FIXED, ROOT, SLEEP, SOURCE, drive, require_editor, write_workspace
from tests.editors.install import EMACS

NEW = {"name": "Write", "arguments": {"file_path": "pkg/new.py", "content": "x = 1\n"}}
DELETE = {"name": "Bash", "arguments": {"command": "rm gone.py"}}
TYPED = "# typed é 🐸\n"
EDIT_TYPED = {
    "name": "Edit",
    "arguments": {
        "file_path": "sum.py",
        "old_string": TYPED + SOURCE,
        "new_string": TYPED + FIXED,
    },
}

pytestmark = [pytest.mark.editor, pytest.mark.jail, pytest.mark.usefixtures("require_jail")]


@pytest.fixture(autouse=True)
def require_emacs() -> None:
    require_editor(EMACS)


def run_emacs(tmp_path: Path, sealed: Seal, scenario: str, *calls: Any, ask: bool = False) -> dict[str, Any]:
    """Run a scenario of emacs.el; what it wrote. Nothing on disk may change: no scenario saves."""
    workspace = write_workspace(tmp_path)
    snippet = subprocess.run(
        [ROOT / ".venv/bin/frog-lsp", "setup", "emacs"], capture_output=True, check=True, timeout=60
    ).stdout
    (tmp_path / "snippet.el").write_bytes(snippet)
    sealed(workspace)
    found = drive(
        tmp_path,
        ["emacs", "--batch", "-q", "-f", "package-initialize", "-l", "snippet.el", "-l", f"{ROOT}/tests/e2e/emacs.el"],
        calls,
        ask=ask,
        SCENARIO=scenario,
    )
    assert found["disk"] == SOURCE
    return found


def test_unsaved_text_is_what_the_run_sees_and_undo_takes_the_edit_back(tmp_path: Path, sealed: Seal) -> None:
    found = run_emacs(tmp_path, sealed, "flow", EDIT_TYPED)
    assert found["fixing"]
    assert "+    return a + b" in found["review"]
    assert (found["refused"], found["refused_state"]) == (TYPED + SOURCE, "proposed"), "a refusal loses nothing"
    assert found["after"] == TYPED + FIXED
    assert found["modified"] is True
    assert found["state"] == "applied"
    assert found["undone"] == TYPED + SOURCE
    assert found["undone_twice"] == SOURCE
    assert any("step 1 of 150 · Edit: sum.py" in line for line in found["told"])


def test_a_code_action_and_files_that_come_as_a_patch(tmp_path: Path, sealed: Seal) -> None:
    found = run_emacs(tmp_path, sealed, "files", EDIT, NEW, DELETE, ask=True)
    assert found["after"] == FIXED
    assert found["state"] == "partly-applied"
    assert "3 files" in found["asked"][1]
    assert found["buffers"] == [str(tmp_path / "ws/sum.py")], "no buffer for a file that is not there"
    said = next(line for line in found["told"] if line.startswith("FrogNano: applied"))
    assert said.startswith("FrogNano: applied: sum.py; to be done by hand: ")
    patch = said.partition("Patch: ")[2]
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "gone.py").write_text("GONE = 1\n")
    subprocess.run(["git", "apply", patch], cwd=copy, check=True, timeout=30)
    assert [p.relative_to(copy).as_posix() for p in copy.rglob("*.py")] == ["pkg/new.py"]


def test_a_diagnostic_of_flymake_is_the_issue(tmp_path: Path, sealed: Seal) -> None:
    found = run_emacs(tmp_path, sealed, "diagnostic", EDIT)
    assert "add subtracts" in found["title"]


def test_text_typed_before_and_while_the_edit_arrives_is_kept(tmp_path: Path, sealed: Seal) -> None:
    found = run_emacs(tmp_path, sealed, "stale", EDIT)
    assert found["after"] == "# meanwhile\n# before\n" + FIXED
    assert found["state"] == "applied"
    assert found["refused"] == "# meanwhile\n# before\n" + SOURCE, "Eglot refuses an edit for an older version"
    assert (found["refused_state"], found["n_edits"]) == ("proposed", 2)


def test_the_same_line_is_a_conflict(tmp_path: Path, sealed: Seal) -> None:
    found = run_emacs(tmp_path, sealed, "conflict", EDIT)
    assert found["after"] == SOURCE.replace("a - b", "a * b")
    assert found["state"] == "conflict"
    assert "in conflict" in found["message"]
    assert "a * b" in found["review"] and "a + b" in found["review"]


def test_cancel_leaves_no_process(tmp_path: Path, sealed: Seal) -> None:
    found = run_emacs(tmp_path, sealed, "cancel", SLEEP)
    assert found["cancel_s"] < 3
