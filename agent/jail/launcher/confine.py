"""What the process that becomes the runner does to itself, for good, before it executes anything."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would bring `enum`, a fifth of the start
import os
import resource

from agent.jail.launcher import kernel
from agent.jail.launcher.mounts import WRITABLE
from agent.jail.launcher.ruleset import EXECUTE, IOCTL_DEV, READ_DIR, READ_FILE, RIGHTS_BY_ABI, WRITE_FILE, enforce

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def confine(plan: dict[str, Any]) -> None:
    """No capabilities, no new privileges, limits, Landlock, seccomp. Raises StepError, OSError."""
    set_limits(plan)
    os.chdir(plan["workspace"])
    shed_privileges(plan)
    _restrict_files(plan)
    forget_signals()
    kernel.install_filter(plan["seccomp"])


def set_limits(plan: dict[str, Any]) -> None:
    """Set the limits that each process has for itself. Raises OSError."""
    for name, soft, hard in plan["rlimits"]:
        resource.setrlimit(getattr(resource, name), _within_hard(getattr(resource, name), soft, hard))


def shed_privileges(plan: dict[str, Any]) -> None:
    """Become who the plan says, without capabilities and without new privileges. Raises StepError, OSError."""
    if plan["capable"]:
        kernel.drop_capabilities()
    if plan["privileged"]:
        uid, gid = plan["run_as"]
        _leave_groups()
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    kernel.clear_capability_sets()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")


def forget_signals() -> None:
    """Put back every signal: what Python, or whoever started the server, ignores or blocks would be inherited."""
    for number in range(1, _signal.NSIG):
        if number not in (_signal.SIGKILL, _signal.SIGSTOP, 32, 33):  # the C library keeps two for itself
            _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _leave_groups() -> None:
    """Leave all groups but the owner's, unless a container forbids every change of them (then there is none)."""
    with open("/proc/self/setgroups", "rb") as file:
        if file.read().strip() != b"deny":
            os.setgroups([])


def _within_hard(limit: int, soft: int, hard: int) -> tuple[int, int]:
    """A limit that this process already has cannot be raised."""
    now = resource.getrlimit(limit)[1]
    if now == resource.RLIM_INFINITY:
        return soft, hard
    return min(soft, now), min(hard, now)


def _restrict_files(plan: dict[str, Any]) -> None:
    """Landlock on top of the mounts, where the kernel has it: write only where the jail is writable."""
    version = kernel.landlock_version()
    if version < 2:  # ABI 1 would forbid to rename between folders
        return
    rights = RIGHTS_BY_ABI[min(version, 5)]
    rules = [(b"/", rights & (EXECUTE | READ_FILE | READ_DIR)), (b"/dev", rights & (WRITE_FILE | IOCTL_DEV))]
    rules += [(path, rights) for path in (plan["workspace"], *WRITABLE)]
    # all rights on files are handled; network has its own namespace
    enforce(version, rights, rules)
