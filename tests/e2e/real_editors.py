"""What the tests that drive an installed editor share: a workspace, a script of turns, and no process left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conftest import skip_or_fail
from tests.e2e.lsp_session import own_env
from tests.editors.install import SystemEditor

ROOT = Path(__file__).parents[2]
SOURCE = "def add(a, b):\n    return a - b\n"
FIXED = SOURCE.replace("a - b", "a + b")
EDIT = {"name": "Edit", "arguments": {"file_path": "sum.py", "old_string": "a - b", "new_string": "a + b"}}
SLEEP = {"name": "Bash", "arguments": {"command": "sleep 984"}}
TIMEOUT_S = 100


def require_editor(editor: SystemEditor) -> None:
    """Skip, or fail in CI, where an editor or its plug-in is not installed."""
    if not editor.is_there():
        skip_or_fail(
            f"{editor.name} is not installed: run `make editors`, or apt-get install {' '.join(editor.packages)}"
        )


def write_workspace(tmp_path: Path) -> Path:
    """A repository with a broken file, and one that a run may delete."""
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "sum.py").write_text(SOURCE)
    (workspace / "gone.py").write_text("GONE = 1\n")
    subprocess.run(["git", "init", "-q", workspace], check=True, timeout=30)
    return workspace


def drive(
    tmp_path: Path, command: Sequence[str], calls: Sequence[Any], *, ask: bool = False, **env: str
) -> dict[str, Any]:
    """Run an editor whose server plays one turn with these calls, then a last word; what it wrote to $OUT.

    The editor and everything that it started must be gone soon after it ends.
    """
    script, out = tmp_path / "turns.json", tmp_path / "out.json"
    script.write_text(json.dumps([{"calls": list(calls)}, {"content": "Done."}]))
    options = {"model": {"kind": "scripted", "path": str(script)}, "review": {"ask": ask}}
    mark = f"{tmp_path}"
    process = subprocess.Popen(
        command,
        env={
            **os.environ,
            **own_env(tmp_path / "home"),
            "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "TERM": "dumb",
            "FROG_OPTIONS": json.dumps(options),
            "WS": str(tmp_path / "ws"),
            "OUT": str(out),
            "FROG_TEST": mark,
            **env,
        },
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=TIMEOUT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        left = _end_leftovers(mark)
    assert out.exists(), printed.decode(errors="replace")[-3000:]
    found: dict[str, Any] = json.loads(out.read_text())
    assert "error" not in found, (found, printed.decode(errors="replace")[-3000:])
    assert not left, f"left running: {left}"
    return found


def _end_leftovers(mark: str, patience_s: float = 5.0) -> list[str]:
    """Command lines of processes that were started below the editor and do not end; they are killed."""
    end = time.monotonic() + patience_s
    while (found := _marked(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return list(found.values())


def _marked(mark: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if f"FROG_TEST={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found
