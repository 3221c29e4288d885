"""PID 1 of the jail: trusted, builds it, starts the runner, reaps, watches, and takes everything with it."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would bring `enum`, a fifth of the start
import os
import select
import time

from agent.jail.launcher import kernel, watch
from agent.jail.launcher.canaries import missed_canaries
from agent.jail.launcher.confine import confine, forget_signals
from agent.jail.launcher.runner import load_standard_modules, run_archive
from agent.jail.launcher.status import StatusPipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_TICK_MS = 100
_DISK_TICK_S = 0.5


def run_init(plan: dict[str, Any], build: Callable[[], int], status: StatusPipe) -> None:
    """Exits when the runner ended, when a limit was met, or when the other side is gone.

    `build` makes the root and gives the descriptor of the private view. Never returns.
    """
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, _signal.SIGKILL, "death with the parent")
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0, "not dumpable")
        forget_signals()  # the default of PID 1 is to ignore what its children send
        umask = os.umask(0o022)  # others than root have to find their way in the jail
        pid, go, report = _fork_runner(plan, status, umask)
        upper = build()
        status.send(b"VIEW", upper)
        is_on_disk = bool(plan["layers"] or plan["copy"])
        if not is_on_disk:  # memory has its bound by itself
            os.close(upper)
        _start_runner(go, report)
        status.send(b"READY")
        _close_standard_streams()
        ended = _watch(plan, pid, status, upper if is_on_disk else None)
        _end_everything()
        status.send(b"EXIT %d" % ended if ended is not None else b"GONE")
    except kernel.StepError as error:
        status.send_failure(error.step, error.number)
    except OSError as error:
        status.send_failure(f"{error.filename!r}" if error.filename else "preparing the jail", error.errno or 0)
    except Exception as error:
        status.send_failure(f"preparing the jail: {type(error).__name__}: {error}", 0)
    finally:
        os._exit(0)


def _fork_runner(plan: dict[str, Any], status: StatusPipe, umask: int) -> tuple[int, int, int]:
    """Fork the process that becomes the runner, to get ready while the jail is built around it.

    Its process id, the pipe that lets it go on, and the one that reports what went wrong. `pivot_root` moves it
    into the new root as it moves every process of the namespace; the canaries would see if not.
    """
    may_go, go = os.pipe2(os.O_CLOEXEC)
    report, reporter = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.close(report)
        status.close()
        os.umask(umask)
        _become_runner(plan, may_go, reporter)
    os.close(may_go)
    os.close(reporter)
    return pid, go, report


def _start_runner(go: int, report: int) -> None:
    """Let the runner confine itself and go on. Raises StepError where it did not come to it."""
    os.write(go, b"x")
    os.close(go)
    with open(report, "rb") as pipe:
        answer = pipe.read(4096)
    if answer:
        step, _, number = answer.rpartition(b"\0")
        raise kernel.StepError(os.fsdecode(step), int(number))


def _become_runner(plan: dict[str, Any], may_go: int, report: int) -> None:
    """Confine this process, prove it, run. What goes wrong is written to `report`; never returns."""
    step = "start of the runner"
    try:
        os.setsid()
        if plan["spares_runner"]:
            load_standard_modules()
        if not os.read(may_go, 1):
            os._exit(127)
        if report != 3:
            os.dup2(report, 3, inheritable=False)
        os.closerange(4, 65_536)
        step = "confinement"
        confine(plan)
        step = "canaries"
        missed = missed_canaries(plan)
        if missed:
            os.write(3, ("canary: " + ", ".join(missed)).encode() + b"\x000")
            os._exit(125)
        if plan["spares_runner"]:
            os.close(3)  # the end of the report is the word that all is well
            run_archive(plan)
        step = "start of the command"
        environment = dict(plan["environment"])
        os.execvpe(plan["argv"][0], plan["argv"], environment)  # noqa: S606
    except kernel.StepError as error:
        os.write(3, f"{error.step}\0{error.number}".encode())
    except OSError as error:
        os.write(3, f"{step}\0{error.errno}".encode())
    except Exception as error:
        os.write(3, f"{step}: {type(error).__name__}: {error}\x000".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _close_standard_streams() -> None:
    """The runner's ends of the pipes must be the only ones, so that the outside sees when it ends."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)


def _watch(plan: dict[str, Any], runner: int, status: StatusPipe, view_on_disk: int | None) -> int | None:
    """Reap and watch until the runner ended (its wait status), or None when the other side is gone."""
    deadline = time.monotonic() + plan["wall_s"]
    next_look_at_disk = 0.0
    reserve = watch.DiskReserve(view_on_disk) if view_on_disk is not None else None
    end_of_runner = os.pidfd_open(runner)
    poll = select.poll()
    poll.register(end_of_runner, select.POLLIN)
    poll.register(status.fileno(), select.POLLIN)
    while True:
        for number, _ in poll.poll(_TICK_MS):
            if number == status.fileno():
                return None
        ended = _reap(runner)
        if ended is not None:
            return ended
        now = time.monotonic()
        pids = watch.processes()
        if now > deadline:
            _stop_using(b"wall_s", None, status)
            continue
        spared = runner if plan["spares_runner"] else None
        if broken := _broken_limit(plan, pids):
            _stop_using(broken, spared if watch.own_bytes(runner) <= plan["memory_bytes"] else None, status)
            watch.remove_kept_memory()
        elif watch.is_machine_short():
            _stop_using(b"memory_bytes", None, status)
        elif reserve is not None and reserve.is_touched():
            # removed files that are still open go with their processes, but not those that the runner holds
            _stop_using(b"view_bytes", None, status)
        elif view_on_disk is not None and now > next_look_at_disk:
            if watch.is_tree_over(view_on_disk, plan["view_bytes"], plan["view_inodes"]):
                _stop_using(b"view_bytes", spared, status)
            next_look_at_disk = now + 10 * (time.monotonic() - now) + _DISK_TICK_S


def _reap(runner: int) -> int | None:
    """Collect everything that ended; the wait status of the runner where it is among them."""
    ended = None
    try:
        while True:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == runner:
                ended = wait_status
    except ChildProcessError:
        pass
    return ended


def _broken_limit(plan: dict[str, Any], pids: list[int]) -> bytes | None:
    if len(pids) > plan["processes"] + 300:
        return b"processes"
    limit = plan["memory_bytes"]
    return b"memory_bytes" if watch.memory_bytes(pids, limit) > limit else None


def _stop_using(limit: bytes, spared: int | None, status: StatusPipe) -> None:
    """Say which limit was met and kill all but the spared runner: the run itself can then go on."""
    status.send(b"LIMIT " + limit)
    if spared is None:
        _send(-1, _signal.SIGKILL)
        return
    _send(-1, _signal.SIGSTOP)  # all at once: what forks cannot run away
    done = {spared}
    # a fork that was under way shows its child, stopped as well, only after the look: the next one finds it
    while found := set(watch.processes()) - done:
        for pid in found:
            _send(pid, _signal.SIGKILL)
        done |= found
    _send(spared, _signal.SIGCONT)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended meanwhile; of -1: PID 1 alone is left


def _end_everything() -> None:
    """Kill every process of the jail and wait until none is left."""
    is_empty = False
    while not is_empty:
        try:
            os.kill(-1, _signal.SIGKILL)
            os.waitpid(-1, 0)
        except (ProcessLookupError, ChildProcessError):
            is_empty = _is_childless()


def _is_childless() -> bool:
    """Reap the next child; True where there is none, dead or alive."""
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        return True
    return False
