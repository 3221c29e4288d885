"""Where the jail cannot be had nothing runs: each missing piece is simulated by failing its system call."""

# ruff: noqa: E501

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conftest import skip_or_fail
from tests.jail.jailed import NOBODY, REPOSITORY, can_be_nobody, frog_jail

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

# Installs a filter that lets one system call fail, then executes the rest of its arguments.
SABOTAGE = (
    f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}]; import os\n"
    "from agent.jail.launcher import kernel\n"
    "number, error = int(sys.argv[1]), int(sys.argv[2])\n"
    "kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, 'nnp')\n"
    "kernel.install_filter([(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50000 | error), (6, 0, 0, 0x7FFF0000)])\n"
    "os.execvp(sys.argv[3], sys.argv[3:])"
)
EPERM, ENOSYS, EINVAL = 1, 38, 22


def sabotaged(number: int, error: int) -> tuple[str, ...]:
    return (sys.executable, "-c", SABOTAGE, str(number), str(error))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "number", "error"),
    [
        ("unshare", 272, EPERM),
        ("mount", 165, EPERM),
        ("pivot_root", 155, EINVAL),
        ("umount2", 166, EPERM),
        ("mount_setattr", 442, ENOSYS),
        ("seccomp", 317, ENOSYS),
        ("capset", 126, EPERM),
        ("prctl", 157, EINVAL),
        ("memfd_create", 319, ENOSYS),
        ("pidfd_open", 434, ENOSYS),
        ("sendmsg", 46, EPERM),
        ("chdir", 80, EPERM),
        ("setrlimit", 302, EPERM),
        ("setsid", 112, EPERM),
        ("mkdir", 83, EPERM),
        ("symlink", 88, EPERM),
        ("sethostname", 170, EPERM),
        ("statfs", 137, ENOSYS),
        ("pipe2", 293, ENOSYS),
        ("landlock_restrict_self", 446, EPERM),
        ("setresuid", 117, EPERM),
        ("rt_sigaction", 13, EPERM),
    ],
)
def test_a_missing_call_means_that_nothing_runs(workspace: Path, call: str, number: int, error: int) -> None:
    done = frog_jail(
        workspace, "sh", "-c", "echo RAN; touch ran", before=sabotaged(number, error), backend="namespaces"
    )
    assert done.returncode == 125, done
    assert "RAN" not in done.stdout
    assert done.stderr.splitlines()[-1].startswith("frog-lsp: jail: "), done
    assert not list(workspace.iterdir())


@pytest.mark.parametrize(
    "what", ["max_user_namespaces", "max_mnt_namespaces", "max_pid_namespaces", "max_net_namespaces"]
)
def test_a_quota_of_zero_means_that_nothing_runs(workspace: Path, what: str) -> None:
    """In a user namespace of its own: the host's settings stay as they are."""
    before = ("unshare", "--user", "--map-root-user", "sh", "-c", f'echo 0 >/proc/sys/user/{what} && exec "$@"', "sh")
    trial = subprocess.run([*before, "true"], capture_output=True, text=True)
    if trial.returncode != 0:
        skip_or_fail(f"unshare does not work here: {trial.stderr.strip()[:80]}")
    done = frog_jail(workspace, "sh", "-c", "echo RAN", before=before, backend="namespaces")
    assert done.returncode == 125, done
    assert done.stdout == ""
    assert done.stderr.startswith("frog-lsp: jail: ")
    if what == "max_user_namespaces":
        assert "sysctl user.max_user_namespaces" in done.stderr


