"""Bash in a real runner process (without a jail: the commands are ours and touch the test's folder alone)."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from agent.types import ToolCall
from tests.runner_process import is_running, running

pytestmark = pytest.mark.skipif(sys.platform != "linux" or shutil.which("bash") is None, reason="needs Linux and bash")


def peak_kib(pid):
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0])


async def gone(pid):
    end = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < end, f"process {pid} is still there"
        await asyncio.sleep(0.02)


async def number_in(path):
    end = time.monotonic() + 20
    while not path.exists() or not path.read_text().strip():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
    return int(path.read_text())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo out; echo err >&2; exit 3", "Exit code: 3\nSTDOUT:\nout\n\nSTDERR:\nerr\n"),
        ("true", "Exit code: 0\nSTDOUT:\n\nSTDERR:\n"),
        ("printf x", "Exit code: 0\nSTDOUT:\nx\nSTDERR:\n"),
        ("kill -9 $$", "Exit code: -9\nSTDOUT:\n\nSTDERR:\n"),
        ("kill -TERM $$", "Exit code: -15\nSTDOUT:\n\nSTDERR:\n"),
        (r"printf 'caf\xe9 \xf0\x9f\x98\x80'", "Exit code: 0\nSTDOUT:\ncaf\ufffd 😀\nSTDERR:\n"),
        (r"printf 'a\r\nb\rc'", "Exit code: 0\nSTDOUT:\na\nb\nc\nSTDERR:\n"),
        (r"printf 'a\0b'", "Exit code: 0\nSTDOUT:\na\0b\nSTDERR:\n"),
        ("cat", "Exit code: 0\nSTDOUT:\n\nSTDERR:\n"),
        ("shopt -q login_shell && echo login", "Exit code: 0\nSTDOUT:\nlogin\n\nSTDERR:\n"),
        ("echo late > >(cat)", "Exit code: 0\nSTDOUT:\nlate\n\nSTDERR:\n"),
        ("trap '' PIPE; trap | grep -c PIPE; yes | head -1", "Exit code: 0\nSTDOUT:\n1\ny\n\nSTDERR:\n"),
        ("a\0b", "ValueError: embedded null byte"),
    ],
)
async def test_observations(tmp_path, command, expected):
    async with running(tmp_path) as run:
        text = await run("Bash", command=command)
        if command.startswith("trap"):
            text = text.partition("\nSTDERR:")[0] + "\nSTDERR:\n"  # yes may complain of the broken pipe
        assert text == expected


async def test_where_it_runs_and_what_it_inherits(tmp_path):
    async with running(tmp_path) as run:
        assert f"STDOUT:\n{tmp_path}\n" in await run("Bash", command="pwd")
        command = "for n in $(seq 0 63); do [ -e /proc/$$/fd/$n ] && echo -n $n,; done"
        assert "STDOUT:\n0,1,2,\n" in await run("Bash", command=command)
        # SIGINT and SIGPIPE work again: Python and the runner ignore them
        ignored = (await run("Bash", command="grep SigIgn /proc/self/status")).split()[5]
        assert int(ignored, 16) & 0x7FFF_FFFF == 0  # above are the real-time signals of the C library


@pytest.mark.parametrize(
    ("n_out", "n_err"), [(29_970, 0), (30_000, 0), (29_000, 5_000), (100_000, 70_000), (0, 40_000)]
)
async def test_the_whole_observation_is_cut_at_30000_characters(tmp_path, n_out, n_err):
    async with running(tmp_path) as run:
        script = f"import sys; sys.stdout.write('é' * {n_out}); sys.stderr.write('😀' * {n_err})"
        text = await run("Bash", command=f'PYTHONUTF8=1 {sys.executable} -c "{script}"')
    whole = f"Exit code: 0\nSTDOUT:\n{'é' * n_out}\nSTDERR:\n{'😀' * n_err}"
    cut = f"{whole[:30_000]}\n[truncated {len(whole) - 30_000} chars]"
    assert text == (whole if len(whole) <= 30_000 else cut)


@pytest.mark.timeout(120)
async def test_a_flood_is_counted_and_not_kept(tmp_path):
    async with running(tmp_path) as run:
        text = await run("Bash", command="head -c 100000000 /dev/zero | tr '\\0' x; echo done >&2")
        n_chars = len("Exit code: 0\nSTDOUT:\n") + 100_000_000 + len("\nSTDERR:\ndone\n")
        assert text.endswith(f"\n[truncated {n_chars - 30_000} chars]")
        assert peak_kib(run.process.pid) < 100_000


@pytest.mark.slow
async def test_a_time_out_kills_the_tree_and_says_what_was_printed(tmp_path):
    command = (
        "echo begun; (trap '' TERM; sleep 301 & echo $! > child; sleep 302) & "
        "setsid sleep 303 & echo $! > own_session; "
        "(setsid bash -c '(sleep 304 & echo $! > double_fork) &'); sleep 305"
    )
    async with running(tmp_path) as run:
        began = time.monotonic()
        text = await run("Bash", command=command, timeout=4)
        assert text == "Timed out after 4.0s\nSTDOUT:\nbegun\n\nSTDERR:\n"
        assert time.monotonic() - began < 12
        for name in ("child", "own_session", "double_fork"):
            await gone(int((tmp_path / name).read_text()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "shown"), [({"timeout": 1500}, "1.5"), ({"timeout_ms": 300}, "0.3"), ({"timeout": 0.2}, "0.2")]
)
async def test_the_words_of_a_time_out(tmp_path, given, shown):
    async with running(tmp_path) as run:
        text = await run("Bash", command="sleep 300", **given)
        assert text == f"Timed out after {shown}s\nSTDOUT:\n\nSTDERR:\n"


async def test_a_background_child_does_not_hold_the_call_and_lives_on(tmp_path):
    async with running(tmp_path) as run:
        began = time.monotonic()
        text = await run("Bash", command="(while sleep 0.05; do echo noise; done) & echo $! > pid; echo done")
        assert time.monotonic() - began < 10
        assert "done" in text
        pid = int((tmp_path / "pid").read_text())
        await run("Read", file_path="pid")
        await run("Bash", command="sleep 0.3")
        assert is_running(pid)  # its output is drained: no SIGPIPE, no full pipe
    await gone(pid)  # and ends with the run


@pytest.mark.slow
async def test_a_daemon_survives_the_time_out_of_a_later_call(tmp_path):
    async with running(tmp_path) as run:
        await run("Bash", command="setsid nohup sleep 301 > /dev/null 2>&1 & echo $! > daemon")
        text = await run("Bash", command="setsid sleep 302 & echo $! > mine; sleep 303", timeout=2)
        assert text.startswith("Timed out after 2.0s")
        assert is_running(int((tmp_path / "daemon").read_text()))
        await gone(int((tmp_path / "mine").read_text()))
        assert "300" not in await run("Bash", command="echo fine")


async def test_everything_ends_with_the_connection(tmp_path):
    async with running(tmp_path) as run:
        await run("Bash", command="setsid sleep 301 & echo $! > daemon")
        task = asyncio.create_task(
            run.host.execute(ToolCall(name="Bash", arguments={"command": "echo $$ > shell; sleep 302"}))
        )
        shell = await number_in(tmp_path / "shell")
        await run.host.close()
        with pytest.raises(Exception, match="closed"):
            await task
    await gone(shell)
    await gone(int((tmp_path / "daemon").read_text()))


async def test_cancel_ends_the_command_at_once_and_the_runner_goes_on(tmp_path):
    async with running(tmp_path) as run:
        command = ToolCall(name="Bash", arguments={"command": "echo $$ > shell; sleep 301"})
        task = asyncio.create_task(run.host.execute(command))
        shell = await number_in(tmp_path / "shell")
        await run.host.cancel()
        assert (await task).text.startswith("Cancelled: ")
        await gone(shell)
        assert "Exit code: 0" in await run("Bash", command="true")


async def test_a_cancelled_task_ends_its_command(tmp_path):
    async with running(tmp_path) as run:
        command = ToolCall(name="Bash", arguments={"command": "echo $$ > shell; sleep 301"})
        task = asyncio.create_task(run.host.execute(command))
        shell = await number_in(tmp_path / "shell")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone(shell)
        assert "Exit code: 0" in await run("Bash", command="true")


@pytest.mark.slow
async def test_the_test_command(tmp_path):
    async with running(tmp_path) as run:
        command = "for i in $(seq 100); do echo out $i; echo err $i >&2; done; exit 7"
        outcome = await run.host.run_tests(command, 60)
        assert outcome.exit_code == 7
        lines = [f"{stream} {i}" for i in range(81, 101) for stream in ("out", "err")]
        assert outcome.tail == "\n".join(lines)
        outcome = await run.host.run_tests("echo begun; sleep 300", 2)
        assert (outcome.exit_code, outcome.tail) == (None, "begun")
        outcome = await run.host.run_tests("head -c 5000000 /dev/zero | tr '\\0' x", 60)
        assert (outcome.exit_code, len(outcome.tail)) == (0, 256 * 1024)


async def test_the_runner_cannot_be_looked_into(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may look into every process")
    async with running(tmp_path) as run:
        assert "Permission denied" in await run("Bash", command="echo forged > /proc/$PPID/fd/1")


async def test_without_bash_there_is_one_answer(tmp_path):
    (tmp_path / "upper").mkdir()
    fixed = "PermissionError: Bash is not available: commands cannot be jailed on this machine"
    for arguments in (("--no-bash",), ("--upper", str(tmp_path / "upper"))):
        async with running(tmp_path, *arguments) as run:
            assert not run.host.has_bash
            assert await run("Bash", command="touch made") == fixed
            assert await run("Bash", command="exit 1", timeout=3) == fixed
            with pytest.raises(Exception, match="cannot be jailed"):
                await run.host.run_tests("true", 5)
    assert not (tmp_path / "made").exists()
