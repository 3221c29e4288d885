"""Sessions: start, frames, stop within a second whatever the runner does, and the view that stays."""

from __future__ import annotations

import asyncio
import io
import os
import shlex
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

from agent.errors import JailUnavailable, UsageError, WorkspaceError
from agent.jail.landlock import REDUCED
from agent.jail.session import JailSession, open_session
from agent.jail.spec import JailLimits, JailSpec
from agent.types import FileState
from agent.worktree.baseline import Baseline
from agent.worktree.collect import Collected, collect
from tests.support import workspace_hash

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

STOP_S = 3.0  # one second is promised; a machine under load is given more

# Runs each line of stdin as a bash script; answers with one line.
RUNNER = """
import subprocess, sys
for line in sys.stdin:
    done = subprocess.run(["bash", "-c", line], stdin=subprocess.DEVNULL, capture_output=True)
    print(done.returncode, done.stdout + done.stderr, flush=True)
"""
FILES_RUNNER = """
import os, sys
upper = sys.argv[sys.argv.index("--upper") + 1]
assert sys.argv[-1] == "--no-bash"
print(sorted(os.environ), flush=True)
for line in sys.stdin:
    open(os.path.join(upper, "made"), "w").write(line)
    print("ok", flush=True)
"""


def zipapp(source: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("__main__.py", source)
    return buffer.getvalue()


async def ask(session: JailSession, script: str) -> str:
    session.writer.write(script.encode() + b"\n")
    await session.writer.drain()
    return (await asyncio.wait_for(session.reader.readline(), 30)).decode()


async def start(workspace: Path, backend: str = "namespaces", **options: object) -> JailSession:
    return await open_session(JailSpec(workspace=str(workspace), **options), zipapp(RUNNER), backend=backend)  # type: ignore[arg-type]


async def collected(session: JailSession, baseline: Baseline) -> Collected:
    view = await session.stop()
    try:
        return collect(view, baseline)
    finally:
        os.close(view.upper_fd)


def alive(mark: str) -> bool:
    return subprocess.run(["pgrep", "-f", mark], capture_output=True).returncode == 0


async def test_a_session_from_start_to_end(workspace: Path, backend: str) -> None:
    (workspace / "f").write_bytes(b"old\n")
    before = workspace_hash(workspace)
    descriptors = len(os.listdir("/proc/self/fd"))
    with Baseline(str(workspace), {}) as baseline:
        session = await start(workspace, backend)
        reduced = REDUCED if backend == "landlock" else None
        assert (session.info.backend, session.info.reduced) == (backend, reduced)
        assert session.notes == ((f"The jail is reduced: {REDUCED}.",) if reduced else ())
        root = session.info.root or workspace
        assert await ask(session, "pwd; echo new > f") == f"0 {f'{root}{chr(10)}'.encode()!r}\n"
        found = await collected(session, baseline)
        assert [(d.path, d.after) for d in found.deltas] == [("f", FileState(data=b"new\n"))]
        again = await collected(session, baseline)
        assert again == found
        await session.close()
        await session.close()
        with pytest.raises(JailUnavailable):
            await session.stop()
    assert workspace_hash(workspace) == before
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1  # the event loop's own


async def test_what_a_hostile_view_holds_is_collected(workspace: Path, backend: str) -> None:
    for name, data in {"a": b"1", "d/x": b"2", "d/y": b"3", "e/z": b"4", "mv/in": b"5", "same": b"6"}.items():
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_bytes(data)
    os.mkfifo(workspace / "fifo")
    await asyncio.sleep(0.02)
    script = (
        "rm -rf d && mkdir d && echo new >d/x; rm -rf e && ln -s / e; mv mv moved; rm a && mkdir a && touch a/in; "
        "mkfifo pipe; ln -s ../.. out; touch same; chmod 755 same; chmod 644 same; ln same hard; "
        "echo x >closed; chmod 000 closed; touch $'\\xff' $'new\\nline' -- -dash; rm -f fifo; mkdir empty"
    )
    with Baseline(str(workspace), {}) as baseline:
        session = await start(workspace, backend)
        assert await ask(session, script) == "0 b''\n"
        found = {d.path: (d.before and d.before.data, d.after) for d in (await collected(session, baseline)).deltas}
        is_copy = session._jailed.copied is not None
        await session.close()
    assert set(found) == {
        *("a", "a/in", "d/x", "d/y", "e", "e/z", "mv/in", "moved/in", "pipe", "out", "hard", "closed"),
        *("\udcff", "new\nline", "-dash"),
        *(() if is_copy else ("fifo",)),  # special files are not copied
    }
    assert session.notes[session.info.reduced is not None :] == (
        ("1 entries of the workspace are not in the private copy: fifo (a special file).",) * is_copy
    )
    assert found["d/x"] == (b"2", FileState(data=b"new\n"))
    assert found["d/y"] == (b"3", None)
    assert found["e"] == (None, FileState(data=None, mode=0o777, link="/"))
    assert found["closed"] == (None, FileState(data=b"x\n", mode=0))
    assert found["moved/in"][1] == FileState(data=b"5")


async def test_stop_is_quick_whatever_runs(workspace: Path, backend: str) -> None:
    mark = f"sleep 1000.{os.getpid()}"
    session = await start(workspace, backend)
    await ask(
        session,
        f"for i in 1 2 3 4 5 6 7 8; do (trap '' TERM INT HUP; setsid {mark}) >/dev/null 2>&1 & done",
    )
    assert alive(mark)
    began = time.monotonic()
    view = await session.stop()
    os.close(view.upper_fd)
    assert not alive(mark)
    assert time.monotonic() - began < STOP_S
    await session.close()


@pytest.mark.slow
@pytest.mark.parametrize("signal_name", ["KILL", "STOP"])
async def test_a_runner_that_its_own_command_ends(workspace: Path, backend: str, signal_name: str) -> None:
    with Baseline(str(workspace), {}) as baseline:
        session = await start(workspace, backend)
        session.writer.write(f"echo kept >f; kill -{signal_name} $PPID; sleep 1000\n".encode())
        if signal_name == "KILL":
            assert await asyncio.wait_for(session.reader.read(), 10) == b""
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.reader.readline(), 1)
        began = time.monotonic()
        found = await collected(session, baseline)
        assert time.monotonic() - began < STOP_S
        assert [d.path for d in found.deltas] == ["f"]
        await session.close()


