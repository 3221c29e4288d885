"""Backend C, second process: starts the runner, answers what its filter asks, watches, and ends everything."""

from __future__ import annotations

import _socket
import os
import select
import time

from agent.jail.launcher import kernel, watch
from agent.jail.launcher.landlock_calls import Calls
from agent.jail.launcher.landlock_runner import become_runner
from agent.jail.launcher.landlock_tree import become_top, count_threads, end_everything, kill_all_but, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from agent.jail.launcher.status import StatusPipe

_TICK_MS = 100
_DISK_TICK_S = 0.5


def run_supervisor(plan: dict[str, Any], status: StatusPipe, guardian: int) -> NoReturn:
    """Exits when the runner ended, when a limit was met, or when the other side or the guardian is gone.

    `guardian` is the descriptor of the process above. All below it is dead when it exits.
    """
    try:
        become_top()
        status.send(b"INIT", os.pidfd_open(os.getpid()))
        ended = _Supervisor(plan, status, guardian).run()
        end_everything()
        status.send(b"EXIT %d" % ended if ended is not None else b"GONE")
    except kernel.StepError as error:
        status.send_failure(error.step, error.number)
    except OSError as error:
        status.send_failure(f"{error.filename!r}" if error.filename else "preparing the jail", error.errno or 0)
    except Exception as error:
        status.send_failure(f"preparing the jail: {type(error).__name__}: {error}", 0)
    finally:
        os._exit(0)  # the guardian ends what a failed start has left


class _Supervisor:
    def __init__(self, plan: dict[str, Any], status: StatusPipe, guardian: int) -> None:
        self._plan = plan
        self._status = status
        self._view = os.open(plan["view"], os.O_RDONLY | os.O_DIRECTORY)
        self._scratch = os.open(plan["scratch"], os.O_RDONLY | os.O_DIRECTORY)
        status.send(b"VIEW", self._view)
        self._runner, channel, self._report = _fork_runner(plan, status, guardian)
        self._calls = Calls(_receive_listener(channel, self._report), plan["writable"], plan["emulated"])
        self._poll = select.poll()
        self._over = (status.fileno(), guardian)
        for number in (*self._over, os.pidfd_open(self._runner), self._calls.listener, self._report):
            self._poll.register(number, select.POLLIN)

    def run(self) -> int | None:
        """The wait status of the runner, or None when the other side is gone. Raises StepError."""
        while not self._is_ready():
            if self._wait():
                return None
        self._status.send(b"READY")
        _close_standard_streams()
        deadline = time.monotonic() + self._plan["wall_s"]
        next_look = next_look_at_disk = 0.0
        while True:
            if self._wait():
                return None
            ended = _reap(self._runner)
            if ended is not None:
                if broken := self._full_folder():  # it was faster than the watch
                    self._status.send(b"LIMIT " + broken)
                return ended
            now = time.monotonic()
            if now < next_look:  # it was woken by a question
                continue
            next_look = now + _TICK_MS / 1000
            if now > deadline:
                self._stop_using(b"wall_s", None)
            elif broken := self._broken_limit():
                is_fine = watch.memory_of([self._runner], 0) <= self._plan["memory_bytes"]
                self._stop_using(broken, self._spared if is_fine else None)
            elif now > next_look_at_disk:
                if broken := self._full_folder():
                    self._stop_using(broken, self._spared)
                next_look_at_disk = now + 10 * (time.monotonic() - now) + _DISK_TICK_S

    @property
    def _spared(self) -> int | None:
        return self._runner if self._plan["spares_runner"] else None

    def _wait(self) -> bool:
        """Wait a tick, or until something happens, and answer questions; True when all has to end."""
        for number, _ in self._poll.poll(_TICK_MS):
            if number in self._over:
                return True
            if number == self._calls.listener:
                self._calls.answer()
        return False

    def _is_ready(self) -> bool:
        """Whether the runner has proven itself: the end of its report. Raises StepError for what is in it."""
        if not select.select([self._report], [], [], 0)[0]:
            return False
        answer = os.read(self._report, 4096)
        if answer:
            step, _, number = answer.rpartition(b"\0")
            raise kernel.StepError(os.fsdecode(step), int(number))
        self._poll.unregister(self._report)
        os.close(self._report)
        return True

    def _broken_limit(self) -> bytes | None:
        pids = processes()
        if count_threads(pids) > self._plan["processes"]:
            return b"processes"
        limit = self._plan["memory_bytes"]
        return b"memory_bytes" if watch.memory_of(pids, limit) > limit else None

    def _full_folder(self) -> bytes | None:
        """Which folder is over its bound: disks have no limit of their own, so it can be met for half a second."""
        plan = self._plan
        if watch.is_tree_over(self._view, plan["view_bytes"], plan["view_inodes"]):
            return b"view_bytes"
        if watch.is_tree_over(self._scratch, plan["scratch_bytes"], plan["view_inodes"]):
            return b"scratch_bytes"
        return None

    def _stop_using(self, limit: bytes, spared: int | None) -> None:
        """Say which limit was met and kill all but the spared runner: the run itself can then go on."""
        self._status.send(b"LIMIT " + limit)
        kill_all_but(spared)


def _fork_runner(plan: dict[str, Any], status: StatusPipe, guardian: int) -> tuple[int, _socket.socket, int]:
    """Fork the process that becomes the runner: its id, where its filter's listener comes from, and its report."""
    here, there = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    report, reporter = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        status.close()
        for number in (here.fileno(), report, guardian):
            os.close(number)
        become_runner(plan, there.fileno(), reporter)
    there.close()
    os.close(reporter)
    return pid, here, report


def _receive_listener(channel: _socket.socket, report: int) -> int:
    """The descriptor on which the runner's filter asks. Raises StepError where the runner did not come to it."""
    _, ancillary, _, _ = channel.recvmsg(1, 64)
    channel.close()
    for level, kind, packed in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            listener = int.from_bytes(packed[:4], "little")
            os.set_inheritable(listener, False)
            return listener
    answer = os.read(report, 4096)
    step, _, number = answer.rpartition(b"\0")
    raise kernel.StepError(os.fsdecode(step) or "start of the runner", int(number or 0))


def _close_standard_streams() -> None:
    """The runner's ends of the pipes must be the only ones, so that the outside sees when it ends."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)


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
