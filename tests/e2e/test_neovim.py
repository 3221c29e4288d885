"""A real Neovim, headless, drives the real server: code action, question, apply, undo, new file, stale, cancel."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import skip_or_fail
from tests.e2e.lsp_client import SERVER
from tests.e2e.lsp_session import own_env

ROOT = Path(__file__).parents[2]
NVIM = ROOT / "build" / "editors" / "venv" / "bin" / "nvim"
SOURCE = "def add(a, b):\n    return a - b\n"
FIXED = SOURCE.replace("a - b", "a + b")
EDIT = {"name": "Edit", "arguments": {"file_path": "sum.py", "old_string": "a - b", "new_string": "a + b"}}
NEW = {"name": "Write", "arguments": {"file_path": "pkg/new.py", "content": "x = 1\ny = 2\n"}}
SLEEP = {"name": "Bash", "arguments": {"command": "sleep 985"}}

pytestmark = [pytest.mark.editor, pytest.mark.jail, pytest.mark.usefixtures("require_jail")]


@pytest.fixture(autouse=True)
def require_neovim() -> None:
    if not NVIM.exists():
        skip_or_fail("Neovim is not installed: run `make editors`")


def drive(tmp_path: Path, scenario: str, *turns: Any, ask: bool = False) -> dict[str, Any]:
    """Run a scenario of neovim.lua in a workspace with one broken file; what it wrote."""
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "sum.py").write_text(SOURCE)
    script = tmp_path / "turns.json"
    script.write_text(json.dumps([*turns, {"content": "Done."}]))
    options = {"model": {"kind": "scripted", "path": str(script)}, "review": {"ask": ask}}
    env = {
        **os.environ,
        **own_env(tmp_path / "home"),
        "PYTHONPATH": str(ROOT),
        "FROG_LUA": str(ROOT / "lsp_server/editors/nvim/lsp/frog.lua"),
        "FROG_CMD": json.dumps(SERVER),
        "FROG_OPTIONS": json.dumps(options),
        "WS": str(workspace),
        "OUT": str(tmp_path / "out.json"),
    }
    command = [
        str(NVIM),
        "--headless",
        "--clean",
        "-i",
        "NONE",
        "-n",
        "-l",
        str(ROOT / "tests/e2e/neovim.lua"),
        scenario,
    ]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, timeout=110, check=False)
    assert (tmp_path / "out.json").exists(), done.stderr.decode()
    found: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    log = tmp_path / "home" / "state" / "nvim" / "lsp.log"
    assert "error" not in found, (found, log.read_text() if log.exists() else "")
    kinds = [event["kind"] for event in found["events"]]
    assert (kinds[0], kinds[-1], kinds.count("begin"), kinds.count("end")) == ("begin", "end", 1, 1)
    return found


def test_from_a_diagnostic_to_the_buffer_and_back(tmp_path: Path) -> None:
    found = drive(tmp_path, "flow", {"calls": [EDIT, NEW]}, ask=True)
    assert found["encoding"] == "utf-8"
    assert found["after"] == FIXED.splitlines()
    assert found["disk"] == SOURCE, "nothing is written before the user writes"
    assert found["new_disk"] is None, "a new file is a buffer until the user writes"
    assert found["disk_after_write"] == FIXED
    assert found["new_after_write"] == "x = 1\ny = 2\n", "no extra blank line"
    assert found["undone"] == SOURCE.splitlines()
    question = found["asked"][1]
    assert question["items"] == ["Review", "Apply", "Discard"]
    assert "2 files" in question["prompt"]
    steps = [event["message"] for event in found["events"]]
    assert "step 1 of 150 · Edit: sum.py" in steps
    assert isinstance(found["events"][0]["token"], str)


def test_the_commands_and_the_quickfix_list(tmp_path: Path) -> None:
    found = drive(tmp_path, "commands", {"calls": [EDIT, NEW]})
    assert any("+    return a + b" in line for line in found["diff"])
    assert found["hunks"] == [["new.py", 1, "hunk 1"], ["sum.py", 1, "hunk 2"]]
    assert found["messages"][0] == "FrogNano: applied: sum.py"
    assert not (tmp_path / "ws" / "pkg").exists()


def test_text_typed_while_the_edit_arrives_is_kept(tmp_path: Path) -> None:
    found = drive(tmp_path, "stale", {"calls": [EDIT]})
    assert found["after"] == ["# typed", *FIXED.splitlines()]
    assert found["messages"][0] == "FrogNano: applied: sum.py"


def test_cancel(tmp_path: Path) -> None:
    found = drive(tmp_path, "cancel", {"calls": [SLEEP]})
    assert found["last"] == "cancelled"
    assert found["cancel_ms"] < 1000