async def test_memory_is_bounded_and_the_run_goes_on(workspace: Path, backend: str) -> None:
    session = await start(workspace, backend, limits=JailLimits(memory_bytes=200 << 20))
    script = "for i in 1 2 3 4; do python3 -c 'a = b\"x\" * 80_000_000; import time; time.sleep(60)' & done; wait"
    assert (await ask(session, script)).startswith(("0 ", "-9 ", "137 "))
    assert await ask(session, "echo on") == "0 b'on\\n'\n"
    await session.close()
    assert any("memory_bytes" in note for note in session.notes)


async def test_a_flood_on_stderr_blocks_nothing(workspace: Path, backend: str) -> None:
    source = "import sys\nsys.stderr.write('x' * 3_000_000 + 'end')\nprint('ok', flush=True)\nsys.stdin.read()"
    session = await open_session(JailSpec(workspace=str(workspace)), zipapp(source), backend=backend)
    assert await asyncio.wait_for(session.reader.readline(), 10) == b"ok\n"
    await session.close()
    assert session.stderr_tail().endswith("xend")
    assert len(session.stderr_tail()) <= 16_384


async def test_many_at_once_do_not_see_each_other(workspace: Path, backend: str) -> None:
    sessions = await asyncio.gather(*(start(workspace, backend) for _ in range(3)))
    for number, session in enumerate(sessions):
        assert await ask(session, f"ls; echo {number} > f{number}") == "0 b''\n"
    await asyncio.gather(*(session.close() for session in sessions))
    assert os.listdir(workspace) == []


@pytest.mark.slow
async def test_cancelling_the_start_leaves_nothing(workspace: Path, backend: str) -> None:
    for delay_s in (0.0, 0.02, 0.06, 0.12, 0.2):
        task = asyncio.create_task(start(workspace, backend))
        await asyncio.sleep(delay_s)
        task.cancel()
        try:
            session = await task
        except asyncio.CancelledError:
            pass
        else:
            await session.close()
    await asyncio.sleep(0.1)
    assert not alive(f"^{'bash'} .*{workspace}")
    assert not alive(str(workspace))


async def test_the_reduced_backend(workspace: Path) -> None:
    with Baseline(str(workspace), {}) as baseline:
        session = await open_session(JailSpec(workspace=str(workspace)), zipapp(FILES_RUNNER), backend="files")
        assert session.info.backend == "files"
        assert "Bash is not available" in str(session.info.reduced)
        names = await asyncio.wait_for(session.reader.readline(), 10)
        assert names == b"['HOME', 'LANG', 'PATH', 'TMPDIR']\n"
        assert await ask(session, "text") == "ok\n"
        found = await collected(session, baseline)
        await session.close()
    assert [(d.path, d.after and d.after.data) for d in found.deltas] == [("made", b"text\n")]
    assert os.listdir(workspace) == []


