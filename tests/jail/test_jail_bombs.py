"""What would use up the machine: each is stopped by its limit, and runs where the limit is wide.

The wide run is the control: nowhere else are they harmless.
"""

# ruff: noqa: E501 - commands and small programs, better read in one line

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.jail.conftest import USERS
from tests.jail.jailed import frog_jail

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

_FORKS = "import os, time\ntry:\n for n in range(500):\n  if os.fork() == 0: {child}\n print('all')\nexcept OSError: print('stopped')"
_THREADS = "import threading, time, os\ntry:\n for n in range(500): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n print('all', flush=True)\nexcept RuntimeError: print('stopped', flush=True)\nos._exit(0)"
_BLOCK = (
    "a = bytearray(300 << 20)\nfor i in range(0, len(a), 4096): a[i] = 1\nimport time; time.sleep(0.4); print('all')"
)
_CHILD = "import time; a = b'x' * 80_000_000; time.sleep(0.5)"
_FILES = "try:\n for n in range(1500): open(f'f{n}', 'w').close()\n print('all')\nexcept OSError: print('stopped')"

_SYSTEM_V = "import ctypes, os, time\nlibc = ctypes.CDLL(None, use_errno=True)\ndef call(n):\n if n < 0: raise OSError(ctypes.get_errno(), 'refused')\n return n\n"
_SEMAPHORES = _SYSTEM_V + "for n in range(150): call(libc.semget(0, 32000, 0o1600))\ntime.sleep(0.5); print('all')"
_QUEUES = (
    _SYSTEM_V
    + "text = ctypes.create_string_buffer(b'\\1' + bytes(7) + b'x' * 8000)\nfor n in range(12000): call(libc.msgsnd(call(libc.msgget(0, 0o1600)), text, 8000, 0o4000))\ntime.sleep(0.5); print('all')"
)


@dataclass(frozen=True)
class Bomb:
    """`script` (python3 where it is Python) with its limit, what then comes of it, and the limit of the control.

    `code` and `says` are the exit code and the last line of stdout (or a piece of stderr) with the limit.
    """

    script: str
    limit: str
    code: int
    says: str
    control: str | None
    control_says: str = "all"
    is_python: bool = False


BOMBS = {
    "processes": Bomb(_FORKS.format(child="time.sleep(60); os._exit(0)"), "processes=100", 0, "stopped", "processes=900", is_python=True),
    "zombies": Bomb(_FORKS.format(child="os._exit(0)"), "processes=100", 0, "stopped", "processes=900", is_python=True),
    "threads": Bomb(_THREADS, "processes=100", 0, "stopped", "processes=900", is_python=True),
    "one-block": Bomb(_BLOCK, "memory_bytes=150M", 124, "", "memory_bytes=800M", is_python=True),
    "many-children": Bomb(f"for i in 1 2 3 4; do python3 -c \"{_CHILD}\" & done; wait; echo all", "memory_bytes=200M", 124, "", "memory_bytes=900M"),
    "shared-memory": Bomb("head -c 30M /dev/zero >/dev/shm/x && echo all", "scratch_bytes=8M", 1, "No space left", "scratch_bytes=60M"),
    "memory-without-a-name": Bomb("python3 -c 'import os; os.memfd_create(\"x\"); print(\"all\")'", "memory_bytes=1G", 1, "not implemented", None),
    "full-view": Bomb("head -c 30M /dev/zero >x && echo all", "view_bytes=8M", 1, "No space left", "view_bytes=60M"),
    "full-scratch": Bomb("head -c 20M /dev/zero >~/x && head -c 20M /dev/zero >/tmp/x && echo all", "scratch_bytes=30M", 1, "No space left", "scratch_bytes=80M"),
    "sparse-file": Bomb("exec truncate -s 100M sparse", "file_bytes=1M", 124, "", "file_bytes=200M", ""),
    "large-file": Bomb("exec head -c 2M /dev/zero >large", "file_bytes=1M", 124, "", "file_bytes=3M", ""),
    "empty-files": Bomb(_FILES, "view_inodes=1000", 0, "stopped", "view_inodes=9000", is_python=True),
    "open-files": Bomb("try:\n f = [open('/dev/null') for _ in range(300)]\n print('all')\nexcept OSError: print('stopped')", "open_files=100", 0, "stopped", "open_files=900", is_python=True),
    "processor": Bomb("i=0; while [ $i -lt 90000000 ]; do i=$((i+1)); done", "cpu_s=1", 124, "", None),
    "semaphores": Bomb(_SEMAPHORES, "memory_bytes=150M", 124, "", "memory_bytes=900M", is_python=True),
    "queues": Bomb(_QUEUES, "memory_bytes=50M", 124, "", "memory_bytes=900M", is_python=True),
    "much-output": Bomb("yes 0123456789 | head -c 100000000; echo; echo all", "output_bytes=1M", 124, "", "output_bytes=300M"),
    "endless-line": Bomb("tr '\\0' x </dev/zero", "output_bytes=1M", 124, "", None),
    "sleep": Bomb("sleep 60; echo all", "wall_s=1", 124, "", None),
    "deaf-sleep": Bomb("trap '' TERM INT HUP; sleep 60; sleep 60; echo all", "wall_s=1", 124, "", None),
}  # fmt: skip


