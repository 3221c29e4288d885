"""Backend C alone: what its supervisor lets through and what not, the consent, the ends, and each missing piece."""

# ruff: noqa: E501 - commands and small programs, better read in one line

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.jail import landlock
from agent.jail.backends import LANDLOCK
from agent.jail.landlock_consent import consent_path, has_consent, store_consent, withdraw_consent
from agent.jail.probe import probe_landlock
from agent.jail.session import JailSession, open_session
from agent.jail.spec import JailSpec
from agent.tools.bundle import runner_bundle
from agent.tools.host import ToolHost
from agent.types import ToolCall
from tests.conftest import Seal, skip_or_fail
from tests.jail.jailed import NOBODY, REPOSITORY, frog_jail
from tests.jail.reduced import BOMBS_STOPPED_OTHERWISE, BOMBS_WITHOUT_A_KERNEL_LIMIT
from tests.jail.test_jail_bombs import BOMBS, TRIED
from tests.jail.test_jail_closed import sabotaged
from tests.support import config_home_with_consent, workspace_hash

pytestmark = pytest.mark.jail

FORBIDDEN = Path(__file__).with_name("landlock_attempts.py")


@pytest.fixture(autouse=True)
def available() -> None:
    outcome = LANDLOCK.probe()
    if not outcome.usable:
        skip_or_fail(f"jail `landlock` cannot be had here: {outcome.reason}")


@pytest.fixture
def agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config_home_with_consent()))


def in_c(place: Path, *argv: str, user: str = "self", **options: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return frog_jail(place, *argv, as_nobody=user == "ordinary", home=place.parent, backend="landlock", **options)


# --- what the supervisor does, and what it refuses ------------------------------------------------------------


def _attempts(shown: Path, victim: int, command: list[str], **options: object) -> dict[str, object]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done
    return dict(json.loads(done.stdout))


@pytest.fixture
def host_folder(user: str) -> Iterator[Path]:
    """A folder of the same user, shown read-only in the jail, with a file that it owns."""
    folder = Path(tempfile.mkdtemp(prefix="frog-shown-"))
    (folder / "file").write_text("host\n")
    if user == "ordinary":
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(folder)], check=True)
        folder.chmod(0o755)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_nothing_of_a_readable_host_file_can_be_changed(user: str, place: Path, host_folder: Path) -> None:
    """Each attempt first works outside; inside the file is open for reading, and belongs to the user."""
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if user == "ordinary" else []
    victim = subprocess.Popen([*drop, "sleep", "100"])
    try:
        arguments = (str(FORBIDDEN), str(host_folder / "file"), str(victim.pid))
        with tempfile.TemporaryDirectory() as folder:  # on the disk of the file, so that it could be linked
            os.chmod(folder, 0o777)
            code = [*drop, "/usr/bin/python3", "-I", *arguments]
            outside = subprocess.run(code, capture_output=True, text=True, timeout=60, cwd=folder)
        control = json.loads(outside.stdout)
        # the unprivileged may not always lift a priority, and a file system may know no flags
        assert {name for name, error in control.items() if error == 0} >= ALWAYS_WORK_OUTSIDE, (control, outside.stderr)
        before = workspace_hash(host_folder, times=True)
        source = FORBIDDEN.read_text()
        done = in_c(
            place, "python3", "-c", source, *arguments[1:], user=user, read_only=(str(host_folder),)
        )  # fmt: skip
        results = json.loads(done.stdout)
        assert set(results) == set(control)
        assert {name: error for name, error in results.items() if error == 0} == {}, results
        assert {results[name] for name in ALWAYS_WORK_OUTSIDE if "mode" in name or "times" in name} == {1}, results
        assert workspace_hash(host_folder, times=True) == before
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


