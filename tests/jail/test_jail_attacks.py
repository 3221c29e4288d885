"""Attacks on the jail: each that harms nobody is first shown to work outside."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jail.jailed import NOBODY, can_be_nobody, frog_jail, jail
from tests.support import workspace_hash

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

SCRIPT = Path(__file__).with_name("attacks.py")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[dict[str, object]]:
    """A host with a home, a secret, servers and a running process, and a workspace with bait in it."""
    token = "token" + secrets.token_hex(8)
    home, workspace, folder = (tmp_path / name for name in ("home", "ws", "folder"))
    for path in (home, workspace, folder):
        path.mkdir()
    (home / "secret").write_text(token)
    (tmp_path / "host_file").write_text("host\n")
    (workspace / "link_to_secret").symlink_to(home / "secret")
    (workspace / "link_to_home").symlink_to(home)
    (workspace / "link_to_host_file").symlink_to(tmp_path / "host_file")
    (workspace / "file.txt").write_text("x\n")
    shutil.copy(SCRIPT, workspace / "attacks.py")
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        servers = []
        short = stack.enter_context(contextlib.closing(_ShortFolder()))
        for address in (f"\0{token}", f"{short.path}/s"):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(address)
            server.listen()
            servers.append(server)
        in_workspace = stack.enter_context(socket.socket(socket.AF_UNIX))
        here = Path.cwd()
        os.chdir(workspace)
        in_workspace.bind("s")
        os.chdir(here)
        in_workspace.listen()
        program = [sys.executable, "-c", "import time; time.sleep(100)", "frog-victim"]
        victim = subprocess.Popen(program, env={"SECRET": token})
        try:
            yield {
                "token": token,
                "home": str(home),
                "secret": str(home / "secret"),
                "workspace": str(workspace),
                "host_file": str(tmp_path / "host_file"),
                "host_folder": str(folder),
                "port": tcp.getsockname()[1],
                "abstract": token,
                "socket_path": f"{short.path}/s",
                "victim": victim.pid,
            }
            assert victim.poll() is None, "the victim was killed"
        finally:
            victim.kill()
            victim.wait()


class _ShortFolder:
    """A folder whose path leaves room for the name of a socket (108 bytes)."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="s")

    def close(self) -> None:
        shutil.rmtree(self.path)


def _outside(world: dict[str, object]) -> dict[str, bool]:
    environment = os.environ | {"SECRET": str(world["token"])}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(world | {"outside": True}), "outside"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=str(world["workspace"]),
        timeout=60,
    )
    found: dict[str, bool] = json.loads(done.stdout)
    missed = [name for name, worked in found.items() if not worked]
    assert not missed, f"these do not work outside, so they prove nothing: {missed}\n{done.stderr}"
    return found


def test_no_attack_works(world: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    control = _outside(world)
    workspace = Path(str(world["workspace"]))
    monkeypatch.setenv("SECRET", str(world["token"]))
    os.utime(str(world["host_file"]), (1000, 1000))
    before = workspace_hash(workspace), workspace_hash(tmp_path / "home"), os.stat("/dev/null")
    done = jail(workspace, "python3", "attacks.py", json.dumps(world))
    assert done.code == 0, done
    found = json.loads(done.out)
    assert [name for name, worked in found.items() if worked] == []
    assert set(control) < set(found)
    after = workspace_hash(workspace), workspace_hash(tmp_path / "home"), os.stat("/dev/null")
    assert before[:2] == after[:2]
    assert before[2].st_mode == after[2].st_mode
    assert before[2].st_mtime_ns == after[2].st_mtime_ns or after[2].st_mtime > 10
    assert os.stat(str(world["host_file"])).st_mtime == 1000


@pytest.mark.skipif(can_be_nobody() is not None, reason=str(can_be_nobody()))
def test_no_attack_works_for_an_ordinary_user(world: dict[str, object], tmp_path: Path) -> None:
    workspace = Path(str(world["workspace"]))
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/") and str(folder).startswith("/tmp/pytest"):
            os.chmod(folder, 0o755)
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(tmp_path)], check=True)
    done = frog_jail(workspace, "python3", "attacks.py", json.dumps(world), as_nobody=True, home=tmp_path / "home")
    assert done.returncode == 0, done
    found = json.loads(done.stdout)
    assert [name for name, worked in found.items() if worked] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop to the owner")
def test_root_drops_to_the_owner_of_the_workspace(world: dict[str, object], tmp_path: Path) -> None:
    workspace = Path(str(world["workspace"]))
    subprocess.run(["chown", "-R", "1234:1235", str(workspace)], check=True)
    done = jail(workspace, "bash", "-c", "id -u; id -g; echo x >> file.txt && stat -c %u file.txt new 2>&1; touch new")
    assert done.out.splitlines()[:3] == ["1234", "1235", "1234"], done
    done = jail(workspace, "python3", "attacks.py", json.dumps(world))
    assert done.code == 0, done
    assert [name for name, worked in json.loads(done.out).items() if worked] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop to the owner")
def test_a_strict_umask_and_ignored_signals_of_the_server_harm_nothing(workspace: Path) -> None:
    subprocess.run(["chown", "1234:1235", str(workspace)], check=True)
    script = (
        "umask; touch f && stat -c %a f; python3 -c 'import signal; print(signal.getsignal(15), signal.getsignal(1))'"
    )
    sabotage = "umask 077; trap '' TERM HUP CHLD USR1; exec \"$@\""
    done = frog_jail(workspace, "bash", "-c", script, before=("sh", "-c", sabotage, "sh"))
    assert done.stdout.splitlines() == ["0077", "600", "0 0"], done
    assert done.returncode == 0
