"""What may be asked of a jail, and what is refused."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from agent.errors import UsageError, WorkspaceError
from agent.jail.spec import JailLimits, JailSpec, checked_workspace, is_within, parse_limits


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "users" / "me"
    (path / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(path))
    return path


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("memory_bytes=512M", "memory_bytes", 512 << 20),
        ("memory=1G", "memory_bytes", 1 << 30),
        ("memory-bytes=2GiB", "memory_bytes", 2 << 30),
        ("view_bytes=4096", "view_bytes", 4096),
        ("cpu=5s", "cpu_s", 5),
        ("wall_s=90", "wall_s", 90),
        ("Processes=64", "processes", 64),
    ],
)
def test_a_limit_is_read(text: str, name: str, value: int) -> None:
    limits = parse_limits([text])
    assert getattr(limits, name) == value
    assert limits == JailLimits().with_limit(text)


@pytest.mark.parametrize(
    "text", ["", "memory", "nothing=1", "cpu_s=-1", "cpu_s=0", "cpu_s=1.5", "cpu_s=x", "memory=9Q", "processes=1K"]
)
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_limits([text])


def test_the_last_of_two_limits_wins() -> None:
    assert parse_limits(["cpu=1", "cpu_s=2"]).cpu_s == 2


@pytest.mark.parametrize(
    "path", ["/", "/etc", "/usr", "/tmp", "/proc/self", "/sys/kernel", "/nowhere/at/all", "/etc/passwd"]
)
def test_a_workspace_that_is_too_much_or_nothing_is_refused(path: str) -> None:
    with pytest.raises(WorkspaceError) as caught:
        checked_workspace(path)
    assert caught.value.hint


def test_homes_and_what_holds_or_is_protected_are_refused(home: Path) -> None:
    for path in (home, home.parent, home / ".ssh", home / ".ssh/.."):
        with pytest.raises(WorkspaceError):
            checked_workspace(str(path))
    (home / "project").mkdir()
    assert checked_workspace(str(home / "project")) == str(home / "project")
    assert checked_workspace("~/project") == str(home / "project")
    (home / ".config").mkdir()
    with pytest.raises(WorkspaceError):  # it holds ~/.config/gh
        checked_workspace(str(home / ".config"))


def test_a_link_to_the_home_is_the_home(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(WorkspaceError):
        checked_workspace(str(tmp_path / "link"))


def test_read_only_paths(home: Path, tmp_path: Path) -> None:
    workspace, data = home / "project", tmp_path / "data"
    workspace.mkdir()
    data.mkdir()
    spec = JailSpec(workspace=str(workspace), read_only_paths=(str(data),)).checked()
    assert spec.read_only_paths == (str(data),)
    for bad in (
        "/",
        "~",
        "~/.ssh",
        "~/.ssh/id",
        str(home.parent),
        "relative",
        str(tmp_path / "missing"),
        "/etc",
        "/run",
    ):
        with pytest.raises(UsageError):
            JailSpec(workspace=str(workspace), read_only_paths=(bad,)).checked()
    (tmp_path / "door").symlink_to(home / ".ssh")
    with pytest.raises(UsageError):
        JailSpec(workspace=str(workspace), read_only_paths=(str(tmp_path / "door"),)).checked()


def test_an_interpreter_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        JailSpec(workspace=str(tmp_path), python=str(tmp_path / "python")).checked()


def test_within() -> None:
    assert is_within("/a/b", "/a")
    assert is_within("/a", "/a")
    assert is_within("/a", "/")
    assert not is_within("/ab", "/a")
    assert not is_within(os.fspath("/a"), "/a/b")


def test_limits_are_told_one_by_one() -> None:
    told = JailLimits(wall_s=90, view_bytes=3 << 20).described()
    assert len(told.split(", ")) == len(fields(JailLimits))
    for text in ("processes 512", "memory 4 GiB", "view 3 MiB", "view inodes 200,000", "cpu 3,600 s", "wall 90 s"):
        assert text in told