def _run(bomb: Bomb, limit: str, place: Path, user: str) -> subprocess.CompletedProcess[str]:
    shell = ("python3", "-c") if bomb.is_python else ("bash", "-c")
    return frog_jail(place, *shell, bomb.script, as_nobody=user == "ordinary", home=place.parent, limits=(limit,))


BY_USER = ("processes", "zombies", "threads", "one-block", "many-children", "open-files", "full-view", "deaf-sleep")
"""The kernel counts and refuses otherwise for root: these are tried as root, too."""


TRIED = [(user, name) for user in USERS for name in BOMBS if user == USERS[-1] or name in BY_USER]


@pytest.mark.slow
@pytest.mark.parametrize(("user", "name"), TRIED, ids=["-".join(pair) for pair in TRIED], indirect=["user"])
def test_bomb(name: str, user: str, place: Path) -> None:
    bomb = BOMBS[name]
    began = time.monotonic()
    done = _run(bomb, bomb.limit, place, user)
    assert done.returncode == bomb.code, (done.returncode, done.stdout[-200:], done.stderr)
    assert bomb.says in (done.stdout[-200:] + done.stderr)
    assert time.monotonic() - began < 30
    assert not bomb.control_says or bomb.control_says not in done.stdout[-200:]
    if bomb.control is not None and user == USERS[-1]:
        wide = _run(bomb, bomb.control, place, user)
        assert wide.returncode == 0, (wide.returncode, wide.stdout[-200:], wide.stderr)
        assert wide.stdout[-200:].strip().endswith(bomb.control_says)


DAEMON = (
    "import os, sys, time, signal\n"
    "if os.fork(): sys.exit()\nos.setsid()\nif os.fork(): os._exit(0)\n"
    "for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"
    "open(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(60)"
)


def _is_alive(mark: str) -> list[int]:
    """The processes of the host, jailed ones too, with `mark` in their command line."""
    found = subprocess.run(
        ["pgrep", "-f", f"^[^ ]*(python|sleep)[^ ]* .*{mark}"], capture_output=True, text=True
    ).stdout
    return [int(line) for line in found.split()]


def test_bomb_of_daemons(user: str, place: Path, tmp_path: Path) -> None:
    """Outside a double fork, setsid and nohup outlive their shell; inside nothing does."""
    mark = f"6{os.getpid()}"
    script = f'python3 -c "{DAEMON}" ready{mark}; setsid sleep {mark} & nohup sleep {mark} >/dev/null & sleep {mark} & while ! test -s ready{mark}; do sleep 0.02; done; echo bye'
    control = subprocess.run(["bash", "-c", script], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20)  # fmt: skip
    alive = _is_alive(mark)
    for pid in alive:
        os.kill(pid, 9)
    assert control.returncode == 0
    assert len(alive) == 4
    while _is_alive(mark):
        time.sleep(0.02)
    began = time.monotonic()
    done = frog_jail(place, "bash", "-c", script, as_nobody=user == "ordinary", home=place.parent)
    assert (done.returncode, done.stdout) == (0, "bye\n"), done
    assert time.monotonic() - began < 20
    assert not _is_alive(mark)


def test_bomb_that_holds_stdout(user: str, place: Path) -> None:
    """Outside a background child keeps the pipe of its shell open; inside the end of the command is the end."""
    script = "sleep 61 & echo bye"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as control:
        assert control.stdout is not None
        control.wait(10)
        os.set_blocking(control.stdout.fileno(), False)
        assert control.stdout.read() == b"bye\n"
        assert control.stdout.read() is None, "no end of the stream: somebody holds it"
        os.killpg(control.pid, 9)
    done = frog_jail(place, "bash", "-c", script, as_nobody=user == "ordinary", home=place.parent)
    assert (done.returncode, done.stdout) == (0, "bye\n"), done
