"""All processes below this one, where no namespace holds them together: found, stopped, ended."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would bring `enum`, a fifth of the start
import os

from agent.jail.launcher import kernel
from agent.jail.launcher.ruleset import enforce


def become_top() -> None:
    """Adopt every orphan below, and let signals reach nothing but what is started from here on.

    Raises StepError where signals still get out: `kill(-1)` would then end all that the user runs.
    """
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1, "subreaper")
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0, "not dumpable")
    version = kernel.landlock_version()
    if version < 6:
        raise kernel.StepError("landlock: signals cannot be scoped", 0)
    enforce(version, 0, ())
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return
    raise kernel.StepError("canary: signals reach processes outside", 0)


def processes() -> list[int]:
    """The process ids of all that live below this one."""
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def count_threads(pids: list[int]) -> int:
    """The threads of these processes together."""
    n_threads = 0
    for pid in pids:
        try:
            n_threads += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue  # it ended meanwhile
    return n_threads


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                children += map(int, file.read(1_000_000).split())
    except OSError:
        return children  # it ended meanwhile
    return children


def kill_all_but(spared: int | None) -> None:
    """Kill all below, except one process where it is given."""
    try:
        if spared is None:
            os.kill(-1, _signal.SIGKILL)
            return
        os.kill(-1, _signal.SIGSTOP)  # all at once: what forks cannot run away
        for pid in processes():
            if pid != spared:
                os.kill(pid, _signal.SIGKILL)
        os.kill(spared, _signal.SIGCONT)
    except (ProcessLookupError, PermissionError):
        return  # nothing is left


def end_everything() -> None:
    """Kill every process below, and wait until none is left."""
    while True:
        kill_all_but(None)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
