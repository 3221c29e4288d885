"""A jail with a hole in it is not used, and the error names the hole."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import JailUnavailable
from agent.jail import namespaces
from agent.jail.plan import Plan
from agent.jail.probe import probe_namespaces, probe_namespaces_now
from agent.jail.session import JailSession, open_session
from agent.jail.spec import JailSpec
from tests.jail.jailed import REPOSITORY
from tests.jail.test_jail_closed import sabotaged
from tests.jail.test_jail_session import start, zipapp

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

_plan = namespaces.plan_namespaces


def shows_cache(plan: Plan) -> Plan:
    cache = os.environ["XDG_CACHE_HOME"]
    return replace(plan, binds=(*plan.binds, (cache, cache)))


def covers_workspace(plan: Plan) -> Plan:
    """A read-only bind of the real workspace over the overlay."""
    return replace(plan, over_workspace=((plan.workspace, plan.workspace),))


@pytest.mark.parametrize(
    ("make_hole", "name"),
    [
        (shows_cache, "a secret of the home can be read"),
        (covers_workspace, "the workspace is the real one"),
    ],
)
async def test_a_hole_is_found(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_hole: Callable[[Plan], Plan], name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(namespaces, "plan_namespaces", lambda *arguments: make_hole(_plan(*arguments)))
    marker = zipapp("import sys; open('ran', 'w'); print('RAN', flush=True)")
    with pytest.raises(JailUnavailable, match=name):
        await open_session(JailSpec(workspace=str(workspace)), marker, backend="namespaces")
    assert os.listdir(workspace) == []


async def test_a_hole_is_no_reason_to_run_with_it(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(namespaces, "plan_namespaces", lambda *arguments: shows_cache(_plan(*arguments)))
    session = await open_session(JailSpec(workspace=str(workspace)), zipapp("import sys; sys.stdin.read()"))
    assert session.info.backend in ("bwrap", "landlock", "files")
    assert any("`namespaces` is not used" in note and "did not prove itself" in note for note in session.notes)
    await session.close()


@pytest.mark.parametrize("which", ["launcher", "init"])
async def test_any_process_of_the_jail_may_be_killed(workspace: Path, which: str) -> None:
    session = await start(workspace)
    session.writer.write(b"echo kept >f; touch started; sleep 1000\n")
    launcher = session._jailed.process.pid
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()  # noqa: ASYNC240
    view = await _until_written(session)
    os.kill(launcher if which == "launcher" else int(children[0]), signal.SIGKILL)
    assert await session.reader.read() == b""
    again = await session.stop()
    assert sorted(os.listdir(again.upper_fd)) == ["f", "started"]
    os.close(again.upper_fd)
    os.close(view)
    await session.close()


async def _until_written(session: JailSession) -> int:
    view = os.dup(session._jailed.view_fd())
    while "started" not in os.listdir(view):  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    return view


def test_the_probe_says_yes_once_and_for_all() -> None:
    assert probe_namespaces().usable
    assert probe_namespaces() is probe_namespaces()
    assert probe_namespaces_now().reason == ""


@pytest.mark.parametrize(
    ("number", "error", "reason", "hint"),
    [(272, 1, "unshare", ""), (272, 28, "unshare", "user.max_user_namespaces"), (155, 22, "pivot_root", "")],
)
def test_the_probe_says_why_not(number: int, error: int, reason: str, hint: str) -> None:
    code = (
        f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}]; sys.path += {sys.path!r}\n"
        "from agent.jail.probe import probe_namespaces\noutcome = probe_namespaces()\n"
        "print(outcome.usable, outcome.reason, '|', outcome.hint)"
    )
    done = subprocess.run(
        [*sabotaged(number, error), sys.executable, "-c", code], capture_output=True, text=True, cwd="/", timeout=60
    )
    assert done.stdout.startswith("False "), done
    assert reason in done.stdout.split("|")[0]
    assert hint in done.stdout.split("|")[1]
    assert done.stdout.split("|")[1].strip()
