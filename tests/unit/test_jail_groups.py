"""Control groups: the plans as values, and the real thing where this machine has it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest

from agent.jail import backends, bwrap, groups, namespaces
from agent.jail.groups import (
    Group,
    GroupPlan,
    environment_for_scope,
    find_parent,
    make_group,
    parents_of,
    plan_group,
)
from agent.jail.session import open_session
from agent.jail.spec import MIB, JailLimits, JailSpec
from agent.tools.bundle import runner_bundle
from tests.conftest import skip_or_fail

LIMITS = JailLimits(processes=7, memory_bytes=100 * MIB, view_bytes=20 * MIB, scratch_bytes=3 * MIB)


def test_plans() -> None:
    assert plan_group("/g", "/usr/bin/systemd-run", LIMITS) == GroupPlan(
        kind="group",
        parent="/g",
        files=(("memory.max", str(379 * MIB)), ("memory.swap.max", "0"), ("pids.max", "307")),
    )
    assert plan_group(None, "/usr/bin/systemd-run", LIMITS) == GroupPlan(
        kind="scope",
        argv=(
            *("/usr/bin/systemd-run", "--user", "--scope", "--quiet", "--collect"),
            *("-p", f"MemoryMax={379 * MIB}", "-p", "MemorySwapMax=0", "-p", "TasksMax=307", "--"),
        ),
    )
    assert plan_group(None, None, LIMITS) == GroupPlan(kind="watchdog")


def test_the_nearest_folder_comes_first() -> None:
    table = "4:memory:/elsewhere\n0::/user.slice/app.slice/editor.scope\n"
    assert list(parents_of(table, "/r")) == [
        "/r/user.slice/app.slice/editor.scope",
        "/r/user.slice/app.slice",
        "/r/user.slice",
        "/r",
    ]
    assert list(parents_of("0::/\n", "/r")) == ["/r"]
    assert list(parents_of("4:memory:/x\n", "/r")) == []


def test_a_scope_gets_what_finds_the_manager_and_nothing_else() -> None:
    variables = {"XDG_RUNTIME_DIR": "/run/user/1", "SECRET": "s"}
    assert environment_for_scope(variables) == {"XDG_RUNTIME_DIR": "/run/user/1"}


def test_where_groups_cannot_be_made_there_is_none(tmp_path: Path) -> None:
    """A folder that only looks like one: the trial finds out."""
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert find_parent((str(tmp_path),)) is None
    assert os.listdir(tmp_path) == ["cgroup.subtree_control"]


def test_the_trial_is_over_soon() -> None:
    began = time.monotonic()
    find_parent()
    groups._find_systemd_run()
    assert time.monotonic() - began < 3, "a busy machine; 0.2 s for each try are allowed"


@pytest.fixture
def group() -> Group:
    parent = find_parent()
    if parent is None:
        pytest.skip("no control group with memory and pids can be written here")
    made = make_group(plan_group(parent, None, JailLimits(memory_bytes=32 * MIB, view_bytes=1, scratch_bytes=1)))
    assert made is not None
    return made


@pytest.fixture
def parent() -> str:
    """A folder where groups without bounds can be made."""
    table = Path("/proc/self/cgroup").read_text()
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        for folder in parents_of(table, root):
            try:
                made = make_group(GroupPlan(kind="group", parent=folder))
            except OSError:
                continue
            assert made is not None
            made.remove()
            return folder
    pytest.skip("no control group of version 2 can be made here")


def test_a_group_ends_what_is_in_it(parent: str) -> None:
    group = make_group(GroupPlan(kind="group", parent=parent))
    assert group is not None
    script = f"echo 0 >&{group.procs}; sleep 1000 & echo in; sleep 1000"
    with subprocess.Popen(["bash", "-c", script], pass_fds=[group.procs], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "in\n"
        assert len(Path(group.path, "cgroup.procs").read_text().split()) >= 2
        group.remove()
        assert shell.wait(5) == -9
    assert not os.path.exists(group.path)


@pytest.mark.jail
@pytest.mark.usefixtures("require_jail")
@pytest.mark.parametrize("backend", ["namespaces", "bwrap"])
def test_a_whole_jail_is_in_its_group(
    parent: str, backend: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (chosen,) = backends.chosen(backend)
    if not chosen.probe().usable:
        skip_or_fail(f"jail `{backend}` cannot be had here")
    module = {"namespaces": namespaces, "bwrap": bwrap}[backend]
    monkeypatch.setattr(module, "group_for", lambda _: GroupPlan(kind="group", parent=parent))

    def look() -> tuple[int, str]:
        (path,) = (os.path.join(parent, name) for name in os.listdir(parent) if name.startswith(groups.PREFIX))
        return len(Path(path, "cgroup.procs").read_text().split()), path

    async def run() -> tuple[int, str]:
        async with await open_session(JailSpec(workspace=str(workspace)), runner_bundle(), backend=backend):
            return look()

    n_processes, path = asyncio.run(run())
    assert n_processes >= 2, "PID 1 and the runner at least"
    assert not os.path.exists(path)


def test_groups_of_servers_that_are_gone_are_removed(parent: str) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    left = Path(parent, f"{groups.PREFIX}{gone.pid}-0")
    ours = Path(parent, f"{groups.PREFIX}{os.getpid()}-0")
    left.mkdir()
    ours.mkdir()
    try:
        groups._remove_abandoned(parent)
        assert (left.exists(), ours.exists()) == (False, True)
    finally:
        for path in (left, ours):
            if path.exists():
                path.rmdir()


def test_a_group_bounds_and_ends_what_is_in_it(group: Group) -> None:
    script = (
        f"echo 0 >&{group.procs}; sleep 1000 & head -c 400M /dev/zero | tail -c 400M | wc -c; echo after; sleep 1000"
    )
    with subprocess.Popen(["bash", "-c", script], pass_fds=[group.procs], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() != f"{400 * MIB}\n", "tail holds all of it: it must have been killed"
        group.remove()
        assert shell.wait(5) == -9
        assert not os.path.exists(group.path)
