"""Which folders an interpreter needs, found without running it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent.jail.interpreter import inspect_interpreter, project_interpreter, resolve, runner_executable


def installation(prefix: Path) -> Path:
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib" / "python3.12").mkdir(parents=True)
    (prefix / "lib" / "python3.12" / "os.py").touch()
    python = prefix / "bin" / "python3.12"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    return python


def virtual_environment(folder: Path, base: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\nversion = 3.12\n")
    (folder / "bin" / "python").symlink_to(base)
    return folder / "bin" / "python"


def test_a_venv_shows_itself_and_its_base(tmp_path: Path) -> None:
    base = installation(tmp_path / "base")
    python = virtual_environment(tmp_path / "venv", base)
    found = inspect_interpreter(str(python))
    assert found.shown == (str(tmp_path / "venv"), str(tmp_path / "base"))
    assert found.venv == str(tmp_path / "venv")
    assert found.real == str(base)
    assert found.problem is None


def test_links_on_the_way_are_kept(tmp_path: Path) -> None:
    installation(tmp_path / "py-3.12.1")
    (tmp_path / "py-3.12").symlink_to("py-3.12.1")
    python = virtual_environment(tmp_path / "venv", tmp_path / "py-3.12" / "bin" / "python3.12")
    found = inspect_interpreter(str(python))
    assert (str(tmp_path / "py-3.12"), "py-3.12.1") in found.links
    assert str(tmp_path / "py-3.12.1") in found.shown


def test_a_link_to_anything_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "private" / "bin" / "python"
    secret.parent.mkdir(parents=True)
    secret.write_text("")
    secret.chmod(0o755)
    python = virtual_environment(tmp_path / "ws" / ".venv", secret)
    assert "no Python installation" in str(inspect_interpreter(str(python)).problem)
    assert project_interpreter(str(tmp_path / "ws"), None).executable == sys.executable
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    protected = installation(tmp_path / "home" / ".ssh")
    assert "protected" in str(inspect_interpreter(str(protected)).problem)


def test_loops_and_missing_files_are_problems(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert inspect_interpreter(str(tmp_path / "a")).problem
    assert inspect_interpreter(str(tmp_path / "none")).problem


def test_the_project_comes_first(tmp_path: Path) -> None:
    base = installation(tmp_path / "base")
    python = virtual_environment(tmp_path / "ws" / ".venv", base)
    assert project_interpreter(str(tmp_path / "ws"), None).executable == str(python)
    assert project_interpreter(str(tmp_path / "ws"), str(base)).executable == str(base)
    assert project_interpreter(str(tmp_path), None).executable == sys.executable


def test_resolving_is_what_the_system_does() -> None:
    for path in (sys.executable, "/bin/sh", "/usr/bin/python3", "/proc/self"):
        assert resolve(path)[0] == os.path.realpath(path)
    assert os.access(runner_executable(), os.X_OK)
