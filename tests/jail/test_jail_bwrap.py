"""Backend B with the real bubblewrap: what it needs, what it refuses, and that nothing runs where it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import JailUnavailable
from agent.jail import bwrap, plan
from agent.jail.plan import Plan
from agent.jail.probe import probe_bwrap, probe_by_running
from agent.jail.session import open_session
from agent.jail.spec import JailLimits, JailSpec
from tests.conftest import skip_or_fail
from tests.jail.jailed import REPOSITORY, frog_jail
from tests.jail.test_jail_bombs import BOMBS
from tests.jail.test_jail_closed import EINVAL, ENOSYS, EPERM, sabotaged
from tests.jail.test_jail_session import ask, start, zipapp

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_bwrap")]

NAMESPACE = ("unshare", "--user", "--map-root-user")


@pytest.fixture
def require_bwrap() -> None:
    outcome = probe_bwrap()
    if not outcome.usable:
        skip_or_fail(f"jail `bwrap` cannot be had here: {outcome.reason}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "number", "error"),
    [
        ("mount", 165, EPERM),
        ("pivot_root", 155, EINVAL),
        ("umount2", 166, EPERM),
        ("seccomp", 317, ENOSYS),
        ("prctl", 157, EINVAL),
        ("memfd_create", 319, ENOSYS),
        ("pidfd_open", 434, ENOSYS),
        ("sendmsg", 46, EPERM),
        ("setrlimit", 302, EPERM),
        ("setsid", 112, EPERM),
    ],
)
def test_a_missing_call_means_that_nothing_runs(workspace: Path, call: str, number: int, error: int) -> None:
    done = frog_jail(workspace, "sh", "-c", "echo RAN", before=sabotaged(number, error), backend="bwrap")
    assert done.returncode == 125, done
    assert "RAN" not in done.stdout
    assert done.stderr.splitlines()[-1].startswith("frog-lsp: jail: "), done


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has device nodes to protect")
def test_where_the_device_nodes_cannot_be_protected_root_runs_nothing(workspace: Path) -> None:
    done = frog_jail(workspace, "echo", "RAN", before=sabotaged(442, ENOSYS), backend="bwrap")
    assert (done.returncode, done.stdout) == (125, ""), done
    assert "read-only device" in done.stderr


@pytest.mark.slow
def test_without_user_namespaces_no_backend_runs_anything(workspace: Path) -> None:
    before = (*NAMESPACE, "sh", "-c", 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"', "sh")
    if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
        skip_or_fail("unshare does not work here")
    done = frog_jail(workspace, "echo", "RAN", before=before, backend="bwrap")
    assert (done.returncode, done.stdout) == (125, ""), done
    assert "jail `bwrap` cannot be had" in done.stderr
    assert "sysctl user.max_user_namespaces" in done.stderr
    done = frog_jail(workspace, "echo", "RAN", before=before)
    assert (done.returncode, done.stdout) == (125, ""), done
    assert "no jail can be had: namespaces: " in done.stderr
    assert "bwrap: " in done.stderr


def test_it_stands_in_where_the_better_one_cannot_be_had(workspace: Path) -> None:
    done = frog_jail(workspace, "sh", "-c", "pwd; echo of the command >&2", before=sabotaged(272, EPERM))
    assert (done.returncode, done.stdout) == (0, f"{workspace}\n"), done
    first, second = sorted(done.stderr.splitlines(), key=lambda line: line.startswith("of"))
    assert first.startswith("frog-lsp: jail: Jail backend `namespaces` is not used: ")
    assert second == "of the command"


def test_one_planted_first_on_path_is_not_run(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "bwrap").chmod(0o755)
    before = ("/usr/bin/env", f"PATH={tmp_path}:/usr/bin:/bin")
    done = frog_jail(workspace, "echo", "ok", before=before, backend="bwrap")
    assert done.stdout == "ok\n", done
    assert not (tmp_path / "ran").exists()


def test_a_mount_below_the_workspace_is_copied_too(workspace: Path) -> None:
    (workspace / "mounted").mkdir()
    script = f'mount -t tmpfs x "{workspace}/mounted" && echo seen >"{workspace}/mounted/f" && exec "$@"'
    before = (*NAMESPACE, "--mount", "sh", "-c", script, "sh")
    if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
        skip_or_fail("a mount cannot be made here")
    done = frog_jail(workspace, "sh", "-c", "cat mounted/f; rm mounted/f; ls mounted", before=before, backend="bwrap")
    assert (done.returncode, done.stdout) == (0, "seen\n"), done


def shows_cache(plan: Plan) -> Plan:
    cache = os.environ["XDG_CACHE_HOME"]
    return replace(plan, binds=(*plan.binds, (cache, cache)))


def copies_nothing(plan: Plan) -> Plan:
    return replace(plan, copy=plan.workspace)


@pytest.mark.parametrize(
    ("make_hole", "name"),
    [
        (shows_cache, "a secret of the home can be read"),
        (copies_nothing, "the workspace is the real one"),
    ],
)
async def test_a_hole_is_found(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_hole: Callable[[Plan], Plan], name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = bwrap.plan_bwrap
    monkeypatch.setattr(bwrap, "plan_bwrap", lambda *arguments: make_hole(real(*arguments)))
    marker = zipapp("import sys; open('ran', 'w'); print('RAN', flush=True)")
    with pytest.raises(JailUnavailable, match=name):
        await open_session(JailSpec(workspace=str(workspace)), marker, backend="bwrap")
    assert os.listdir(workspace) == []


@pytest.mark.parametrize("backend", ["namespaces", "bwrap"])
async def test_what_is_hidden_is_empty(workspace: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_HIDDEN", ("/usr/share",))
    session = await start(workspace, backend)
    assert await ask(session, "ls -A /usr/share; touch /usr/share/x 2>/dev/null || echo closed") == "0 b'closed\\n'\n"
    await session.close()


@pytest.mark.parametrize("backend", ["namespaces", "bwrap"])
async def test_the_limit_of_process_numbers_of_an_older_kernel_is_not_touched(
    workspace: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it is of the whole machine."""
    monkeypatch.setattr("agent.jail.host.kernel_version", lambda _: (6, 1))
    session = await start(workspace, backend, limits=JailLimits(processes=100))
    assert int((await ask(session, "cat /proc/sys/kernel/pid_max")).split("'")[1][:-2]) > 400
    await session.close()