ALWAYS_WORK_OUTSIDE = {
    *("mode", "mode-by-descriptor", "mode-by-proc", "mode-by-link", "mode-by-folder", "mode-2", "mode-empty-path"),
    *("times", "times-by-descriptor", "times-of-a-link-target", "times-old", "times-older", "owner", "owner-of-link"),
    *(
        "owner-by-descriptor",
        "datagrams",
        "unix-socket",
        "a-second-listener",
        "affinity",
        "limits",
        "shm",
        "sem",
        "msg",
    ),
}


SUPERVISED = r"""
import ctypes, os, stat
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs("d/e"); open("d/f", "w").close(); os.symlink("f", "d/l"); os.symlink(os.path.abspath("d"), "abs")
def mode(p): return oct(os.lstat(p).st_mode & 0o7777)
out = []
os.chmod("d/f", 0o640); out.append(mode("d/f"))
os.chmod("d/l", 0o600); out.append(mode("d/f"))
os.chmod("abs/f", 0o604); out.append(mode("d/f"))
os.chmod("d/e/../f", 0o641); out.append(mode("d/f"))
d = os.open("d", os.O_RDONLY); os.chmod("f", 0o642, dir_fd=d); out.append(mode("d/f"))
f = os.open("d/f", os.O_RDWR); os.fchmod(f, 0o643); out.append(mode("d/f"))
os.chmod(f"/proc/self/fd/{f}", 0o644); out.append(mode("d/f"))
assert libc.syscall(452, d, b"f", 0o645, 0) == 0; out.append(mode("d/f"))
assert libc.syscall(452, f, b"", 0o646, 0x1000) == 0; out.append(mode("d/f"))
os.chdir("d/e"); os.chmod("../f", 0o647); out.append(mode("../f")); os.chdir("../..")
os.chmod(os.environ["HOME"], 0o711); out.append(mode(os.environ["HOME"]))
os.chmod(".", 0o755)
os.utime("d/f", ns=(1, 2000000003)); s = os.stat("d/f"); out.append((s.st_atime_ns, s.st_mtime_ns))
os.utime("d/l", ns=(4, 5), follow_symlinks=False); out.append((os.lstat("d/l").st_mtime_ns, os.stat("d/f").st_mtime_ns))
os.utime(f, ns=(6, 7)); out.append(os.stat("d/f").st_mtime_ns)
os.utime("d/f"); out.append(os.stat("d/f").st_mtime_ns > 10**18)
b = ctypes.create_string_buffer(b"".join(n.to_bytes(8, "little") for n in (8, 9)))
assert libc.syscall(132, b"d/f", b) == 0; out.append(os.stat("d/f").st_mtime_ns)
b = ctypes.create_string_buffer(b"".join(n.to_bytes(8, "little") for n in (8, 1, 9, 2)))
assert libc.syscall(235, b"d/f", b) == 0; out.append(os.stat("d/f").st_mtime_ns)
assert libc.syscall(261, d, b"f", b) == 0
b = ctypes.create_string_buffer(b"".join(n.to_bytes(8, "little") for n in (8, (1 << 30) - 2, 9, 11)))
assert libc.syscall(280, f, None, b, 0) == 0; out.append((os.stat("d/f").st_atime_ns, os.stat("d/f").st_mtime_ns))
os.chown("d/f", os.getuid(), -1); os.chown(f, -1, os.getgid()); os.lchown("d/l", -1, -1)
for call in (
    lambda: os.chmod("d/none", 0o600), lambda: os.chmod("d/f/x", 0o600), lambda: os.chmod("x" * 300, 0o600),
    lambda: os.chmod("/" + "x/" * 3000, 0o600), lambda: os.chown("d/f", 4242, -1), lambda: os.fchmod(99, 0),
):
    try: call(); out.append(0)
    except OSError as e: out.append(e.errno)
for number, arguments in ((90, (None, 0o600)), (90, (ctypes.c_void_p(8), 0o600)), (280, (d, b"f", ctypes.c_void_p(8), 0)), (452, (d, b"f", 0, 7))):
    out.append(ctypes.get_errno() if libc.syscall(number, *arguments) else 0)
print(out)
"""


