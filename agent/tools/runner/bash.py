"""Bash: one command in a shell of its own, with its whole tree of processes ended at a time-out."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, NamedTuple

from agent.tools.runner.events import Events
from agent.tools.runner.output import Head, Sink, Tail, cut
from agent.tools.runner.processes import descendants, has_children, kill_tree

MAX_CHARS = 30_000
DEFAULT_TIMEOUT_S = 120.0
N_TAIL_LINES = 40
UNAVAILABLE = "PermissionError: Bash is not available: commands cannot be jailed on this machine"
CANCELLED = "Cancelled: the command was ended because the run was cancelled"

_GRACE_S = 0.1  # for what a process substitution still has to say after its shell ended
# What Python, we, or whoever started the server ignores would be inherited, and a test suite would hang on it.
_DEFAULT_SIGNALS = tuple(number for number in range(1, 32) if number not in (signal.SIGKILL, signal.SIGSTOP))


class End(NamedTuple):
    """How a command ended. `exit_code` is −n for signal n, None at a time-out and when it was cancelled."""

    exit_code: int | None
    is_cancelled: bool
    duration_s: float


def bash(events: Events, arguments: dict[str, Any]) -> str:
    """`command`, `timeout` in seconds."""
    timeout_s = float(arguments.get("timeout", DEFAULT_TIMEOUT_S))
    out, err = Head(MAX_CHARS), Head(MAX_CHARS)
    end = run(events, arguments["command"], timeout_s, out, err)
    if end.is_cancelled:
        first = CANCELLED
    elif end.exit_code is None:
        first = f"Timed out after {timeout_s:.1f}s"
    else:
        first = f"Exit code: {end.exit_code}"
    return _join(first, out, err)


def _join(first: str, out: Head, err: Head) -> str:
    """The observation, cut as a whole though the streams were kept in part only."""
    head, tail = f"{first}\nSTDOUT:\n", "\nSTDERR:\n"
    shown_out, shown_err = out.finish(), err.finish()
    n_missing = out.n_chars - len(shown_out) + err.n_chars - len(shown_err)
    if out.n_chars > len(shown_out):  # longer than all that may be shown
        text = head + shown_out
        n_missing += len(tail) + len(shown_err)
    else:
        text = head + shown_out + tail + shown_err
    if not n_missing:
        return cut(text, MAX_CHARS)
    return f"{text[:MAX_CHARS]}\n[truncated {len(text) - MAX_CHARS + n_missing} chars]"


def run_tests(events: Events, command: str, timeout_s: float) -> dict[str, Any]:
    """A command for its exit code and its last lines, stdout and stderr as they came."""
    tail = Tail()
    end = run(events, command, timeout_s, tail, None)
    return {
        "exit_code": end.exit_code,
        "output_tail": tail.lines(N_TAIL_LINES),
        "is_cancelled": end.is_cancelled,
        "duration_s": end.duration_s,
    }


def run(events: Events, command: str, timeout_s: float, out: Sink, err: Sink | None) -> End:
    """Run `bash -lc command` in the current folder. `err` None: both streams into one pipe."""
    began = time.monotonic()
    spared = descendants() if has_children() else frozenset()
    pid, pipes = _spawn(command, n_pipes=1 if err is None else 2)
    for pipe, sink in zip(pipes, (out, err or out), strict=False):
        events.drain(pipe, sink)
    events.expect(pid)
    deadline = began + timeout_s
    while (status := events.status(pid)) is None:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or events.is_cancelled or events.is_over:
            break
        events.wait(left_s)
    if status is None:
        kill_tree(pid, spared)
    _drain(events, pipes)
    for pipe in pipes:
        if events.is_open(pipe):  # a background child holds it: it may go on writing, nobody waits for it
            events.drain(pipe, Sink())
    events.forget(pid)
    exit_code = None if status is None else os.waitstatus_to_exitcode(status)
    is_cancelled = status is None and (events.is_cancelled or events.is_over)
    return End(exit_code, is_cancelled, time.monotonic() - began)


def _drain(events: Events, pipes: list[int]) -> None:
    """Take what has been written; wait a little where somebody still holds a pipe."""
    end = time.monotonic() + _GRACE_S
    while any(events.is_open(pipe) for pipe in pipes) and (left_s := end - time.monotonic()) > 0:
        events.wait(left_s)


def _spawn(command: str, n_pipes: int) -> tuple[int, list[int]]:
    """Start the shell as the leader of a session. Returns its id and the ends of the pipes to read."""
    pairs = [os.pipe() for _ in range(n_pipes)]
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    out, err = pairs[0][1], pairs[-1][1]
    try:
        pid = os.posix_spawn(
            _shell(),
            ["bash", "-lc", command],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, out, 1),
                (os.POSIX_SPAWN_DUP2, err, 2),
            ],
            setsid=True,
            setsigdef=_DEFAULT_SIGNALS,
            setsigmask=(),
        )
    except BaseException:
        for here, _ in pairs:
            os.close(here)
        raise
    finally:
        os.close(null)
        for _, there in pairs:
            os.close(there)
    return pid, [here for here, _ in pairs]


def _shell() -> str:
    for folder in ("/bin", *os.environ.get("PATH", "/usr/bin").split(":")):
        path = f"{folder}/bash"
        if folder.startswith("/") and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("there is no bash on this machine")
