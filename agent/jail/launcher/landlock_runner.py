"""Backend C, third process: confines itself, proves it, and becomes the runner or the command."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would bring `enum`, a fifth of the start
import _socket
import fcntl
import os

from agent.jail.launcher import kernel
from agent.jail.launcher.confine import forget_signals, set_limits
from agent.jail.launcher.landlock_canaries import missed_landlock_canaries
from agent.jail.launcher.ruleset import (
    BIND_AND_CONNECT_TCP,
    EXECUTE,
    IOCTL_DEV,
    MAKE_BLOCK,
    MAKE_CHAR,
    OF_FILES,
    READ_DIR,
    READ_FILE,
    RIGHTS_BY_ABI,
    WRITE_FILE,
    enforce,
)
from agent.jail.launcher.runner import load_standard_modules, run_archive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_RIGHTS = RIGHTS_BY_ABI[5]
_BY_ACCESS = {
    b"read": EXECUTE | READ_FILE | READ_DIR,
    b"device": READ_FILE | WRITE_FILE | IOCTL_DEV,
    b"write": _RIGHTS & ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV),
}
_REPORT, _CHANNEL = 3, 4


def become_runner(plan: dict[str, Any], channel: int, report: int) -> NoReturn:
    """Confine this process, prove it, run. What goes wrong is written to `report`.

    The listener of its filter is sent over the socket `channel`.
    """
    step = "start of the runner"
    try:
        os.setsid()
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # to come first is for those who watch
        if plan["spares_runner"]:
            load_standard_modules()
        moved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _CHANNEL + 1) for number in (report, channel)]
        os.dup2(moved[0], _REPORT, inheritable=False)
        os.dup2(moved[1], _CHANNEL, inheritable=False)
        os.closerange(_CHANNEL + 1, 65_536)
        step = "confinement"
        _confine(plan)
        step = "canaries"
        missed = missed_landlock_canaries(plan)
        if missed:
            os.write(_REPORT, ("canary: " + ", ".join(missed)).encode() + b"\x000")
            os._exit(125)
        if plan["spares_runner"]:
            os.close(_REPORT)  # the end of the report is the word that all is well
            run_archive(plan)
        step = "start of the command"
        os.execvpe(plan["argv"][0], plan["argv"], dict(plan["environment"]))  # noqa: S606
    except kernel.StepError as error:
        os.write(_REPORT, f"{error.step}\0{error.number}".encode())
    except OSError as error:
        where = f" ({os.fsdecode(error.filename)})" if error.filename and step == "confinement" else ""
        os.write(_REPORT, f"{step}{where}\0{error.errno}".encode("utf-8", "replace"))
    except Exception as error:
        os.write(_REPORT, f"{step}: {type(error).__name__}: {error}\x000".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _confine(plan: dict[str, Any]) -> None:
    """Limits, Landlock, seccomp; its listener goes to the supervisor. Raises StepError, OSError."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, _signal.SIGKILL, "death with the parent")
    # the supervisor reads what is asked from memory
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1, "dumpable")
    set_limits(plan)
    os.chdir(plan["root"])
    if plan["spares_runner"]:
        _lock_streams()
    rules = []
    for path, access in plan["rules"]:
        rights = _BY_ACCESS[access]
        rules.append((path, rights if os.path.isdir(path) else rights & OF_FILES))
    enforce(kernel.landlock_version(), _RIGHTS, rules, BIND_AND_CONNECT_TCP)
    forget_signals()
    listener = kernel.install_filter(plan["seccomp"], kernel.FILTER_NEW_LISTENER | kernel.FILTER_WAIT_KILLABLE)
    channel = _socket.socket(fileno=_CHANNEL)
    packed = listener.to_bytes(4, "little")
    channel.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)], _socket.MSG_NOSIGNAL)
    channel.close()
    os.close(listener)


def _lock_streams() -> None:
    """Commands may see this process in /proc; that way they must not open the pipes that the frames go through."""
    for number in (0, 1, 2):
        os.fchmod(number, 0)
