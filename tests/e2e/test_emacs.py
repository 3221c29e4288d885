"""A real Emacs with Eglot, in batch, drives the real server through the snippet that `frog-lsp setup emacs` prints.

Eglot announces no file operations, and the old one answers true to those that it drops: files come as a patch.
"""

from __future__ import annotations

import subprocess
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
from tests.editors.install import EMACS, EMACS_30, Editor

NEW = write("pkg/new.py", "x = 1\n")
DELETE = bash("rm gone.py")
TYPED = "# typed é 🐸\n"
EDIT_TYPED = edit(TYPED + SOURCE, TYPED + FIXED)
# Emacs would compile Eglot, and what the test puts around `message`, anew in every test.
NO_COMPILER = "(setq native-comp-jit-compilation nil native-comp-enable-subr-trampolines nil)"
LONG = "first = 1\n" + "".join(f"line_{n} = {n}\n" for n in range(40)) + "last = 1\n"

pytestmark = [pytest.mark.editor, pytest.mark.jail, pytest.mark.usefixtures("require_jail")]


# What does not depend on how Eglot applies an edit is tested with the old one alone.
OLD_ALONE = pytest.mark.parametrize("emacs", [EMACS], ids=["old"], indirect=True)


@pytest.fixture(params=[EMACS, EMACS_30], ids=["old", "new"])
def emacs(request: pytest.FixtureRequest) -> Editor:
    """The Emacs of the system, and the newest one that Debian has for it."""
    editor: Editor = request.param
    require_editor(editor)
    return editor


def run_emacs(
    tmp_path: Path, sealed: Seal, emacs: Editor, scenario: str, *calls: Any, ask: bool = False
) -> dict[str, Any]:
    """Run a scenario of emacs.el; what it wrote. Nothing on disk may change: no scenario saves."""
    workspace = write_workspace(tmp_path, {"long.py": LONG})
    (tmp_path / "frog.el").write_bytes(print_snippet("emacs"))
    sealed(workspace)
    batch = [emacs.command(), "--batch", "-q", "--eval", NO_COMPILER, "-f", "package-initialize", "-l", "frog.el"]
    found = drive(
        tmp_path, [*batch, "-l", f"{ROOT}/tests/e2e/emacs.el"], scripted(tmp_path, calls, ask=ask), SCENARIO=scenario
    )
    assert found["disk"] == SOURCE
    return found


def test_the_snippet_compiles_without_a_warning(tmp_path: Path, emacs: Editor) -> None:
    (tmp_path / "frog.el").write_bytes(print_snippet("emacs"))
    strictly = ["--eval", "(setq byte-compile-error-on-warn t)", "-f", "batch-byte-compile", "frog.el"]
    done = subprocess.run(
        [emacs.command(), "--batch", "-q", "-f", "package-initialize", *strictly],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (tmp_path / "frog.elc").exists(), done.stderr


def test_unsaved_text_is_seen_and_undo_takes_the_edit_back(tmp_path: Path, sealed: Seal, emacs: Editor) -> None:
    found = run_emacs(tmp_path, sealed, emacs, "flow", EDIT_TYPED)
    assert found["fixing"]
    assert "+    return a + b" in found["review"]
    assert (found["refused"], found["refused_state"]) == (TYPED + SOURCE, "proposed"), "a refusal loses nothing"
    assert found["after"] == TYPED + FIXED
    assert found["modified"] is True
    assert found["state"] == "applied"
    assert found["undone"] == TYPED + SOURCE
    assert found["undone_twice"] == SOURCE
    assert any("step 1 of 150 · Edit: sum.py" in line for line in found["told"])


def test_a_code_action_and_files_that_come_as_a_patch(tmp_path: Path, sealed: Seal, emacs: Editor) -> None:
    found = run_emacs(tmp_path, sealed, emacs, "files", EDIT, NEW, DELETE, ask=True)
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


@OLD_ALONE
def test_a_diagnostic_of_flymake_is_the_issue(tmp_path: Path, sealed: Seal, emacs: Editor) -> None:
    found = run_emacs(tmp_path, sealed, emacs, "diagnostic", EDIT)
    assert "add subtracts" in found["title"]


def test_text_typed_before_and_while_the_edit_arrives_is_kept(tmp_path: Path, sealed: Seal, emacs: Editor) -> None:
    found = run_emacs(tmp_path, sealed, emacs, "stale", EDIT)
    assert found["after"] == "# meanwhile\n# before\n" + FIXED
    assert found["state"] == "applied"
    assert found["n_edits"] == 2, "Eglot refuses an edit for an older version"


@OLD_ALONE
def test_the_same_line_is_a_conflict(tmp_path: Path, sealed: Seal, emacs: Editor) -> None:
    found = run_emacs(tmp_path, sealed, emacs, "conflict", EDIT)
    assert found["after"] == SOURCE.replace("a - b", "a * b")
    assert found["state"] == "conflict"
    assert "in conflict" in found["message"]
    assert "a * b" in found["review"] and "a + b" in found["review"]


def test_parts_runs_and_doctor(tmp_path: Path, sealed: Seal, emacs: Editor) -> None:
    calls = [edit("first", "FIRST", "long.py"), edit("last = 1\n", "LAST = 1\n", "long.py")]
    found = run_emacs(tmp_path, sealed, emacs, "parts", *calls)
    assert found["mode"] == "diff-mode"
    assert found["message"] == "FrogNano: applied: long.py; the rest stays a proposal"
    assert found["after"] == LONG.replace("last", "LAST")
    assert "\n+LAST" in found["review"] and "\n+LAST" not in found["review_after"]
    assert (found["state"], found["discarded"], found["review_is_open"]) == ("partly-applied", "discarded", False)
    assert found["doctor"].startswith("A run is possible here.")


@OLD_ALONE
def test_cancel_leaves_no_process(tmp_path: Path, sealed: Seal, emacs: Editor) -> None:
    found = run_emacs(tmp_path, sealed, emacs, "cancel", SLEEP)
    assert found["cancel_s"] < 3
