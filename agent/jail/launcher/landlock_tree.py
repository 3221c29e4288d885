"""All processes below this one, where no namespace holds them together: found, stopped, ended."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would bring `enum`, a fifth of the start
import os
import time

from agent.jail.launcher import kernel
from agent.jail.launcher.ruleset import enforce

_KILL_TIMEOUT_S = 5.0


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
    if spared is None:
        _send(-1, _signal.SIGKILL)
        return
    _send(-1, _signal.SIGSTOP)  # all at once: what forks cannot run away
    deadline = time.monotonic() + _KILL_TIMEOUT_S  # one may hang in the kernel
    n_empty_looks = 0
    # a look while parents end, and their children go to another, may miss some: the look after it does not
    while n_empty_looks < 2 and time.monotonic() < deadline:
        victims = [pid for pid in processes() if pid != spared and not _has_ended(pid)]
        for pid in victims:
            _send(pid, _signal.SIGKILL)
        n_empty_looks = 0 if victims else n_empty_looks + 1
        time.sleep(0.001)
    _send(spared, _signal.SIGCONT)


def _has_ended(pid: int) -> bool:
    """Whether it is gone, or waits only for its parent, who is stopped, to take notice."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read(4096).rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # it ended meanwhile; of -1: nothing is left that may be signalled


def end_everything() -> None:
    """Kill every process below, and wait until none is left."""
    while True:
        kill_all_but(None)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
