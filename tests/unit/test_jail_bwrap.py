"""Backend B: the command line as a whole value, and which bubblewrap is trusted."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import JailUnavailable
from agent.jail.bwrap import bwrap_argv, find_bubblewrap, plan_bwrap
from agent.jail.plan import Plan
from agent.jail.spec import GIB, JailLimits
from agent.worktree.copying import PrivateCopy
from tests.unit.test_jail_plan import FACTS, SPEC, SYSTEM_PYTHON

COPY = PrivateCopy(path="/var/tmp/v/copy", index={}, size_bytes=1000, entries=3, left_out=())
FACTS_OF_B = replace(FACTS, project=SYSTEM_PYTHON, kinds={**FACTS.kinds, "/proc/keys": "file"})


def argv_of(plan: Plan) -> tuple[str, ...]:
    names = [path for path, _ in plan.files] + ["/run/frog/runner.pyz", "plan", "status"]
    return bwrap_argv(plan, "/usr/bin/bwrap", "/py", "/pkg/launcher", {name: 10 + i for i, name in enumerate(names)})


def test_the_command_line_of_an_ordinary_user_with_a_copy() -> None:
    argv = argv_of(plan_bwrap(SPEC, replace(FACTS_OF_B, copy=COPY)))
    assert argv[:-7] == (
        "/usr/bin/bwrap",
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup"),
        *("--die-with-parent", "--as-pid-1", "--hostname", "jail"),
        *("--dev", "/dev", "--proc", "/proc"),
        *("--perms", "1777", "--size", str(GIB // 2), "--tmpfs", "/tmp"),
        *("--perms", "1777", "--size", str(GIB // 4), "--tmpfs", "/dev/shm"),
        *("--perms", "0700", "--size", str(GIB // 4), "--tmpfs", "/run/frog/home"),
        *("--ro-bind", "/usr", "/usr", "--ro-bind", "/lib", "/lib", "--ro-bind", "/etc/localtime", "/etc/localtime"),
        *("--ro-bind", "/data", "/data"),
        *("--symlink", "usr/bin", "/bin"),
        *("--symlink", "/usr/bin/python3.11", "/run/frog/bin/python"),
        *("--symlink", "/usr/bin/python3.11", "/run/frog/bin/python3"),
        *("--perms", "0444", "--file", "10", "/etc/passwd"),
        *("--perms", "0444", "--file", "11", "/etc/group"),
        *("--perms", "0444", "--file", "12", "/etc/hosts"),
        *("--perms", "0444", "--file", "13", "/etc/hostname"),
        *("--perms", "0444", "--file", "14", "/etc/resolv.conf"),
        *("--perms", "0444", "--file", "15", "/etc/nsswitch.conf"),
        *("--perms", "0444", "--file", "16", "/etc/profile"),
        *("--perms", "0444", "--file", "17", "/etc/bash.bashrc"),
        *("--perms", "0444", "--file", "18", "/run/frog/home/.gitconfig"),
        *("--perms", "0444", "--file", "19", "/run/frog/runner.pyz"),
        *("--ro-bind", "/pkg/launcher", "/run/frog/launcher/agent/jail/launcher"),
        *("--bind", "/var/tmp/v/copy", "/home/me/ws"),
        *("--ro-bind", "/dev/null", "/proc/keys"),
        *("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"),
        "--",
    )
    assert argv[-7:-3] == ("/py", "-I", "-S", "-c")
    assert argv[-2:] == ("20", "21")


def test_an_overlay_where_bubblewrap_has_it() -> None:
    argv = argv_of(plan_bwrap(SPEC, replace(FACTS_OF_B, layers="/var/tmp/v")))
    at = argv.index("--overlay-src")
    assert argv[at : at + 6] == (
        *("--overlay-src", "/home/me/ws"),
        *("--overlay", "/var/tmp/v/upper", "/var/tmp/v/work", "/home/me/ws"),
    )
    assert "--bind" not in argv


def test_root_has_a_user_namespace_too_and_the_capability_to_protect_the_device_nodes() -> None:
    plan = plan_bwrap(SPEC, replace(FACTS_OF_B, uid=0, gid=0, copy=COPY))
    assert (plan.privileged, plan.capable, plan.run_as) == (True, True, (0, 0))
    argv = argv_of(plan)
    assert "--unshare-user" in argv
    assert argv[argv.index("--cap-add") + 1] == "ALL"
    ordinary = plan_bwrap(SPEC, replace(FACTS_OF_B, copy=COPY))
    assert (ordinary.privileged, ordinary.capable, ordinary.run_as) == (False, False, (1000, 1001))
    assert "--cap-add" not in argv_of(ordinary)


def test_what_is_bounded_grows_by_the_copy() -> None:
    spec = replace(SPEC, limits=JailLimits(view_bytes=50, view_inodes=7))
    plan = plan_bwrap(spec, replace(FACTS_OF_B, copy=COPY))
    assert (plan.backend, plan.copy, plan.view_bytes, plan.view_inodes) == ("bwrap", "/var/tmp/v/copy", 1050, 10)


def planted(folder: Path, version: str, mode: int = 0o755) -> str:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\necho bubblewrap {version}; touch {folder}/ran\n")
    program.chmod(mode)
    return str(program)


def test_none_is_found_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(tmp_path, "0.11.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JailUnavailable, match="not installed") as caught:
        find_bubblewrap((str(tmp_path / "nothing"),))
    assert "apt-get install bubblewrap" in caught.value.hint


def test_one_that_others_could_have_put_there_is_not_run(tmp_path: Path) -> None:
    program = planted(tmp_path, "0.11.0", 0o777)
    with pytest.raises(JailUnavailable, match="is not used"):
        find_bubblewrap((program,))
    (tmp_path / "link").symlink_to(program)
    with pytest.raises(JailUnavailable, match="is not used"):
        find_bubblewrap((str(tmp_path / "link"),))
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can put a program where root's are")
@pytest.mark.parametrize(
    ("version", "said"), [("0.7.0", "0.7.0 at .* is too old"), ("of mine", "does not say"), ("1.0.0", "")]
)
def test_the_version_decides(version: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("/run/frog-lsp-test-bwrap")
    folder.mkdir(mode=0o755)
    try:
        program = planted(folder, version)
        if said:
            with pytest.raises(JailUnavailable, match=said):
                find_bubblewrap((program,))
        else:
            assert find_bubblewrap((program,)).version == (1, 0, 0)
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can put a program where root's are")
def test_a_program_of_root_in_a_folder_that_others_can_write_is_not_run(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(JailUnavailable, match="can be written by others than root"):
        find_bubblewrap((planted(tmp_path, "0.11.0"),))
    assert not (tmp_path / "ran").exists()
