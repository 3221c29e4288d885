"""A real Vim with ALE, the weakest client, drives the real server through the snippet of `frog-lsp setup vim`.

ALE says that it applies no edits, applies them, never answers, and tells the server of nothing that it did.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Seal
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
from tests.editors.install import VIM

NEW = write("pkg/new.py", "x = 1\n")
DELETE = bash("rm gone.py")
TYPED = "# typed é 🐸\n"
EDIT_TYPED = edit(TYPED + SOURCE, TYPED + FIXED)

pytestmark = [pytest.mark.editor, pytest.mark.jail, pytest.mark.usefixtures("require_jail")]


@pytest.fixture(autouse=True)
def require_vim() -> None:
    require_editor(VIM)


def run_vim(tmp_path: Path, sealed: Seal, scenario: str, *calls: Any) -> dict[str, Any]:
    """Run a scenario of vim_ale.vim; what it wrote. Nothing on disk may change: no scenario saves."""
    workspace = write_workspace(tmp_path)
    snippet = tmp_path / "snippet.vim"
    snippet.write_bytes(print_snippet("vim"))
    sealed(workspace)
    command = [VIM.command(), "-N", "-u", f"{ROOT}/tests/e2e/vim_ale.vim", "-i", "NONE", "-e", "-s"]
    found = drive(tmp_path, command, scripted(tmp_path, calls), SCENARIO=scenario, SNIPPET=str(snippet))
    assert found["disk"] == SOURCE
    return found


def test_what_is_typed_is_seen_and_kept_and_an_edit_without_an_answer_is_found(tmp_path: Path, sealed: Seal) -> None:
    found = run_vim(tmp_path, sealed, "flow", EDIT_TYPED, NEW, DELETE)
    assert any("step 1 of 150 · Edit: sum.py" in line for line in found["steps"])
    assert "+    return a + b" in found["review"]
    assert found["after"] == "# meanwhile\n" + TYPED + FIXED
    assert found["modified"] == 1
    assert found["undone"] == "# meanwhile\n" + TYPED + SOURCE
    assert found["message"].startswith("FrogNano: applied: sum.py; to be done by hand: ")
    assert Path(found["message"].partition("Patch: ")[2]).is_file()
    assert found["apply_s"] < 6, "not the whole time that an answer may take"


def test_a_code_action(tmp_path: Path, sealed: Seal) -> None:
    found = run_vim(tmp_path, sealed, "action", EDIT)
    assert "Fix an issue here with FrogNano" in found["asked"][0]
    assert found["after"] == FIXED


def test_the_same_line_is_a_conflict(tmp_path: Path, sealed: Seal) -> None:
    found = run_vim(tmp_path, sealed, "conflict", EDIT)
    assert found["after"] == SOURCE.replace("a - b", "a * b")
    assert "in conflict" in found["message"]


def test_cancel_leaves_no_process(tmp_path: Path, sealed: Seal) -> None:
    found = run_vim(tmp_path, sealed, "cancel", SLEEP)
    assert found["cancel_s"] < 5