def test_modes_times_and_owners_of_private_files_are_as_the_kernel_does_them(user: str, place: Path) -> None:
    """Whatever is printed outside is what has to be printed inside."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir()
        if user == "ordinary":
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", folder], check=True)
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if user == "ordinary" else []
        if user == "root":  # without its capabilities, as in the jail
            drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--securebits=+noroot"]
        outside = subprocess.run(
            [*drop, "/usr/bin/python3", "-c", SUPERVISED],
            capture_output=True,
            text=True,
            cwd=folder,
            env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
            timeout=60,
        )
        assert outside.returncode == 0, outside
    inside = in_c(place, "/usr/bin/python3", "-c", SUPERVISED, user=user)
    assert inside.stdout == outside.stdout, inside


RACE = r"""
import ctypes, os, threading, time
libc = ctypes.CDLL(None, use_errno=True)
host = __import__("sys").argv[1].encode()
open("own", "w").close(); os.mkdir("d1"); open("d1/file", "w").close(); os.symlink(os.path.dirname(host), "d2")
buffer = ctypes.create_string_buffer(200)
end = time.monotonic() + 2
def flip():
    while time.monotonic() < end:
        ctypes.memmove(buffer, b"own\0", 4); ctypes.memmove(buffer, host + b"\0", len(host) + 1)
def swap():
    n = 0
    while time.monotonic() < end:
        libc.syscall(316, -100, b"d1", -100, b"d2", 2); n += 1   # renameat2 with RENAME_EXCHANGE
threads = [threading.Thread(target=t) for t in (flip, swap)]
[t.start() for t in threads]
done = refused = 0
while time.monotonic() < end:
    for path in (buffer, b"d1/" + os.path.basename(host)):
        if libc.syscall(90, path, 0o666): refused += 1
        else: done += 1
        if libc.syscall(280, -100, path, None, 0): refused += 1
        else: done += 1
[t.join() for t in threads]
print(done, refused)
"""


@pytest.mark.slow
def test_no_race_leads_to_a_host_file(user: str, place: Path, host_folder: Path) -> None:
    """Of a path that changes in memory, and of a folder that becomes a link, while the supervisor looks."""
    before = workspace_hash(host_folder, times=True)
    done = in_c(place, "python3", "-c", RACE, str(host_folder / "file"), user=user)
    n_done, n_refused = map(int, done.stdout.split())
    assert min(n_done, n_refused) > 10, done
    assert workspace_hash(host_folder, times=True) == before


FUZZ = r"""
import ctypes, os, random, sys
libc = ctypes.CDLL(None, use_errno=True)
host, numbers = sys.argv[1], (90, 91, 92, 93, 94, 132, 235, 260, 261, 268, 280, 452)
rnd = random.Random(int(sys.argv[2]))
fds = [os.open(p, f) for p, f in ((".", os.O_RDONLY), (host, os.O_RDONLY), (os.path.dirname(host), os.O_PATH))] + list(os.pipe())
open("own", "w").close(); os.symlink(host, "to-host"); os.symlink("loop", "loop"); os.symlink("/proc/self/root" + host, "magic")
texts = [b"own", b"", b".", b"..", b"/", b"to-host", b"loop", b"magic", b"own/", b"/proc/self/fd/1", b"/dev/fd/99999999", b"/proc/self/cwd/own", host.encode(), b"../" * 40 + host.encode(), b"\xff\n", b"x" * 4095, b"x" * 5000]
texts = [ctypes.create_string_buffer(t) for t in texts]
def argument():
    kind = rnd.randrange(7)
    if kind < 3: return ctypes.c_void_p(ctypes.addressof(rnd.choice(texts)))
    if kind == 3: return ctypes.c_long(rnd.choice(fds))
    if kind == 4: return ctypes.c_long(rnd.choice((-100, -1, 0, 1, 0o600, 0o7777, 0x100, 0x1000, 0x1100, 2**31, 2**32 - 1)))
    return ctypes.c_long(rnd.getrandbits(rnd.choice((8, 32, 47, 63))))