def test_a_planted_bwrap_and_python_are_not_run(workspace: Path, tmp_path: Path) -> None:
    for name in ("bwrap", "python3", "unshare", "newuidmap"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-{name}\n")
        (tmp_path / name).chmod(0o755)
    done = frog_jail(workspace, "echo", "ok", before=("/usr/bin/env", f"PATH={tmp_path}:/usr/bin:/bin"))
    assert done.stdout == "ok\n", done
    assert not list(tmp_path.glob("ran-*"))


def test_code_in_the_workspace_never_runs_outside(workspace: Path, tmp_path: Path) -> None:
    evil = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    for name in ("sitecustomize.py", "usercustomize.py", "ctypes.py", "os.py", "marshal.py", "agent/__init__.py"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text(evil)
    before = ("/usr/bin/env", "-C", str(workspace), f"PYTHONPATH={workspace}", "PYTHONSTARTUP=os.py")
    code = frog_jail(workspace, "echo", "ok", before=before[:3])
    assert code.stdout == "ok\n", code
    assert not (tmp_path / "ran").exists()


def test_a_workspace_with_a_mount_below_it_is_copied(workspace: Path) -> None:
    """Not closed: this must work."""
    (workspace / "mounted").mkdir()
    script = f'mount -t tmpfs x "{workspace}/mounted" && echo seen >"{workspace}/mounted/f" && exec "$@"'
    before = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh")
    if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
        skip_or_fail("a mount cannot be made here")
    done = frog_jail(workspace, "sh", "-c", "pwd; cat mounted/f; touch new mounted/new; ls", before=before)
    assert (done.returncode, done.stdout) == (0, f"{workspace}\nseen\nmounted\nnew\n"), done
    assert os.listdir(workspace) == ["mounted"]


def test_a_workspace_on_an_overlay_of_overlays_is_copied(workspace: Path) -> None:
    """Not closed: this must work. No overlay can be made on two of them."""
    for name in ("lower", "state", "middle", "top"):
        (workspace / name).mkdir()
    (workspace / "lower" / "f").write_text("seen\n")
    mount = "mount -t overlay o -o lowerdir={},upperdir=state/{}/u,workdir=state/{}/w,userxattr {}"
    script = (
        f'cd "{workspace}" && mount -t tmpfs x state && mkdir -p state/1/u state/1/w state/2/u state/2/w && '
        f'{mount.format("lower", 1, 1, "middle")} && {mount.format("middle", 2, 2, "top")} && cd / && exec "$@"'
    )
    before = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh")
    if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
        skip_or_fail("an overlay cannot be mounted by hand here")
    done = frog_jail(workspace / "top", "sh", "-c", "cat f; rm f; mkdir f; ls", before=before)
    assert (done.returncode, done.stdout) == (0, "seen\nf\n"), done


@pytest.mark.skipif(can_be_nobody() is not None, reason=str(can_be_nobody()))
@pytest.mark.parametrize("name", ["namespaces", "bwrap"])
def test_files_of_another_group_can_be_changed(name: str) -> None:
    """Not closed: this must work. An overlay cannot copy up what belongs to a group that the jail does not have."""
    home = Path(tempfile.mkdtemp(prefix="frog-home-"))
    place = home / "workspace"
    (place / "d").mkdir(parents=True)
    (place / "d" / "f").write_text("old\n")
    subprocess.run(["chown", "-R", f"{NOBODY}:0", str(home)], check=True)
    try:
        script = "echo new >>d/f && cat d/f && rm -r d && ls"
        done = frog_jail(place, "sh", "-c", script, as_nobody=True, home=home, backend=name)
        assert (done.returncode, done.stdout) == (0, "old\nnew\n"), done
    finally:
        shutil.rmtree(home)


def test_root_of_a_container_with_its_files_on_an_overlay(workspace: Path) -> None:
    """Not closed: this must work."""
    for name in ("lower", "state", "merged"):
        (workspace / name).mkdir()
    (workspace / "lower" / "f").write_text("seen\n")
    script = (
        f'cd "{workspace}" && mount -t tmpfs x state && mkdir state/upper state/work && mount -t overlay o '
        '-o lowerdir=lower,upperdir=state/upper,workdir=state/work,userxattr merged && cd / && exec "$@"'
    )
    before = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh")
    if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
        skip_or_fail("an overlay cannot be mounted by hand here")
    done = frog_jail(workspace / "merged", "sh", "-c", "cat f; rm f; mkdir f; ls", before=before)
    assert (done.returncode, done.stdout) == (0, "seen\nf\n"), done


def test_a_host_without_any_network(workspace: Path) -> None:
    """Not closed: this must work."""
    before = ("unshare", "--user", "--map-root-user", "--net")
    if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
        skip_or_fail("unshare does not work here")
    done = frog_jail(workspace, "sh", "-c", "echo ok", before=before)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH", "BASH_ENV", "GIT_CONFIG"])
def test_a_hostile_variable_of_the_server(workspace: Path, tmp_path: Path, name: str) -> None:
    """Each first does its harm outside; then the server has it, and what it starts never sees it."""
    ran = tmp_path / "ran"
    value, trial = _hostile(name, tmp_path, ran)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **value}
    subprocess.run(trial, env=environment, cwd=tmp_path, capture_output=True, timeout=20)
    assert ran.exists(), f"{name} does nothing outside, so it proves nothing"
    ran.unlink()
    script = f"env; git --version; git var GIT_EDITOR; python3 -c 'import json'; bash -c true; ls {tmp_path}; cat {ran}"
    # the server sets them for itself: what starts it is the user's own, and trusted
    done = frog_jail(workspace, "bash", "-c", script, set_later=value)
    assert "PIP_NO_INDEX=1" in done.stdout, done
    for variable, text in value.items():
        assert f"{variable}={text}" not in done.stdout
    assert not ran.exists()


def _hostile(name: str, folder: Path, ran: Path) -> tuple[dict[str, str], list[str]]:
    """The variables, and a command that shows outside what they do: the file `ran` comes to be."""
    if name == "LD_PRELOAD":
        source, library = folder / "evil.c", folder / "evil.so"
        source.write_text(
            f'#include <fcntl.h>\n__attribute__((constructor)) static void f(void) {{ open("{ran}", O_CREAT, 0644); }}\n'
        )
        if subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)]).returncode:
            skip_or_fail("there is no C compiler")
        return {name: str(library)}, ["true"]
    if name == "PYTHONPATH":
        (folder / "evil").mkdir()
        for module in ("sitecustomize", "marshal", "ctypes"):
            (folder / "evil" / f"{module}.py").write_text(f"open({str(ran)!r}, 'w')\n")
        return {name: str(folder / "evil")}, ["/usr/bin/python3", "-c", ""]
    if name == "BASH_ENV":
        (folder / "evil.sh").write_text(f"touch {ran}\n")
        return {name: str(folder / "evil.sh")}, ["bash", "-c", "true"]
    settings = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "alias.evil", "GIT_CONFIG_VALUE_0": f"!touch {ran}"}
    return settings | {"GIT_DIR": "/nowhere", "GIT_SSH_COMMAND": f"touch {ran}"}, ["git", "evil"]


