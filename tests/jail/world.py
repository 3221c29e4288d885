"""A host made of decoys: a home with secrets, servers, a running process, IPC; and what it looks like afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import io
import json
import os
import platform
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any

from agent.jail.syscalls import MACHINES
from tests.jail.jailed import NOBODY, REPOSITORY

HERE = Path(__file__).parent
SOCKET_VARIABLES = (
    *("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "CONTAINER_HOST", "XAUTHLOCALHOST"),
    *("WAYLAND_DISPLAY", "NVIM"),
)
SECRET_FILES = (
    *(".ssh/id_ed25519", ".netrc", ".aws/credentials", ".config/gh/hosts.yml", ".bash_history"),
    ".mozilla/firefox/x.default/cookies.sqlite",
)
LIBC = ctypes.CDLL(None, use_errno=True)


def archive() -> bytes:
    """The attacks as a runner."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        for path in sorted((HERE / "attacks").glob("*.py")):
            name = "__main__.py" if path.name == "__main__.py" else f"attacks/{path.name}"
            bundle.writestr(name, path.read_text())
    return buffer.getvalue()


class User:
    """Who attacks: `root`, an `ordinary` user that root becomes, or the one who runs the tests (`self`)."""

    def __init__(self, name: str) -> None:
        self.name = name
        drop = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        self.prefix = drop if name == "ordinary" else ()
        self.uid = NOBODY if name == "ordinary" else os.geteuid()
        self.python = "/usr/bin/python3" if name == "ordinary" else sys.executable