for _ in range(3000):
    libc.syscall(rnd.choice(numbers), *(argument() for _ in range(5)))
os.fchmod(fds[0], 0o755); os.chmod("own", 0o640)
print(oct(os.stat("own").st_mode))
"""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_arguments_confuse_the_supervisor(user: str, place: Path, host_folder: Path, seed: int) -> None:
    before = workspace_hash(host_folder, times=True)
    done = in_c(
        place, "python3", "-c", FUZZ, str(host_folder / "file"), str(seed), user=user, read_only=(str(host_folder),)
    )
    assert (done.returncode, done.stdout) == (0, "0o100640\n"), done
    assert workspace_hash(host_folder, times=True) == before


def test_a_process_that_hides_its_memory_is_none_the_less_supervised(place: Path) -> None:
    script = "import ctypes, os; l = ctypes.CDLL(None); print(l.prctl(4, 0, 0, 0, 0), l.prctl(3, 0, 0, 0, 0)); os.chmod('kept', 0o600)"
    done = in_c(place, "python3", "-c", script)
    assert (done.returncode, done.stdout) == (0, "0 1\n"), done


@pytest.mark.slow
def test_many_ask_at_once_and_some_die_while_they_ask(place: Path) -> None:
    script = (
        "for i in $(seq 8); do (for j in $(seq 40); do chmod 600 kept; done) & done; "
        "for i in $(seq 20); do (while :; do chmod 644 kept; done) & p=$!; sleep 0.02; kill -9 $p; done; wait; chmod 640 kept; stat -c %a kept"
    )
    done = in_c(place, "bash", "-c", script)
    assert (done.returncode, done.stdout) == (0, "640\n"), done


# --- what developers do ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_day_of_work(place: Path) -> None:
    script = """set -e
    git init -q g && cd g && printf 'int main(void){return 0;}' >m.c && chmod 755 m.c && git add m.c && git commit -qm one
    git log --oneline | wc -l; gcc m.c -o m && ./m && touch -d 2001-01-01 m && stat -c %Y m
    git clone -q . ../clone && git worktree add -q ../tree && git stash list && git gc -q
    cd .. && tar cf t.tar g && mkdir out && tar xpf t.tar -C out && stat -c %Y out/g/m && cp -a g copied && install -m 700 kept there && stat -c %a there
    python3 -m venv made && made/bin/pip --version | cut -c1-4 && mktemp -d >/dev/null
    """
    done = in_c(place, "bash", "-lc", script)
    assert (done.returncode, done.stdout) == (0, "1\n978307200\n978307200\n700\npip \n"), done


@pytest.mark.slow
def test_tests_of_a_project_with_pytest(place: Path) -> None:
    script = 'printf \'def test(tmp_path): (tmp_path / "f").write_text("x")\\n\' >test_x.py && python -m pytest -q -p no:cacheprovider test_x.py'
    done = in_c(place, "bash", "-lc", script)
    assert done.returncode == 0, done
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(("user", "name"), TRIED, ids=["-".join(pair) for pair in TRIED], indirect=["user"])
def test_bomb(name: str, user: str, place: Path) -> None:
    bomb = BOMBS[name]
    if user == "root" and name in BOMBS_WITHOUT_A_KERNEL_LIMIT:
        pytest.skip(f"{BOMBS_WITHOUT_A_KERNEL_LIMIT[name]}: see the test of root's processes")
    shell = ("python3", "-c") if bomb.is_python else ("bash", "-c")
    began = time.monotonic()
    done = in_c(place, *shell, bomb.script, user=user, limits=(bomb.limit,))
    if name not in BOMBS_STOPPED_OTHERWISE:
        assert done.returncode == bomb.code, (done.returncode, done.stdout[-200:], done.stderr)
        assert bomb.says in (done.stdout[-200:] + done.stderr)
        assert not bomb.control_says or bomb.control_says not in done.stdout[-200:]
    else:
        code, why = BOMBS_STOPPED_OTHERWISE[name]
        assert done.returncode == code, (why, done.returncode, done.stdout[-200:], done.stderr)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_processes_of_root_are_bound_by_the_watch(place: Path, kind: str) -> None:
    each = (
        "os.fork() or time.sleep(60)"
        if kind == "processes"
        else "threading.Thread(target=time.sleep, args=(60,)).start()"
    )
    script = f"import os, threading, time\nfor n in range(300): {each}\ntime.sleep(60)"
    done = in_c(place, "python3", "-c", script, limits=("processes=100",))
    assert (done.returncode, done.stdout) == (124 if os.geteuid() == 0 else 1, ""), done


# --- consent --------------------------------------------------------------------------------------------------


def test_consent_given_and_withdrawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert not has_consent()
    assert not withdraw_consent()
    store_consent()
    assert has_consent()
    assert stat.S_IMODE(consent_path().stat().st_mode) == 0o600
    assert probe_landlock().hint == ""
    consent_path().chmod(0o622)
    assert not has_consent(), "others may write it"
    consent_path().chmod(0o600)
    assert withdraw_consent()
    assert not has_consent()
    assert "--allow-reduced" in probe_landlock().hint


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"landlock": true}', '{"landlock": null}', '{"files": {}}'])
def test_a_file_that_says_something_else_is_no_consent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    consent_path().parent.mkdir()
    consent_path().write_text(text)
    assert not has_consent()


def frog(*words: str, config: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from lsp_server.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = os.environ | {"XDG_CONFIG_HOME": str(config)}
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, env=environment, timeout=60)


@pytest.mark.slow
def test_the_command_line_gives_it_and_takes_it(workspace: Path, tmp_path: Path) -> None:
    command = ("jail", str(workspace), "--backend", "landlock", "--", "echo", "RAN")
    refused = frog(*command, config=tmp_path)
    assert (refused.returncode, refused.stdout) == (125, "")
    assert "only once you agree" in refused.stderr
    assert "frog-lsp jail --allow-reduced" in refused.stderr
    given = frog("jail", "--allow-reduced", config=tmp_path)
    assert given.returncode == 0, given
    assert "names, but not the contents" in given.stderr
    ran = frog(*command, config=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "RAN\n"), ran
    assert frog("jail", "--forbid-reduced", config=tmp_path).returncode == 0
    assert frog(*command, config=tmp_path).returncode == 125
    mixed = frog("jail", str(workspace), "--allow-reduced", "--", "echo", config=tmp_path)
    assert mixed.returncode == 125
    assert not has_consent_in(tmp_path)


def has_consent_in(config: Path) -> bool:
    return "landlock" in json.loads((config / "frog-lsp" / "jail-consent.json").read_text())


async def tools_of(workspace: Path) -> tuple[JailSession, ToolHost]:
    session = await open_session(JailSpec(workspace=str(workspace)), runner_bundle(), backend="landlock")
    host = ToolHost(session.reader, session.writer, moved=session.moved)
    await host.start()
    return session, host


async def call(host: ToolHost, name: str, **arguments: object) -> str:
    return (await host.execute(ToolCall(name=name, arguments=arguments))).text


async def test_without_consent_four_tools_work_and_bash_says_one_sentence(
    workspace: Path, sealed: Seal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (workspace / "f").write_text("old\n")
    sealed(workspace)
    session, host = await tools_of(workspace)
    assert session.info.root is None
    assert session.info.reduced == landlock.REDUCED_WITHOUT_BASH
    for command in ("true", "echo RAN"):
        answer = await call(host, "Bash", command=command)
        assert answer == "PermissionError: Bash is not available: commands cannot be jailed on this machine"
    assert await call(host, "Read", file_path="f") == "f\n1. old"
    assert "Edited" in await call(host, "Edit", file_path="f", old_string="old", new_string="new")
    assert await call(host, "Write", file_path=f"{workspace}/made", content="x") == "Wrote made (1 bytes)."
    assert await call(host, "Glob", pattern="*") == "f\nmade"
    assert "Error" in await call(host, "Read", file_path="/etc/passwd")
    await host.close()
    view = await session.stop()
    assert sorted(os.listdir(view.upper_fd)) == ["f", "made"]
    os.close(view.upper_fd)
    await session.close()


@pytest.mark.slow
@pytest.mark.usefixtures("agreed")
async def test_the_first_command_says_once_that_it_runs_in_a_copy(workspace: Path, sealed: Seal) -> None:
    (workspace / "f").write_text("old\n")
    sealed(workspace)
    session, host = await tools_of(workspace)
    root = session.info.root
    assert root and root != str(workspace)
    assert await call(host, "Read", file_path=f"{workspace}/f") == "f\n1. old"
    first = await call(host, "Bash", command=f"pwd; cat {workspace}/f; sleep 30 & echo $! >pid", timeout=5)
    assert f"[Commands run in a copy of {workspace} at {root}." in first
    assert "Permission denied" in first
    assert "old" not in first
    assert await call(host, "Read", file_path=f"{root}/f") == "f\n1. old"
    late = await call(host, "Bash", command="echo begun; (sleep 300 & sleep 300)", timeout=1)
    assert late == "Timed out after 1.0s\nSTDOUT:\nbegun\n\nSTDERR:\n"
    assert await call(host, "Bash", command="kill -0 $(cat pid)") == "Exit code: 0\nSTDOUT:\n\nSTDERR:\n"
    await host.close()
    await session.close()
    assert os.path.basename(os.path.dirname(root)) not in os.listdir("/var/tmp")


# --- the end --------------------------------------------------------------------------------------------------

DAEMONS = "setsid sleep {0} & nohup setsid bash -c 'trap \"\" TERM HUP; sleep {0}' & (sleep {0} &) ; sleep {0} & touch started; sleep {0}"


def _living(mark: str) -> list[int]:
    found = subprocess.run(["pgrep", "-f", f"^[^ ]*sleep {mark}"], capture_output=True, text=True).stdout
    return [int(line) for line in found.split()]


def _wait(condition: bool | object, timeout_s: float = 10.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["server", "guardian", "supervisor", "runner"])
def test_nothing_is_left_whoever_dies(place: Path, who: str) -> None:
    mark = f"7{os.getpid()}{ord(who[0])}"
    code = (
        f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}]; sys.path += {sys.path!r}; import asyncio\n"
        "from agent.jail.command import run_command\nfrom agent.jail.spec import JailSpec\n"
        "sys.exit(asyncio.run(run_command(JailSpec(workspace=sys.argv[1]), sys.argv[2:], 'landlock')))"
    )
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(place.parent),
        "XDG_CONFIG_HOME": str(config_home_with_consent()),
    }
    command = [sys.executable, "-c", code, str(place), "bash", "-c", DAEMONS.format(mark)]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(lambda: len(_living(mark)) >= 5)
        line = [server.pid]
        for _ in range(3):
            threads = Path(f"/proc/{line[-1]}/task").iterdir()
            line.append(next(int(c) for t in threads for c in (t / "children").read_text().split()))
        os.kill(line[["server", "guardian", "supervisor", "runner"].index(who)], signal.SIGKILL)
        _wait(lambda: not _living(mark))
        assert server.wait(10) != 0
        _wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in line[1:]))
    finally:
        server.kill()
        server.wait()
        for pid in _living(mark):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.usefixtures("agreed")
async def test_what_stays_when_both_of_ours_are_killed_at_once_is_jailed_and_nothing_is_proposed(
    workspace: Path, tmp_path: Path
) -> None:
    """The one way that C cannot hold (see REDUCED): nobody is left who would end the others."""
    mark = f"8{os.getpid()}"
    secret = tmp_path / "secret"
    secret.write_text("s")
    session, host = await tools_of(workspace)
    script = (
        f"sleep {mark} & while sleep 0.05; do cat {secret} && touch read; chmod 777 {secret} && touch changed; done"
    )
    await call(host, "Bash", command=f"(setsid bash -c 'cd $PWD; {script}' >/dev/null 2>&1 &); touch x")
    await asyncio.to_thread(_wait, lambda: _living(mark))
    guardian = session._jailed.process.pid
    threads = os.listdir(f"/proc/{guardian}/task")
    supervisor = next(int(word) for t in threads for word in _read(f"/proc/{guardian}/task/{t}/children").split())
    os.kill(supervisor, signal.SIGSTOP)  # so that it cannot see the other one end
    os.kill(guardian, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    await asyncio.sleep(0.5)
    try:
        (left,) = _living(mark)
        assert "Seccomp:\t2" in _read(f"/proc/{left}/status")
        assert not {"read", "changed"} & set(os.listdir(session.info.root))
        assert stat.S_IMODE(os.stat(secret).st_mode) == 0o644
        with pytest.raises(landlock.JailUnavailable, match="cannot be trusted"):
            await session.stop()
    finally:
        for pid in _living(mark):
            os.killpg(os.getpgid(pid), signal.SIGKILL)
        await host.close()
        await session.close()


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def test_a_command_that_kills_all_that_it_may_kills_only_itself(place: Path) -> None:
    bystander = subprocess.Popen(["sleep", "100"])
    try:
        done = in_c(place, "bash", "-c", "sleep 50 & kill -9 -1; echo survived; kill -9 $$")
        assert (done.returncode, done.stdout) == (137, "survived\n"), done
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.slow
@pytest.mark.usefixtures("agreed")
async def test_cancelling_the_start_leaves_nothing(workspace: Path) -> None:
    folders = set(os.listdir("/var/tmp"))
    for delay_s in (0.0, 0.03, 0.1, 0.2, 0.3):
        task = asyncio.create_task(
            open_session(JailSpec(workspace=str(workspace)), runner_bundle(), backend="landlock")
        )
        await asyncio.sleep(delay_s)
        task.cancel()
        try:
            await (await task).close()
        except asyncio.CancelledError:
            continue
    await asyncio.to_thread(_wait, lambda: not _children_of_ours())
    assert {name for name in set(os.listdir("/var/tmp")) - folders if _is_idle(name)} == set()


def _children_of_ours() -> list[str]:
    found = subprocess.run(["pgrep", "-f", "landlock_main"], capture_output=True, text=True).stdout.split()
    return [pid for pid in found if _parent(int(pid)) == os.getpid()]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_idle(name: str) -> bool:
    """Whether a folder that appeared meanwhile is nobody's: others on this machine may have a jail, too."""
    return subprocess.run(["flock", "-n", f"/var/tmp/{name}", "true"], capture_output=True).returncode == 0


