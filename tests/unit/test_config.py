"""The user's settings file: whole, private, never half written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.config import load_user_config, make_private_dir, save_user_config, update_user_config, user_config_path
from agent.errors import UsageError


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_nothing_yet() -> None:
    assert load_user_config() == {} and not user_config_path().parent.exists()


def test_round_trip_and_modes() -> None:
    save_user_config({"model": {"path": "/ä/b"}})
    assert load_user_config() == {"model": {"path": "/ä/b"}}
    assert "ä" in user_config_path().read_text(encoding="utf-8")
    assert os.stat(user_config_path()).st_mode & 0o777 == 0o600
    assert os.stat(user_config_path().parent).st_mode & 0o777 == 0o700
    assert os.listdir(user_config_path().parent) == ["config.json"]


def test_folders_are_made_for_this_user_alone_parents_too(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    made = make_private_dir(tmp_path / "state" / "frog-lsp" / "runs")
    assert make_private_dir(made) == made
    for folder in (made, *made.parents[:2]):
        assert os.stat(folder).st_mode & 0o777 == 0o700, folder
    assert os.stat(tmp_path).st_mode & 0o777 == 0o755  # what was there stays as it was


@pytest.mark.parametrize("data", [b"{", b"[]", b"1", b"\xff", b"[" * 100_000])
def test_a_broken_file_is_said_and_kept(data: bytes) -> None:
    user_config_path().parent.mkdir(parents=True)
    user_config_path().write_bytes(data)
    with pytest.raises(UsageError, match=r"config\.json") as caught:
        load_user_config()
    assert caught.value.hint
    with pytest.raises(UsageError):
        update_user_config(lambda settings: settings.clear())
    assert user_config_path().read_bytes() == data


def test_an_empty_file_is_no_settings() -> None:
    user_config_path().parent.mkdir(parents=True)
    user_config_path().write_text("\n")
    assert load_user_config() == {}


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file in the way")
    with pytest.raises(UsageError):
        save_user_config({})


def test_two_processes_lose_nothing() -> None:
    code = (
        "import sys; from agent.config import update_user_config\n"
        "for n in range(20): update_user_config(lambda s: s.__setitem__(sys.argv[1] + str(n), n))"
    )
    root = str(Path(__file__).parents[2])
    processes = [
        subprocess.Popen([sys.executable, "-c", code, name], cwd=root, env={**os.environ, "PYTHONPATH": root})
        for name in "ab"
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert len(load_user_config()) == 40
