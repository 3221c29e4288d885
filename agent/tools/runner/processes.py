"""The processes below the runner: found through /proc, killed as a whole."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_KILL_TIMEOUT_S = 5.0

Identity = tuple[int, int]
"""A process: its id and when it started (ids are used again)."""


def become_reaper() -> None:
    """Adopt every orphan below this process, and let no other process of the user look into it.

    Without the second a jailed command could write into the runner's descriptors. Other systems than Linux
    have no such calls; they run no commands either.
    """
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def has_children() -> bool:
    """False where nothing started by an earlier call is left."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def descendants(spared: frozenset[Identity] = frozenset()) -> frozenset[Identity]:
    """Every living process below this one, without the spared ones and what lies below them.

    None in a jail that shows no /proc (backend C): there a session is all that can be found, and what leaves it
    lives until the end of the run.
    """
    try:
        names = os.listdir("/proc")
    except OSError:
        return frozenset()
    children: dict[int, list[Identity]] = {}
    for name in names:
        if name.isdigit() and (facts := _facts(name)) is not None:
            parent, started = facts
            children.setdefault(parent, []).append((int(name), started))
    found: set[Identity] = set()
    waiting = list(children.get(os.getpid(), ()))
    while waiting:
        process = waiting.pop()
        if process not in spared and process not in found:
            found.add(process)
            waiting += children.get(process[0], ())
    return frozenset(found)


def _facts(pid: str) -> tuple[int, int] | None:
    """The parent and the start time of a process that is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def kill_tree(leader: int | None = None, spared: frozenset[Identity] = frozenset()) -> None:
    """Kill what lies below this process, except what is spared, until nothing is left (5 s at most).

    `leader` is the leader of the session to kill first, so that most of it ends at once.
    """
    end = time.monotonic() + _KILL_TIMEOUT_S
    if leader is not None:
        _send(-leader, signal.SIGKILL)
        _send(leader, signal.SIGKILL)
    while time.monotonic() < end:
        victims = descendants(spared)
        if not victims:
            return
        for pid, _ in victims:
            _send(pid, signal.SIGSTOP)  # what is stopped makes no new children while the others are killed
        for pid, _ in victims:
            _send(pid, signal.SIGKILL)
        time.sleep(0.002)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