async def test_auto_falls_back_with_the_reason_and_never_further(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refuse)
    spec = JailSpec(workspace=str(workspace))
    session = await open_session(spec, zipapp(FILES_RUNNER))
    assert session.info.backend == "files"
    assert any("Function not implemented" in note for note in session.notes)
    await session.close()
    with pytest.raises(JailUnavailable, match="Function not implemented"):
        await open_session(spec, zipapp(RUNNER), backend="namespaces")


async def test_bad_requests(workspace: Path) -> None:
    with pytest.raises(UsageError):
        await open_session(JailSpec(workspace=str(workspace)), b"", backend="none")
    with pytest.raises(WorkspaceError):
        await open_session(JailSpec(workspace="/"), b"")


async def test_a_view_on_disk_where_memory_cannot_hold_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("agent.jail.namespaces.memory_view_works", lambda: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (workspace / "d").mkdir()
    (workspace / "d/old").write_bytes(b"1")
    with Baseline(str(workspace), {}) as baseline:
        session = await start(workspace)
        answer = await ask(session, "rm -rf d && mkdir d && echo 2 >d/new; cat /proc/self/mountinfo; ls -a ~ /tmp")
        assert answer.startswith("0 ")
        assert str(tmp_path / "cache") not in answer
        found = await collected(session, baseline)
        assert [d.path for d in found.deltas] == ["d/new", "d/old"]
        await session.close()
    assert not list((tmp_path / "cache").rglob("view-*"))
    assert not list((tmp_path / "cache").rglob("canary-*"))


async def test_what_a_killed_process_left_is_removed_by_the_next(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "frog-lsp" / "jail" / "view"
    for name in ("view-old/work/work", "view-new"):
        (folder / name).mkdir(parents=True)
    (folder / "view-old/work/work").chmod(0)
    os.utime(folder / "view-old", (1, 1))
    session = await open_session(JailSpec(workspace=str(workspace)), zipapp(FILES_RUNNER), backend="files")
    await session.close()
    assert os.listdir(folder) == ["view-new"]


@pytest.mark.slow
async def test_a_view_on_disk_is_bounded(workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("agent.jail.namespaces.memory_view_works", lambda: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    session = await start(workspace, limits=JailLimits(view_bytes=4 << 20))
    script = "for i in $(seq 1000); do head -c 1M /dev/urandom >f$i; sleep 0.05; done"
    assert (await ask(session, script)).startswith("-9 ")
    view = await session.stop()
    assert 4 < len(os.listdir(view.upper_fd)) < 200
    os.close(view.upper_fd)
    await session.close()
    assert any("view_bytes" in note for note in session.notes)


@pytest.mark.slow
async def test_a_fork_bomb_with_memory_ends_and_the_run_goes_on(workspace: Path, backend: str) -> None:
    session = await start(workspace, backend, limits=JailLimits(memory_bytes=256 << 20, processes=200))
    bomb = (
        "import os\nx = bytearray(10**7)\nwhile True:\n"
        "  try:\n    os.fork()\n    x = bytearray(x)\n  except (OSError, MemoryError):\n    pass\n"
    )
    for _ in range(5):  # a fork that is under way when all are stopped is met now and then
        answer = await ask(session, f"python3 -c {shlex.quote(f'exec({bomb!r})')}")
        assert answer.startswith("-9 ") or "137" in answer
        assert await ask(session, "echo on") == "0 b'on\\n'\n"
    await session.close()


@pytest.mark.parametrize("backend", ["namespaces", "files"])
async def test_a_cache_folder_that_cannot_be_written(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    source = zipapp(FILES_RUNNER if backend == "files" else RUNNER)
    session = await open_session(JailSpec(workspace=str(workspace)), source, backend=backend)
    assert session.info.backend == backend
    await session.close()


async def test_stop_and_close_at_the_same_time(workspace: Path, backend: str) -> None:
    session = await start(workspace, backend)
    await ask(session, "echo x >f")
    began = time.monotonic()
    views = await asyncio.gather(session.stop(), session.stop(), session.stop())
    assert time.monotonic() - began < 2
    for view in views:
        assert os.listdir(view.upper_fd) == ["f"]
        os.close(view.upper_fd)
    await asyncio.gather(session.close(), session.close())
