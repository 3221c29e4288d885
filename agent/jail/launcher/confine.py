"""What the process that becomes the runner does to itself, for good, before it executes anything."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would bring `enum`, a fifth of the start
import ctypes
import os
import resource

from agent.jail.launcher import kernel
from agent.jail.launcher.mounts import WRITABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Landlock rights on files (include/uapi/linux/landlock.h); ABI 1 has 13 of them, then refer, truncate, ioctl_dev
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_IOCTL_DEV = 1 << 15
_RIGHTS_BY_ABI = {2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}


def confine(plan: dict[str, Any]) -> None:
    """No capabilities, no new privileges, limits, Landlock, seccomp. Raises StepError, OSError."""
    for name, soft, hard in plan["rlimits"]:
        resource.setrlimit(getattr(resource, name), _within_hard(getattr(resource, name), soft, hard))
    os.chdir(plan["workspace"])
    if plan["capable"]:
        kernel.drop_capabilities()
    if plan["privileged"]:
        uid, gid = plan["run_as"]
        _leave_groups()
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    kernel.clear_capability_sets()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")
    _restrict_files(plan)
    forget_signals()
    kernel.install_filter(plan["seccomp"])


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
    rights = _RIGHTS_BY_ABI[min(version, 5)]
    rules = [(b"/", rights & (_EXECUTE | _READ_FILE | _READ_DIR)), (b"/dev", rights & (_WRITE_FILE | _IOCTL_DEV))]
    rules += [(path, rights) for path in (plan["workspace"], *WRITABLE)]
    # all rights on files are handled; network has its own namespace; signals and abstract sockets are scoped
    attributes = rights.to_bytes(8, "little")
    if version >= 6:
        attributes += bytes(8) + (3).to_bytes(8, "little")
    ruleset = kernel.syscall(kernel.SYS_LANDLOCK_CREATE, "landlock", attributes, len(attributes), 0)
    for path, allowed in rules:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = allowed.to_bytes(8, "little") + place.to_bytes(4, "little")
        kernel.syscall(kernel.SYS_LANDLOCK_ADD, "landlock", ruleset, 1, ctypes.c_char_p(rule), 0)
        os.close(place)
    kernel.syscall(kernel.SYS_LANDLOCK_RESTRICT, "landlock", ruleset, 0)
    os.close(ruleset)