class World:
    """The decoys, their `targets` for the attacks, and the program that attacks (`control` or `inside`)."""

    def __init__(self, user: User) -> None:
        self.user = user
        self._stack = contextlib.ExitStack()
        self.root = Path(tempfile.mkdtemp(prefix="fw-"))
        self._stack.callback(shutil.rmtree, self.root)
        self.token = "token" + secrets.token_hex(8)
        self.home, self.other_home, self.folder = (self.root / name for name in ("home", "other", "host-folder"))
        self.workspace = self.home / "project"
        self.shown = self.root / "shown"
        self.archive = self.root / "attacks.pyz"
        self._make_files()
        self.servers: list[socket.socket] = []
        self.n_datagrams = 0
        self.targets: dict[str, Any] = {}
        self.seen: dict[str, object] | None = None
        self._make_servers()
        self._make_ipc()
        self._hand_over()
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "AWS_SECRET_ACCESS_KEY": self.token,
            **self.targets["sockets"],
        }
        self._start_victim()
        self._describe()

    def _make_files(self) -> None:
        for folder in (self.home, self.other_home, self.folder, self.workspace, self.root / "cache"):
            folder.mkdir()
        (self.folder / "scratch").mkdir()
        self._make_shown()
        for name in SECRET_FILES:
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(self.token)
        (self.other_home / ".ssh").mkdir()
        (self.other_home / ".ssh/id_ed25519").write_text(self.token)
        for name in ("file", "removable", "twin"):
            (self.folder / name).write_text("host file\n")
        links = {"link_to_secret": self.home / ".netrc", "link_to_home": self.home}
        links |= {"link_to_file": self.folder / "file", "link_to_folder": self.folder}
        for name, target in links.items():
            (self.workspace / name).symlink_to(target)
        os.link(self.folder / "twin", self.workspace / "twin")
        (self.workspace / "kept.py").write_text("kept = True\n")
        self.archive.write_bytes(archive())
        # backend C runs commands only for who agreed to it
        consent = self.home / ".config/frog-lsp/jail-consent.json"
        consent.parent.mkdir(parents=True)
        consent.write_text('{"landlock": {}}')

    def _make_shown(self) -> None:
        """A folder that the user shows to the jail, in which somebody serves a pipe and holds a lock."""
        self.shown.mkdir()
        os.mkfifo(self.shown / "pipe")
        reader = os.open(self.shown / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        lock = os.open(self.shown / "lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for number in (reader, lock):
            self._stack.callback(os.close, number)

    def _serve(self, family: int, address: Any, kind: int = socket.SOCK_STREAM) -> Any:
        server = self._stack.enter_context(socket.socket(family, kind))
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen(16)
            server.setblocking(False)
            self.servers.append(server)
        else:
            threading.Thread(target=self._echo, args=(server,), daemon=True).start()
        return server.getsockname()

    def _echo(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                data, sender = server.recvfrom(100)
                self.n_datagrams += 1
                server.sendto(data, sender)

    def _make_servers(self) -> None:
        t = self.targets
        t["tcp"] = self._serve(socket.AF_INET, ("127.0.0.1", 0))[1]
        t["udp"] = self._serve(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM)[1]
        t["tcp6"] = self._serve(socket.AF_INET6, ("::1", 0))[1]
        t["udp6"] = self._serve(socket.AF_INET6, ("::1", 0), socket.SOCK_DGRAM)[1]
        self._serve(socket.AF_UNIX, f"\0{self.token}")
        (self.root / "run").mkdir()
        t["sockets"] = {name: str(self.root / "run" / name) for name in SOCKET_VARIABLES}
        for path in (*t["sockets"].values(), str(self.workspace / "socket"), str(self.shown / "socket")):
            self._serve(socket.AF_UNIX, path)

    def _make_ipc(self) -> None:
        self.ipc = secrets.randbelow(2**30) + 1
        made = (LIBC.shmget(self.ipc, 4096, 0o1666), LIBC.semget(self.ipc, 1, 0o1666), LIBC.msgget(self.ipc, 0o1666))
        assert min(made) >= 0
        self._stack.callback(LIBC.shmctl, made[0], 0, None)
        self._stack.callback(LIBC.semctl, made[1], 0, 0)
        self._stack.callback(LIBC.msgctl, made[2], 0, None)
        self.shared = Path("/dev/shm", self.token)
        self.shared.write_text(self.token)
        self._stack.callback(self.shared.unlink)
        name = b"/" + self.token.encode()
        queues = ctypes.CDLL("librt.so.1", use_errno=True)
        number = queues.mq_open(name, os.O_CREAT | os.O_RDWR, 0o666, None)
        assert number >= 0
        os.close(number)
        self._stack.callback(queues.mq_unlink, name)

    def _hand_over(self) -> None:
        if self.user.uid != os.geteuid():
            os.chmod(self.root, 0o755)
            os.chown(self.shared, self.user.uid, self.user.uid)
            subprocess.run(["chown", "-Rh", f"{self.user.uid}:{self.user.uid}", str(self.root)], check=True)

    def _start_victim(self) -> None:
        code = "import time; print(flush=True); time.sleep(1000)"
        self.victim = subprocess.Popen(
            [*self.user.prefix, self.user.python, "-I", "-S", "-c", code, "frog-victim"],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
        )
        self._stack.callback(self.victim.wait)
        self._stack.callback(self.victim.kill)
        assert self.victim.stdout is not None
        self._stack.enter_context(self.victim.stdout)
        self.victim.stdout.readline()

    def _describe(self) -> None:
        self.targets |= {
            "token": self.token,
            "home": str(self.home),
            "other_home": str(self.other_home),
            "workspace": str(self.workspace),
            "folder": str(self.folder),
            "shown": str(self.shown),
            "package": str(REPOSITORY),
            "file": str(self.folder / "file"),
            "victim": self.victim.pid,
            "ipc": self.ipc,
            "network": os.readlink("/proc/self/ns/net"),
            "numbers": MACHINES[platform.machine()].numbers,
            "machine": platform.machine(),
        }

    def close(self) -> None:
        self._stack.close()

    def control(self, *namespaces: str) -> Attacker:
        """The attacks on the host itself, or in a throw-away user namespace."""
        wall = ("unshare", *namespaces) if namespaces else ()
        command = [*self.user.prefix, *wall, self.user.python, "-I", "-S", str(self.archive), "--attack"]
        targets = {
            "marks": [str(self.folder)],
            "is_control": True,
            "parent": self.victim.pid,
            "scratch": str(self.folder / "scratch"),
        }
        return Attacker(command, self, targets, cwd=self.folder)

    def inside(self, backend: str) -> Attacker:
        """The attacks in a jail that the user's server opened."""
        command = [*self.user.prefix, self.user.python, str(HERE / "drive.py")]
        command += [str(self.workspace), backend, str(self.archive)]
        if backend == "namespaces":  # the others refuse it, or have no socket at all
            command.append(str(self.shown))
        # a copy is bound from the user's cache folder, and a bind tells its source
        marks = [
            str(self.folder),
            str(self.other_home),
            *([str(self.root / "cache")] if backend == "namespaces" else []),
        ]
        targets = {"marks": marks, "is_control": False, "parent": 1, "scratch": "."}
        if backend != "landlock":
            return Attacker(command, self, targets, cwd=Path("/"))
        # a copy at another path, and the first process of ours that a jailed one might reach
        attacker = Attacker(command, self, targets | {"workspace": "."}, cwd=Path("/"))
        attacker.aim(parent=attacker.supervisor())
        return attacker

    def snapshot(self) -> dict[str, object]:
        """Everything on the host's side that an attack could have changed, or left a trace in."""
        seen: dict[str, object] = {}
        for top in (self.home, self.other_home, self.folder, self.root / "run", self.shown, self.shared):
            for path in (top, *top.rglob("*")):
                seen[str(path)] = _look(path)
        for path in map(Path, ("/dev/null", "/dev/zero", "/dev/tty", "/usr/bin/env", "/etc/passwd", "/etc", "/")):
            seen[str(path)] = _look(path, content=False)
        seen["mounts"] = Path("/proc/self/mountinfo").read_text()
        seen["host name"] = socket.gethostname()
        seen["core pattern"] = Path("/proc/sys/kernel/core_pattern").read_text()
        seen["victim"] = self.victim.poll()
        seen["connections"] = self.drain()
        seen["datagrams"] = self.n_datagrams
        for kind in ("shm", "sem", "msg"):
            rows = Path("/proc/sysvipc", kind).read_text().splitlines()
            seen[kind] = [row for row in rows if row.split()[0] == str(self.ipc)]
        return seen

    def drain(self) -> int:
        """How many connections wait at the servers; they are closed."""
        n_connections = 0
        for server in self.servers:
            with contextlib.suppress(BlockingIOError):
                while True:
                    server.accept()[0].close()
                    n_connections += 1
        return n_connections


def _look(path: Path, *, content: bool = True) -> object:
    info = path.lstat()
    facts = (info.st_mode, info.st_uid, info.st_gid, info.st_nlink, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    if not stat.S_ISREG(info.st_mode) or not content:
        return facts
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return *facts, hashlib.sha256(path.read_bytes()).hexdigest(), attributes


class Attacker:
    """A process that tries one case after the other."""

    def __init__(self, command: list[str], world: World, targets: dict[str, Any], cwd: Path) -> None:
        self._targets = world.targets | targets
        secret = os.open(world.home / ".netrc", os.O_RDONLY)
        self._process = subprocess.Popen(
            command,
            env=world.environment | {"PYTHONPATH": ":".join((str(REPOSITORY), *filter(None, sys.path)))},
            cwd=cwd,
            pass_fds=[secret],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        os.close(secret)
        self.first = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"error": "the attacker is gone"}

    def aim(self, **targets: Any) -> None:
        """Give the attacks from now on other targets."""
        self._targets |= targets

    def supervisor(self) -> int:
        """In backend C: the child of the child of the server."""
        pid = self._process.pid
        for _ in range(2):
            threads = Path(f"/proc/{pid}/task").iterdir()
            (pid,) = (int(child) for thread in threads for child in (thread / "children").read_text().split())
        return pid

    def attempt(self, case: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"case": case, "targets": self._targets}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
