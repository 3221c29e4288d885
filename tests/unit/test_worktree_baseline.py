"""The base of a file: kept before a tool touches it, else the real file with a word on how certain that is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agent.errors import WorkspaceError
from agent.types import FileState
from agent.worktree.baseline import Baseline

TICK_S = 0.02


def test_an_untouched_file_is_its_own_base(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1")
    (tmp_path / "f").chmod(0o644)
    with Baseline(str(tmp_path), {}) as baseline:
        assert baseline.state_of("f") == (FileState(data=b"1"), True)
        assert baseline.state_of("none") == (None, True)
        assert baseline.state_of("f/below") == (None, True)


def test_a_file_that_changed_meanwhile_is_not_certain(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1")
    with Baseline(str(tmp_path), {}) as baseline:
        time.sleep(TICK_S)
        (tmp_path / "f").write_bytes(b"2")
        os.utime(tmp_path / "f", (1, 1))
        assert baseline.state_of("f")[1] is False
        baseline.remember("f")
        assert baseline.state_of("f")[1] is False


def test_a_remembered_file_stays_what_it_was(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1")
    (tmp_path / "f").chmod(0o644)
    with Baseline(str(tmp_path), {}) as baseline:
        baseline.remember("f")
        baseline.remember("missing")
        time.sleep(TICK_S)
        (tmp_path / "f").write_bytes(b"2")
        (tmp_path / "missing").write_bytes(b"3")
        baseline.remember("f")
        assert baseline.state_of("f") == (FileState(data=b"1"), True)
        assert baseline.state_of("missing") == (None, True)


@pytest.mark.parametrize("written", ["d/f", "./d/f", "d/../d//f", "{root}/d/f"])
def test_a_file_is_remembered_however_it_is_written(tmp_path: Path, written: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_bytes(b"1")
    with Baseline(str(tmp_path), {}) as baseline:
        baseline.remember(written.format(root=tmp_path))
        time.sleep(TICK_S)
        (tmp_path / "d/f").write_bytes(b"2")
        state, known = baseline.state_of("d/f")
        assert (state and state.data, known) == (b"1", True)
        baseline.remember("with a\0zero")


def test_paths_that_leave_the_workspace_are_nothing(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    (workspace / "d").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"s")
    (workspace / "link").symlink_to("..")
    with Baseline(str(workspace), {}) as baseline:
        for path in ("../secret", "d/../../secret", "link/secret", "/etc/passwd", "", "."):
            baseline.remember(path)
            state, _ = baseline.state_of(path)
            assert state is None


def test_special_files_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    with Baseline(str(tmp_path), {}) as baseline:
        assert baseline.state_of("fifo") == (FileState(data=None, mode=0o600), True)


def test_no_workspace(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError):
        Baseline(str(tmp_path / "none"), {})
