"""What the tests that drive an installed editor share: a workspace, a script of turns, and no process left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conftest import skip_or_fail
from tests.e2e.lsp_session import own_env
from tests.editors.install import Editor

ROOT = Path(__file__).parents[2]
SOURCE = "def add(a, b):\n    return a - b\n"
FIXED = SOURCE.replace("a - b", "a + b")
TIMEOUT_S = 100


def edit(old: str, new: str, path: str = "sum.py") -> dict[str, Any]:
    """A call of Edit."""
    return {"name": "Edit", "arguments": {"file_path": path, "old_string": old, "new_string": new}}


def write(path: str, content: str) -> dict[str, Any]:
    """A call of Write."""
    return {"name": "Write", "arguments": {"file_path": path, "content": content}}


def bash(command: str) -> dict[str, Any]:
    """A call of Bash."""
    return {"name": "Bash", "arguments": {"command": command}}


EDIT = edit("a - b", "a + b")
SLEEP = bash("sleep 984")


def require_editor(*editors: Editor) -> None:
    """Skip, or fail in CI, where an editor or its plug-in is not installed."""
    for editor in editors:
        if not editor.is_there():
            skip_or_fail(f"{editor.name} is not installed: run `{editor.how}`")


def write_workspace(tmp_path: Path, files: Mapping[str, str] | None = None) -> Path:
    """A repository with a broken file, one that a run may delete, and `files`."""
    workspace = tmp_path / "ws"
    for name, text in {"sum.py": SOURCE, "gone.py": "GONE = 1\n", **(files or {})}.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q", workspace], check=True, timeout=30)
    return workspace


def print_snippet(editor: str) -> bytes:
    """What `frog-lsp setup EDITOR` prints."""
    command = [ROOT / ".venv/bin/frog-lsp", "setup", editor]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def scripted(tmp_path: Path, calls: Sequence[Any], *, ask: bool = False) -> dict[str, Any]:
    """Settings of a server whose model plays one turn with these calls, then a last word."""
    script = tmp_path / "turns.json"
    script.write_text(json.dumps([{"calls": list(calls)}, {"content": "Done."}]))
    return {"model": {"kind": "scripted", "path": str(script)}, "review": {"ask": ask}}


def editor_env(tmp_path: Path, options: Mapping[str, Any]) -> dict[str, str]:
    """The environment of an editor: folders of its own, our server on PATH, and where things are."""
    return {
        **os.environ,
        **own_env(tmp_path / "home"),
        "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "FROG_OPTIONS": json.dumps(options),
        "WS": str(tmp_path / "ws"),
        "OUT": str(tmp_path / "out.json"),
        "FROG_TEST": str(tmp_path),
    }


def drive(tmp_path: Path, command: Sequence[str], options: Mapping[str, Any], **env: str) -> dict[str, Any]:
    """Run an editor whose server has these settings; what it wrote to $OUT.

    The editor and everything that it started must be gone soon after it ends.
    """
    out = tmp_path / "out.json"
    process = subprocess.Popen(
        command,
        env={**editor_env(tmp_path, options), **env},
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
        left = end_leftovers(str(tmp_path))
    assert out.exists(), printed.decode(errors="replace")[-3000:]
    found: dict[str, Any] = json.loads(out.read_text())
    assert "error" not in found, (found, printed.decode(errors="replace")[-3000:])
    assert not left, f"left running: {left}"
    return found


def end_leftovers(mark: str, patience_s: float = 5.0, apart_from: str | None = None) -> list[str]:
    """Command lines of processes that were started with FROG_TEST=mark and do not end; they are killed.

    Those whose command line has the words `apart_from` may stay.
    """
    end = time.monotonic() + patience_s
    while (found := _marked(mark, apart_from)) and time.monotonic() < end:
        time.sleep(0.1)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return list(found.values())


def _marked(mark: str, apart_from: str | None) -> dict[int, str]:
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if f"FROG_TEST={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if apart_from is None or apart_from not in command:
                    found[int(entry.name)] = command
        except OSError:
            continue
    return found
