"""The watch over what a jail uses on a disk, where hostile processes hide it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.jail import leftovers
from agent.jail.launcher.watch import is_tree_over
from agent.jail.leftovers import remove_path
from tests.conftest import skip_or_fail
from tests.jail.jailed import REPOSITORY, frog_jail

pytestmark = pytest.mark.jail

_MUCH = 1 << 40


def _nest(top: Path, n_folders: int) -> None:
    here = os.open(top, os.O_RDONLY)
    for _ in range(n_folders):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_bytes_and_entries_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "f").write_bytes(b"x" * 100_000)
    os.mkfifo(tmp_path / "a" / "pipe")
    root = os.open(tmp_path, os.O_RDONLY)
    try:
        assert not is_tree_over(root, 150_000, 4)
        assert is_tree_over(root, 50_000, 4)
        assert is_tree_over(root, 150_000, 3)
    finally:
        os.close(root)


def test_a_tree_that_is_nested_out_of_sight_is_too_large(tmp_path: Path) -> None:
    _nest(tmp_path, 1200)
    root = os.open(tmp_path, os.O_RDONLY)
    n_open = len(os.listdir("/proc/self/fd"))
    try:
        assert is_tree_over(root, _MUCH, _MUCH)
    finally:
        os.close(root)
        assert len(os.listdir("/proc/self/fd")) == n_open - 1
        remove_path(str(tmp_path))
    assert not tmp_path.exists()


def test_what_is_open_and_removed_touches_the_reserve(tmp_path: Path) -> None:
    """On a disk of its own, in a throw-away namespace."""
    code = (
        f"import os, sys; sys.path.append({str(REPOSITORY)!r})\n"
        "from agent.jail.launcher.watch import DiskReserve\n"
        "os.chdir(sys.argv[1]); reserve = DiskReserve(os.open('.', os.O_RDONLY))\n"
        "file = open('f', 'wb'); os.unlink('f')\n"
        "for mib in range(7): file.write(bytes(1 << 20)); file.flush(); print(int(reserve.is_touched()), end='')\n"
    )
    script = 'mount -t tmpfs -o size=8M x "$0" && exec "$1" -I -c "$2" "$0"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, str(tmp_path), sys.executable, code],
        capture_output=True,
        text=True,
        timeout=20,
    )
    if "unshare:" in done.stderr:
        skip_or_fail(f"no throw-away namespace here: {done.stderr.strip()}")
    assert done.stdout == "0000001", done.stderr


@pytest.mark.usefixtures("require_jail")
def test_a_deep_copy_is_ended_and_removed(workspace: Path, tmp_path: Path) -> None:
    if not os.path.exists("/usr/bin/bwrap"):
        skip_or_fail("it needs bubblewrap, whose view is on disk")
    (workspace / "kept").touch()
    code = "import os, time\nfor n in range(1100): os.mkdir('d'); os.chdir('d')\ntime.sleep(30)"
    began = time.monotonic()
    done = frog_jail(workspace, "python3", "-c", code, backend="bwrap", home=tmp_path)
    assert done.returncode == 124, done
    assert time.monotonic() - began < 25
    left = [name for name in os.listdir(leftovers._UNREVEALING) if name.startswith("frog-lsp-view-")]
    assert not [name for name in left if "d" in os.listdir(f"{leftovers._UNREVEALING}/{name}/copy")]
