"""The real `frog-lsp` as a child process, with folders of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.support import workspace_hash

_APPLYING = {"apply", "--apply", "--apply-flagged", "demo"}

FROG = Path(sys.executable).parent / "frog-lsp"


@dataclass(frozen=True)
class Answer:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as exactly one JSON object."""
        assert self.out.count("\n") == 1, self.out
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


class Frog:
    """Runs `frog-lsp` with a home of its own; nothing of the user's settings counts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "FROG_"))}
        self.env |= {
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_DATA_HOME": str(home / "data"),
            "COLUMNS": "80",
        }

    def __call__(self, *arguments: str | Path, stdin: str = "", timeout_s: float = 100.0) -> Answer:
        """Run a command to its end. Folders that it names must be the same afterwards, unless it is to apply."""
        folders = [] if _APPLYING & {str(word) for word in arguments} else [Path(word) for word in arguments]
        before = {folder: workspace_hash(folder, times=True) for folder in folders if (self.home / folder).is_dir()}
        done = subprocess.run(
            [FROG, *map(str, arguments)],
            input=stdin.encode(),
            capture_output=True,
            env=self.env,
            cwd=self.home,
            timeout=timeout_s,
            check=False,
        )
        for folder, hash_before in before.items():
            assert workspace_hash(folder, times=True) == hash_before, f"the real workspace {folder} changed"
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command; the caller ends it."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [FROG, *map(str, arguments)], env=self.env, cwd=self.home, start_new_session=True, **(pipes | options)
        )


def name_of(process: psutil.Process) -> str:
    """The name of a process, "" where it has gone."""
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def is_alive(process: psutil.Process) -> bool:
    """Whether a process still runs."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
