"""Control groups: the memory of a whole jail, that of the kernel for it included, bounded by the kernel itself.

Which way works here is found out once by doing it, beside the first start, which does not wait for it. The watchdog of
PID 1 is there in any case; where there is no group it is alone.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from agent.jail.spec import MIB, JailLimits

PREFIX = "frog-lsp-"
_SYSTEMD_RUN = "/usr/bin/systemd-run"
_NEEDED = frozenset({"memory", "pids"})
_TRIAL_TIMEOUT_S = 0.2
_REMOVE_TIMEOUT_S = 1.0
# What a jail needs besides what its limits name: PID 1, the runner, the tables of the kernel for them.
_OWN_BYTES = 256 * MIB
_OWN_PROCESSES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """How the processes of a jail are held together.

    `group`: a new folder in `parent`, with these (file, value) written to it. `scope`: `argv` before the launcher's
    own. `watchdog`: nothing but PID 1's look ten times a second.
    """

    kind: Literal["group", "scope", "watchdog"] = "watchdog"
    parent: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    argv: tuple[str, ...] = ()


def plan_group(parent: str | None, systemd_run: str | None, limits: JailLimits) -> GroupPlan:
    """The best way with what there is: a folder where groups can be made, or a systemd-run that works. Pure."""
    # what is written to the view and the scratch folders is memory, too
    memory_bytes = limits.memory_bytes + limits.view_bytes + limits.scratch_bytes + _OWN_BYTES
    n_processes = limits.processes + _OWN_PROCESSES
    if parent:
        files = (("memory.max", str(memory_bytes)), ("memory.swap.max", "0"), ("pids.max", str(n_processes)))
        return GroupPlan(kind="group", parent=parent, files=files)
    if systemd_run:
        bounds = (f"MemoryMax={memory_bytes}", "MemorySwapMax=0", f"TasksMax={n_processes}")
        options = tuple(word for bound in bounds for word in ("-p", bound))
        argv = (systemd_run, "--user", "--scope", "--quiet", "--collect", *options, "--")
        return GroupPlan(kind="scope", argv=argv)
    return GroupPlan()


def parents_of(table: str, root: str) -> Iterator[str]:
    """The folder of our own group below `root`, then those above it, by the text of /proc/self/cgroup. Pure."""
    own = next((line.removeprefix("0::") for line in table.splitlines() if line.startswith("0::")), None)
    while own is not None:
        yield root + own.rstrip("/")
        own = None if own in ("", "/") else os.path.dirname(own)


@dataclass(slots=True)
class Group:
    """A group that was made. `procs` takes "0" from the process that joins; it is for the launcher."""

    path: str
    procs: int

    def remove(self) -> None:
        """Kill what is left in it and remove it. Never raises."""
        os.close(self.procs)
        with contextlib.suppress(OSError):
            _write(self.path, "cgroup.kill", "1")
        deadline = time.monotonic() + _REMOVE_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                os.rmdir(self.path)
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.005)  # the killed are on their way out
            else:
                return


def make_group(plan: GroupPlan) -> Group | None:
    """Make the group of a plan; None where the plan has none. Raises OSError."""
    if plan.parent is None:
        return None
    path = f"{plan.parent}/{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    os.mkdir(path)
    try:
        for name, value in plan.files:
            _write(path, name, value)
        return Group(path, os.open(f"{path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        os.rmdir(path)
        raise


def group_for(limits: JailLimits) -> GroupPlan:
    """The plan for a start. While it is not yet known what works, the watchdog's."""
    probe = _probe()
    return plan_group(*probe.found, limits) if probe.found else GroupPlan()


def describe_groups() -> str:
    """Who bounds the memory of all processes of a jail together, in a sentence; waits for the trial."""
    probe = _probe()
    probe.thread.join()
    return {
        "group": "a control group, and the watchdog",
        "scope": "a scope of systemd, and the watchdog",
        "watchdog": "the watchdog alone, ten times a second: no control group can be had here",
    }[group_for(JailLimits()).kind]


class _Probe:
    """Tries, in a thread, what works: a folder where groups can be made, and systemd-run."""

    def __init__(self) -> None:
        self.found: tuple[str | None, str | None] | None = None
        self.thread = threading.Thread(target=self._try, name="probe of control groups", daemon=True)
        self.thread.start()

    def _try(self) -> None:
        parent = find_parent()
        self.found = (parent, None if parent else _find_systemd_run())


@functools.cache
def _probe() -> _Probe:
    return _Probe()


def find_parent(roots: tuple[str, ...] = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")) -> str | None:
    """The nearest folder in which a group with bounds can be made, joined, killed and removed; tried for real."""
    with contextlib.suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as file:
        table = file.read()
        for root in roots:
            for parent in parents_of(table, root):
                if _has_controllers(parent) and _works(parent):
                    return parent
    return None


def _has_controllers(parent: str) -> bool:
    with contextlib.suppress(OSError), open(f"{parent}/cgroup.subtree_control", encoding="ascii") as file:
        return set(file.read().split()) >= _NEEDED
    return False


def _works(parent: str) -> bool:
    _remove_abandoned(parent)
    try:
        group = make_group(plan_group(parent, None, JailLimits()))
    except OSError:
        return False
    if group is None:
        return False
    try:
        child = subprocess.Popen(
            ("/bin/sh", "-c", f"echo 0 >&{group.procs} && echo in && exec sleep 10"),
            pass_fds=(group.procs,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        group.remove()
        return False
    with child:
        timer = threading.Timer(_TRIAL_TIMEOUT_S, child.kill)
        timer.start()
        assert child.stdout is not None
        has_joined = child.stdout.readline() == b"in\n"
        timer.cancel()
        group.remove()
        child.kill()
    return has_joined and not os.path.exists(group.path)


def _remove_abandoned(parent: str) -> None:
    """Remove the empty groups of servers that are gone."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            owner = name.removeprefix(PREFIX).partition("-")[0]
            if name.startswith(PREFIX) and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
                with contextlib.suppress(OSError):
                    os.rmdir(f"{parent}/{name}")


def _find_systemd_run() -> str | None:
    """systemd-run, where root alone can write it and a scope of the user can be had."""
    try:
        info = os.stat(_SYSTEMD_RUN)
        if info.st_uid != 0 or info.st_mode & 0o022:
            return None
        trial = plan_group(None, _SYSTEMD_RUN, JailLimits()).argv
        done = subprocess.run(
            (*trial, "/bin/true"),
            env=environment_for_scope(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _SYSTEMD_RUN if done.returncode == 0 else None


def environment_for_scope(variables: Mapping[str, str]) -> dict[str, str]:
    """What systemd-run needs to find the user's manager. Pure."""
    return {name: variables[name] for name in ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS") if name in variables}


def _write(folder: str, name: str, value: str) -> None:
    number = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CLOEXEC)  # never made: the kernel has it, or has it not
    try:
        os.write(number, value.encode("ascii"))
    finally:
        os.close(number)