@pytest.mark.slow
async def test_a_copy_is_bounded_beyond_what_was_copied(workspace: Path) -> None:
    (workspace / "old").write_bytes(b"x" * (3 << 20))
    session = await start(workspace, "bwrap", limits=JailLimits(view_bytes=4 << 20))
    assert await ask(session, "head -c 2M /dev/urandom >fits; sleep 1; ls") == "0 b'fits\\nold\\n'\n"
    script = "for i in $(seq 1000); do head -c 1M /dev/urandom >f$i; sleep 0.05; done"
    assert (await ask(session, script)).startswith("-9 ")
    await session.close()
    assert any("view_bytes" in note for note in session.notes)


async def test_a_workspace_over_the_budget_of_a_copy_is_not_copied(workspace: Path) -> None:
    for name in "abc":
        (workspace / name).touch()
    spec = JailSpec(workspace=str(workspace), limits=JailLimits(copy_files=2))
    if not await _copies(workspace):
        pytest.skip("this bubblewrap makes an overlay")
    with pytest.raises(JailUnavailable, match=r"too large for a private copy.*2 files"):
        await open_session(spec, b"", backend="bwrap")


async def _copies(workspace: Path) -> bool:
    session = await start(workspace, "bwrap")
    await session.close()
    return session._jailed.copied is not None


def test_the_probe_says_what_bubblewrap_said() -> None:
    async def run(spec: JailSpec, argv: tuple[str, ...], outputs: tuple[int, int]) -> object:
        return await bwrap.start_bwrap(replace(spec, read_only_paths=("/proc/nothing",)), b"", argv, outputs=outputs)

    outcome = probe_by_running(run)  # type: ignore[arg-type]
    assert not outcome.usable
    assert "Can't find source path /proc/nothing" in outcome.reason


# What the kernel bounds for an overlay in memory is counted ten times a second for a copy on disk: a test waits there.
ON_DISK = ("full-view", "empty-files")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BOMBS if name not in ON_DISK])
def test_no_bomb_goes_through(name: str, user: str, place: Path) -> None:
    bomb = BOMBS[name]
    shell = ("python3", "-c") if bomb.is_python else ("bash", "-c")
    is_nobody = user == "ordinary"
    limits = (bomb.limit,)
    done = frog_jail(place, *shell, bomb.script, as_nobody=is_nobody, home=place.parent, limits=limits, backend="bwrap")
    assert not done.stdout[-200:].strip().endswith(bomb.control_says or "all"), done
    assert (done.returncode != 0) == (bomb.code != 0) or done.returncode == 124, done


@pytest.mark.slow
def test_doctor_names_what_is_missed_and_what_is_used(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}]; sys.path += {sys.path!r}\n"
        "from agent.defaults import defaults_from\nfrom agent.doctor import examine\n"
        "for f in examine(defaults_from({})):\n"
        "    if f.name in ('jail', 'in reserve'): print(f.status, f.name, f.message, '|', f.hint)"
    )
    done = subprocess.run(
        [*sabotaged(272, EPERM), sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
    )
    missed, used, *_ = done.stdout.splitlines()
    assert missed.startswith("warning jail Backend `namespaces` cannot be had: "), done
    assert missed.split("|")[1].strip()
    assert used.startswith("ok jail Bubblewrap and seccomp work: Bash runs in a jail (backend `bwrap`)."), done
