"""What developers run must work in the jail."""

# ruff: noqa: E501 - commands and small programs, better read in one line

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jail.jailed import NOBODY, frog_jail, jail, shell
from tests.jail.reduced import COMMANDS_THAT_FAIL

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

# Each line: a name, a tab, a command for bash. A command whose program is missing on this machine is passed over.
COMMANDS = r"""
python	python3 -c 'import ssl, sqlite3, ctypes, decimal, hashlib; hashlib.sha256(b"x")'
unittest	python -m unittest -q test_it
venv	python3 -m venv --without-pip made && made/bin/python -c pass
pool	python3 pool.py
spawn	python3 spawn.py
threads	python3 -c 'import threading; t=[threading.Thread(target=print) for _ in range(50)]; [x.start() for x in t]'
server	python3 server.py
asyncio	python3 -c 'import asyncio; exec("async def f():\n p=await asyncio.create_subprocess_exec(\"true\"); await p.wait()"); asyncio.run(f())'
semaphore	python3 -c 'import multiprocessing as m; m.Semaphore(); from multiprocessing import shared_memory as s; x=s.SharedMemory(create=True, size=9); x.close(); x.unlink()'
pty	python3 -c 'import pty, sys; sys.exit(pty.spawn(["tty"]))'
unix-socket	python3 -c 'import socket; s=socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen(); c=socket.socket(socket.AF_UNIX); c.connect("sock")'
tempfile	python3 -c 'import tempfile; tempfile.TemporaryDirectory()'
copystat	python3 -c 'import shutil; shutil.copy2("src/a.txt", "src/b.txt"); shutil.copytree("src", "tree")'
git	git init -q g && cd g && echo 1 >f && git add f && git commit -qm x && git status -s && rm f && git checkout -q f && git log
tar	tar cf t.tar src && mkdir out && tar xpf t.tar -C out
copy	cp -a src src2 && mv src2 src3 && rm -rf src3
modes	chmod +x src/a.txt && touch -d 2001-01-01 src/a.txt && sed -i s/hello/bye/ src/a.txt
opaque	rm -rf src && mkdir src && echo 1 >src/z && test "$(ls src)" = z
gcc	gcc main.c -o main && ./main
make	make -s
sort	test "$(seq 200000 | sort -R | wc -l)" = 200000
substitution	cat <(echo hi)
heredoc	cat <<<"hi" && mktemp
ps	ps ax
script	script -qec true /dev/null
perl	perl -e 1
node	node -e 'require("http").createServer(()=>{}).listen(0, "127.0.0.1", function () { this.close() })'
df	df .
devices	echo x >/dev/null && head -c 9 /dev/urandom >/dev/zero && test -c /dev/tty && echo x >/dev/stderr
locks	python3 locks.py
sqlite	python3 -c 'import sqlite3; c=sqlite3.connect("data.db"); c.execute("pragma journal_mode=wal"); c.execute("create table t(x)"); c.execute("insert into t values (1)"); c.commit(); assert sqlite3.connect("data.db").execute("select x from t").fetchall() == [(1,)]'
git-of-project	git -C repo log --oneline && echo new >>repo/f && git -C repo diff --stat && git -C repo commit -qam second && test "$(git -C repo rev-list --count HEAD)" = 2
npm	npm test --prefix js --silent
own-home	cd && pwd && echo x >file && test -w /tmp && test -w /dev/shm
identity	id -un && whoami && getent hosts localhost
timeout	timeout 5 true && nice true
"""

FILES = {
    "test_it.py": "import unittest\n\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertTrue(True)\n",
    "pool.py": "import multiprocessing as m\nif __name__ == '__main__':\n    with m.Pool(2) as p:\n        assert p.map(abs, [-1]) == [1]\n",
    "spawn.py": (
        "import multiprocessing as m\nif __name__ == '__main__':\n    p = m.get_context('spawn').Process(target=print)\n"
        "    p.start()\n    p.join()\n    assert p.exitcode == 0\n"
    ),
    "server.py": (
        "import http.server, threading, urllib.request as u\n"
        "s = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
        "threading.Thread(target=s.serve_forever, daemon=True).start()\n"
        "u.urlopen('http://localhost:%d/' % s.server_port).read()\n"
    ),
    "locks.py": (
        "import fcntl, multiprocessing as m, os\n"
        "def work(lock, value):\n    with lock: value.value += 1\n"
        "if __name__ == '__main__':\n    lock, value = m.Lock(), m.Value('i', 0)\n"
        "    ps = [m.Process(target=work, args=(lock, value)) for _ in range(3)]\n"
        "    [p.start() for p in ps]; [p.join() for p in ps]\n    assert value.value == 3\n"
        "    a, b = open('lock', 'w'), open('lock', 'w')\n    fcntl.flock(a, fcntl.LOCK_EX)\n"
        "    try: fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)\n    except BlockingIOError: pass\n    else: raise SystemExit('no lock')\n"
    ),
    "js/package.json": '{"name": "js", "version": "1.0.0", "scripts": {"test": "node test.js"}}\n',
    "js/test.js": "require('assert').strictEqual(1 + 1, 2)\n",
    "main.c": '#include <stdio.h>\nint main(void) { puts("hi"); return 0; }\n',
    "Makefile": "all:\n\ttrue\n",
    "src/a.txt": "hello\n",
}


