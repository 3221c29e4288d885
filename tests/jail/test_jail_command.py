"""`run_command`: exit codes, streams, limits, and that everything ends."""

# ruff: noqa: E501 - commands and small programs, better read in one line

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.jail.jailed import REPOSITORY, jail, shell
from tests.support import workspace_hash

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]


def _alive(mark: str) -> list[str]:
    found = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if mark in line and "ps axww" not in line]


def test_streams_and_exit_code_are_the_commands(workspace: Path) -> None:
    done = shell(workspace, "echo out; echo err >&2; exit 7")
    assert (done.code, done.out, done.err) == (7, "out\n", "err\n")


@pytest.mark.parametrize("number", [9, 15, 11, 1])
def test_ended_by_a_signal(workspace: Path, number: int) -> None:
    assert jail(workspace, "bash", "-c", f"kill -{number} $$").code == 128 + number


def test_programs_that_cannot_be_started(workspace: Path) -> None:
    (workspace / "plain").write_text("x")
    assert jail(workspace, "no-such-program").code == 127
    assert jail(workspace, "./plain").code == 126
    assert jail(workspace, "/etc/shadow").code == 127


def test_nothing_runs_where_it_cannot_be_jailed(workspace: Path) -> None:
    done = jail(Path("/"), "touch", str(workspace / "ran"))
    assert done.code == 125
    assert done.err.startswith("frog-lsp: jail: ")
    assert done.out == ""
    assert not (workspace / "ran").exists()


def test_a_command_that_speaks_like_the_launcher_is_only_a_command(workspace: Path) -> None:
    script = "echo 'READY'; echo 'frog-lsp: jail: no' >&2; for i in 3 4 5 6 7 8 9; do echo READY >&$i; done 2>/dev/null; exit 125"
    done = shell(workspace, script)
    assert done.code == 125
    assert done.out == "READY\n"


def test_stdin_is_empty_and_argv_is_no_shell(workspace: Path) -> None:
    assert jail(workspace, "cat").code == 0
    assert jail(workspace, "echo", "$HOME", "; touch x").out == "$HOME ; touch x\n"


def test_changes_are_dropped(workspace: Path) -> None:
    (workspace / "f").write_text("old")
    before = workspace_hash(workspace)
    done = shell(workspace, "echo new >f; mkdir d; rm f; echo x >g; ls")
    assert done.out == "d\ng\n"
    assert workspace_hash(workspace) == before


def test_much_output_arrives_whole(workspace: Path) -> None:
    done = jail(workspace, "bash", "-c", "head -c 20000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert len(done.out) == 20_000_000
    assert done.err == "end\n"


def test_everything_dies_with_the_parent(workspace: Path) -> None:
    mark = f"frogparent{os.getpid()}"
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\nimport asyncio\nfrom agent.jail.command import run_command\n"
        "from agent.jail.spec import JailSpec\n"
        f"asyncio.run(run_command(JailSpec(workspace={str(workspace)!r}), ['bash', '-c', 'setsid sleep 1000 & echo up; exec -a {mark} sleep 1000']))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=str(workspace.parent)) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        parent.kill()
    deadline = time.monotonic() + 5
    while _alive(mark + " 1000") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(mark + " 1000")


def test_a_reader_that_goes_away_ends_an_endless_command(workspace: Path) -> None:
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\nimport asyncio\nfrom agent.jail.command import run_command\n"
        "from agent.jail.spec import JailSpec\n"
        f"sys.exit(asyncio.run(run_command(JailSpec(workspace={str(workspace)!r}), ['yes'])))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=str(workspace.parent)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait(timeout=30) == 128 + 13


def _frog_lsp_jail(redirection: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = f'exec "$@" {redirection}'
    front = (sys.executable, "-c", "from lsp_server.cli import main; raise SystemExit(main())", "jail")
    return subprocess.run(
        ["bash", "-c", program, "bash", *front, *words], capture_output=True, text=True, timeout=60, cwd=REPOSITORY
    )


@pytest.mark.parametrize(
    "words",
    [
        ("", "--", "true"),
        ("no/such/folder", "--", "true"),
        ("/", "--", "true"),
        (os.path.expanduser("~"), "--", "true"),
        (__file__, "--", "true"),
        (".", "--"),
        (".", "--", ""),
        (".", "--limit", "bogus=1", "--", "true"),
        (".", "--limit", "cpu_s=x", "--", "true"),
        (".", "--limit", "memory_bytes=9999999T", "--", "true"),
        (".", "--backend", "none", "--", "true"),
        (".", "--read-only", "relative", "--", "true"),
        (".", "--read-only", "/dev/null", "--", "true"),
        (".", "--no-such-option", "--", "true"),
    ],
)
def test_what_cannot_be_jailed_is_125_and_a_line(words: tuple[str, ...]) -> None:
    done = _frog_lsp_jail("", *words)
    assert (done.returncode, done.stdout) == (125, "")
    assert all(line.startswith("frog-lsp: jail: ") for line in done.stderr.splitlines())
    assert done.stderr


def test_arguments_are_the_commands(workspace: Path) -> None:
    done = _frog_lsp_jail("", str(workspace), "--", "printf", "%s ", "--limit", "--", "-x", "a")
    assert (done.returncode, done.stdout) == (0, "--limit -- -x a ")
    assert _frog_lsp_jail("", str(workspace), "--", "-x").returncode == 127


@pytest.mark.parametrize(
    ("redirection", "says"), [(">&-", ""), ("<&-", ""), ("2>&-", ""), (">/dev/full", "No space left")]
)
def test_streams_that_are_closed_or_full(workspace: Path, redirection: str, says: str) -> None:
    done = _frog_lsp_jail(redirection, str(workspace), "--", "sh", "-c", "echo out; exit 3")
    assert done.returncode == 3
    assert says in done.stderr
    assert done.stdout == ("out\n" if redirection[0] != ">" else "")