# --- closed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "error", "sentence"),
    [
        (444, 38, "the kernel has no Landlock, or it is switched off"),
        (444, 95, "the kernel has no Landlock, or it is switched off"),
        (445, 22, "landlock: Invalid argument"),
        (446, 1, "landlock: Operation not permitted"),
        (317, 38, "seccomp: Function not implemented"),
        (437, 38, "did not prove itself: modes of private files cannot be changed"),
        (434, 38, "Function not implemented"),
        (126, 1, "capset: Operation not permitted"),
        (157, 22, "Invalid argument"),
        (46, 1, "was not ready|launcher died|Operation not permitted"),
        (302, 1, "Operation not permitted"),
    ],
)
def test_each_missing_piece_means_that_nothing_runs(place: Path, number: int, error: int, sentence: str) -> None:
    done = in_c(place, "sh", "-c", "echo RAN; touch ran", before=sabotaged(number, error))
    assert done.returncode == 125, done
    assert "RAN" not in done.stdout
    assert any(words in done.stderr for words in sentence.split("|")), done.stderr
    assert done.stderr.rstrip().splitlines()[-1].startswith("frog-lsp: jail: ")


def test_without_user_notification_nothing_runs(place: Path) -> None:
    """The request that takes a question fails."""
    code = (
        f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}]; import os\n"
        "from agent.jail.launcher import kernel\n"
        "kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, 'nnp')\n"
        "kernel.install_filter([(0x20, 0, 0, 0), (0x15, 0, 3, 16), (0x20, 0, 0, 24), (0x15, 0, 1, 0xC0502100),\n"
        "    (6, 0, 0, 0x50000 | 25), (6, 0, 0, 0x7FFF0000)])\n"
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    done = in_c(place, "sh", "-c", "echo RAN", before=(sys.executable, "-c", code))
    assert (done.returncode, done.stdout) == (125, ""), done
    assert "user notification: Inappropriate ioctl for device" in done.stderr