NAMES = [line.split("\t", 1)[0] for line in COMMANDS.strip().splitlines()]


def _fill(workspace: Path) -> None:
    for name, text in FILES.items():
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text(text)
    script = []
    for line in COMMANDS.strip().splitlines():
        name, command = line.split("\t", 1)
        program = command.split()[0]
        script.append(
            f"if command -v {program} >/dev/null; then if out=$( ( {command} ) 2>&1 ); then echo 'ok {name}';"
            f" else echo 'FAILED {name}' $out; fi; else echo 'missing {name}'; fi"
        )
    (workspace / "all.sh").write_text("\n".join(script))
    repository = workspace / "repo"
    repository.mkdir()
    (repository / "f").write_text("1\n")
    for arguments in (("init", "-q"), ("add", "f"), ("commit", "-qm", "first")):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.invalid", "-C", str(repository))
        subprocess.run(["git", *identity, *arguments], check=True, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def ran(user: str, backend: str) -> Iterator[dict[str, str]]:
    """What each command came to, all in one jail of this user and backend: `ok`, `missing`, or `FAILED` with its output."""
    home = Path(tempfile.mkdtemp(prefix="frog-tools-"))
    project = home / "project"
    project.mkdir()
    _fill(project)
    if user == "ordinary":
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(home)], check=True)
    done = frog_jail(project, "bash", "-lc", "bash all.sh", as_nobody=user == "ordinary", home=home, backend=backend)
    rows = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert [row[1] for row in rows] == NAMES, done
    assert not [path for path in (home / ".cache").rglob("*") if not path.is_dir()]
    yield {row[1]: row[0] + " ".join(("", *row[2:])) for row in rows}
    shutil.rmtree(home)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_developer_tools_work(name: str, ran: dict[str, str], backend: str) -> None:
    if ran[name] == "missing":
        pytest.skip(f"the program of {name} is not on this machine")
    if backend == "landlock" and name in COMMANDS_THAT_FAIL:
        assert ran[name].startswith("FAILED"), f"it works after all: {COMMANDS_THAT_FAIL[name]}"
        return
    assert ran[name] == "ok"


def test_python_is_the_one_of_the_project(workspace: Path) -> None:
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(workspace / ".venv")], check=True)
    done = shell(workspace, "python -c 'import sys; print(sys.prefix)'; command -v python3; touch .venv/x")
    assert done.out.splitlines()[:2] == [f"{workspace}/.venv", f"{workspace}/.venv/bin/python3"]
    assert "Read-only" in done.err


def test_without_a_project_interpreter_python_is_ours(workspace: Path) -> None:
    import sys

    done = shell(workspace, "python -c 'import sys; print(sys.version)'; python3 -c 'import sys; print(sys.prefix)'")
    assert done.out.splitlines()[-1] == sys.prefix
    assert sys.version.splitlines()[0] in done.out


def test_a_planted_interpreter_shows_nothing(workspace: Path, tmp_path: Path) -> None:
    secret = tmp_path / "private"
    (secret / "bin").mkdir(parents=True)
    (secret / "bin" / "python").write_text("#!/bin/sh\n")
    (secret / "bin" / "python").chmod(0o755)
    (workspace / ".venv" / "bin").mkdir(parents=True)
    (workspace / ".venv" / "bin" / "python").symlink_to(secret / "bin" / "python")
    done = shell(workspace, f"ls {secret}; python -c 'print(1)'")
    assert done.out == "1\n"
    assert "No such file" in done.err


def test_the_environment_is_an_allow_list(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LD_PRELOAD", "PYTHONPATH", "BASH_ENV", "GIT_DIR", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "ENV"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    done = jail(workspace, "env")
    names = {line.split("=")[0] for line in done.out.splitlines()}
    assert "/nowhere" not in done.out
    assert {"HOME", "PATH", "LC_ALL", "PAGER", "GIT_TERMINAL_PROMPT", "PIP_NO_INDEX", "UV_OFFLINE"} <= names


def test_read_only_paths_are_shown_and_stay_as_they_are(workspace: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "f").write_text("seen\n")
    done = jail(workspace, "bash", "-c", f"cat {data}/f; echo x >{data}/f", read_only=(str(data),))
    assert done.out == "seen\n"
    assert done.code == 1
    assert (data / "f").read_text() == "seen\n"


@pytest.mark.parametrize("name", ["with space", "comma,colon:quote'", "back\\slash", "ünï", "-dash", "new\nline"])
def test_workspaces_with_odd_names(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.mkdir()
    (path / "f").write_text("1")
    done = jail(path, "python3", "-c", "import os; print(ascii(os.getcwd()), os.listdir()); open('g', 'w')")
    assert done.out == f"{str(path)!a} ['f']\n", done
    assert not (path / "g").exists()
