"""The folders that a jail needs on the host: where they lie, and that nothing of them is left."""

# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agent.errors import JailUnavailable
from agent.jail import leftovers
from agent.jail.ground import Ground, hold_copy, hold_visible_layers, refuse_servers
from agent.jail.spec import JailLimits, JailSpec


@pytest.fixture
def unrevealing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "var-tmp"
    folder.mkdir()
    monkeypatch.setattr(leftovers, "_UNREVEALING", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


async def test_a_copy_lies_where_its_path_tells_nothing_and_goes_at_the_end(workspace: Path, unrevealing: Path) -> None:
    (workspace / ".venv").mkdir()
    (workspace / ".venv" / "big").touch()
    (workspace / "f").write_text("x")
    os.mkfifo(workspace / "fifo")
    spec = JailSpec(workspace=str(workspace))
    ground = await hold_copy(spec, bound_over=(f"{workspace}/.venv", "/usr"))
    (folder,) = unrevealing.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert ground.copy is not None
    assert ground.copied is not None
    assert list(ground.copied) == ["f"]
    assert sorted(os.listdir(ground.copy.path)) == [".venv", "f"]
    assert ground.notes == ("1 entries of the workspace are not in the private copy: fifo (a special file).",)
    assert ground.layers is None
    ground.remove()
    assert list(unrevealing.iterdir()) == []


async def test_a_copy_that_is_cancelled_or_refused_leaves_nothing(workspace: Path, unrevealing: Path) -> None:
    for number in range(3000):
        (workspace / f"f{number}").touch()
    task = asyncio.create_task(hold_copy(JailSpec(workspace=str(workspace))))
    while not list(unrevealing.rglob("f1*")):  # noqa: ASYNC110 - a thread makes it
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(unrevealing.iterdir()) == []
    with pytest.raises(JailUnavailable, match="too large"):
        await hold_copy(JailSpec(workspace=str(workspace), limits=JailLimits(copy_files=10)))
    assert list(unrevealing.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_but_nothing_of_others(unrevealing: Path) -> None:
    for name in ("frog-lsp-view-old", "frog-lsp-view-young", "of-somebody"):
        (unrevealing / name / "copy").mkdir(parents=True)
    for name in ("frog-lsp-view-old", "of-somebody"):
        os.utime(unrevealing / name, (1, 1))
    held = hold_visible_layers()
    os.utime(str(held.layers), (1, 1))
    again: Ground = hold_visible_layers()
    assert {path.name for path in unrevealing.iterdir()} == {
        *("frog-lsp-view-young", "of-somebody"),
        *(os.path.basename(str(ground.layers)) for ground in (held, again)),
    }
    held.remove()
    again.remove()


def test_where_there_is_no_such_place_the_cache_folder_is_used(
    tmp_path: Path, unrevealing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_UNREVEALING", str(tmp_path / "nowhere"))
    ground = hold_visible_layers()
    assert str(ground.layers).startswith(str(tmp_path / "cache"))
    ground.remove()


def test_a_bound_folder_with_a_socket_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").touch()
    (tmp_path / "link").symlink_to("/dev/null")
    refuse_servers((str(tmp_path), "/no/such", str(tmp_path / "a" / "f")))
    os.mkfifo(tmp_path / "a" / "pipe")
    with pytest.raises(JailUnavailable, match="a/pipe, which this jail would show, is a socket or a pipe"):
        refuse_servers((str(tmp_path),))