def test_temporary_files_have_a_bound(place: Path) -> None:
    script = "head -c 20M /dev/zero >~/x; head -c 20M /dev/zero >$TMPDIR/x; sleep 30; echo all"
    done = in_c(place, "bash", "-c", script, limits=("scratch_bytes=30M",))
    assert (done.returncode, done.stdout) == (124, ""), done


@pytest.mark.usefixtures("agreed")
async def test_an_older_landlock_is_not_used(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.jail.launcher.kernel.landlock_version", lambda: 5)
    with pytest.raises(
        landlock.JailUnavailable, match=r"too old \(ABI 5, 6 is needed\): it cannot keep signals inside"
    ):
        await open_session(JailSpec(workspace=str(workspace)), runner_bundle(), backend="landlock")


@pytest.mark.parametrize("is_agreed", [True, False])
def test_it_is_chosen_only_after_the_others(workspace: Path, is_agreed: bool) -> None:
    before = (
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"',
        "sh",
    )
    if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
        skip_or_fail("unshare does not work here")
    agreed = {"XDG_CONFIG_HOME": str(config_home_with_consent())} if is_agreed else {}
    done = frog_jail(workspace, "sh", "-c", "pwd", before=before, set_later=agreed)
    assert "`namespaces` is not used" in done.stderr or "namespaces: " in done.stderr, done
    if is_agreed:
        assert done.returncode == 0, done
        assert done.stdout.startswith("/var/tmp/frog-lsp-view-")
        assert "`bwrap` is not used" in done.stderr
    else:
        assert (done.returncode, done.stdout) == (125, ""), done
        assert "only once you agree to it" in done.stderr


@pytest.mark.usefixtures("agreed")
async def test_a_full_disk_is_a_reason_to_take_the_next(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(landlock, "_furnish", refuse)
    with pytest.raises(landlock.JailUnavailable, match="No space left"):
        await open_session(JailSpec(workspace=str(workspace)), runner_bundle(), backend="landlock")


def test_the_mode_of_a_dropped_root(sealed: Seal) -> None:
    """As root the jail runs as the owner of the workspace, where that one can reach what runs it."""
    if os.geteuid() != 0:
        pytest.skip("this needs root")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        workspace = Path(folder, "w")
        workspace.mkdir()
        (workspace / "f").write_text("x")
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(workspace)], check=True)
        sealed(workspace)
        code = (
            f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}]; sys.path += {sys.path!r}; import asyncio\n"
            "from agent.jail.command import run_command\nfrom agent.jail.spec import JailSpec\n"
            "sys.exit(asyncio.run(run_command(JailSpec(workspace=sys.argv[1]), sys.argv[2:], 'landlock')))"
        )
        environment = {"PATH": "/usr/bin:/bin", "XDG_CONFIG_HOME": str(config_home_with_consent())}
        command = [
            "/usr/bin/python3",
            "-c",
            code,
            str(workspace),
            "sh",
            "-c",
            "id -u; id -G; chmod 600 f; stat -c %a:%u f",
        ]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert done.stdout.split() == [str(NOBODY), str(NOBODY), f"600:{NOBODY}"], done
        sealed.check()