@pytest.mark.parametrize("what", ["max_user_namespaces", "max_mnt_namespaces"])
def test_a_quota_that_is_met_after_a_good_probe(workspace: Path, what: str) -> None:
    """The probe said yes and is remembered; then the quota is used up. The run fails, and says why."""
    code = (
        f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}]; sys.path += {sys.path!r}; import asyncio\n"
        "from agent.jail.command import run_command\n"
        "from agent.jail.probe import probe_namespaces\n"
        "from agent.jail.session import open_session\n"
        "from agent.jail.spec import JailSpec\n"
        "assert probe_namespaces().usable\n"
        f"open('/proc/sys/user/{what}', 'w').write('0')\n"
        "assert probe_namespaces().usable, 'it is remembered'\n"
        f"spec = JailSpec(workspace={str(workspace)!r})\n"
        "print(asyncio.run(run_command(spec, ['sh', '-c', 'echo RAN; touch ran'], 'namespaces')), flush=True)\n"
        "async def choose():\n"
        "    session = await open_session(spec, b'PK' + bytes(20))\n"
        "    print(session.info.backend not in ('namespaces', 'bwrap'), 'Bash is not available' in str(session.info.reduced))\n"
        "    await session.close()\n"
        "asyncio.run(choose())"
    )
    before = ("unshare", "--user", "--map-root-user", "--mount-proc", "--pid", "--fork")
    if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
        skip_or_fail("unshare does not work here")
    done = subprocess.run([*before, sys.executable, "-c", code], capture_output=True, text=True, cwd="/", timeout=60)
    assert done.stdout.split() == ["125", "True", "True"], done
    assert not list(workspace.iterdir())
