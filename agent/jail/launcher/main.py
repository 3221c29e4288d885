"""The launcher's first process: makes the namespaces, forks PID 1, and waits for it."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would bring `enum`, a fifth of the start
import marshal
import os

from agent.jail.launcher import kernel
from agent.jail.launcher.init import run_init
from agent.jail.launcher.mounts import build_root
from agent.jail.launcher.status import StatusPipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ALL = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)


def main(plan_fd: int, runner_fd: int, status_fd: int) -> None:
    """Run a plan; the descriptors come from the parent. Exits; what happened is told on the status channel."""
    with open(plan_fd, "rb") as file:
        plan = marshal.loads(file.read())  # noqa: S302 - from our own parent, and json costs half a start
    with open(runner_fd, "rb") as file:
        runner = file.read()
    status = StatusPipe(status_fd, plan["nonce"])
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # ignored by the parent, no child could be waited for
    try:
        kernel.wipe_command_line()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, _signal.SIGKILL, "death with the parent")
        prefer_for_the_killer()
        join_group(plan)
        _enter_namespaces(plan)
        # the change of credentials has undone it
        kernel.prctl(kernel.PR_SET_PDEATHSIG, _signal.SIGKILL, "death with the parent")
        pid = os.fork()
        if pid == 0:
            run_init(plan, lambda: build_root(plan, runner), status)
        status.send(b"INIT", os.pidfd_open(pid))
    except kernel.StepError as error:
        status.send_failure(error.step, error.number)
        return
    except OSError as error:
        status.send_failure(os.fsdecode(error.filename or b"namespaces"), error.errno or 0)
        return
    status.close()
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.waitpid(pid, 0)


def join_group(plan: dict[str, Any]) -> None:
    """Enter the control group, before anything else can be started: all that comes from here is in it."""
    number = plan["numbers"].get("group")
    if number is None:
        return
    try:
        os.write(number, b"0")
    except OSError:
        return  # somebody removed it meanwhile; PID 1 watches in any case
    finally:
        os.close(number)


def prefer_for_the_killer() -> None:
    """When the machine runs out of memory, the jail goes first."""
    try:
        _write("/proc/self/oom_score_adj", b"500")
    except OSError:
        return  # a wish, not a promise: some containers forbid it


def _enter_namespaces(plan: dict[str, Any]) -> None:
    """Enter the namespaces and map the identities. Raises StepError, OSError."""
    if not plan["privileged"]:
        kernel.unshare(_ALL, "unshare")
        _write_map("self", plan, deny_groups=True)
        return
    # more than one identity can be mapped only from outside of the new namespace
    me = os.getpid()
    ready, go = os.pipe()
    helper = os.fork()
    if helper == 0:
        code = 1
        try:
            os.close(go)
            if os.read(ready, 1):
                _write_map(str(me), plan, deny_groups=False)
                code = 0
        finally:
            os._exit(code)
    os.close(ready)
    try:
        kernel.unshare(_ALL, "unshare")
        os.write(go, b"x")
    finally:
        os.close(go)
        helper_status = os.waitpid(helper, 0)[1]
    if helper_status:
        raise kernel.StepError("uid_map", 1)


def _write_map(who: str, plan: dict[str, Any], *, deny_groups: bool) -> None:
    if deny_groups:
        _write(f"/proc/{who}/setgroups", b"deny")
    for name in ("uid_map", "gid_map"):
        _write(f"/proc/{who}/{name}", b"\n".join(b"%d %d %d" % row for row in plan[name]))


def _write(path: str, value: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(value)
