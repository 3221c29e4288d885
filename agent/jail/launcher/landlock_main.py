"""Backend C, first process: nothing of the jail outlives it, and it does nothing else.

There is no namespace whose end would be everybody's end. Instead each of our two processes is under Landlock rules
that only scope signals, so that `kill(-1)` reaches exactly what it started: first this one, below it the supervisor,
below that the jailed processes, which can reach neither. Either of the two sees the other end, and ends the rest.
"""

from __future__ import annotations

import marshal
import os

from agent.jail.launcher import kernel
from agent.jail.launcher.confine import forget_signals, shed_privileges
from agent.jail.launcher.landlock_supervisor import run_supervisor
from agent.jail.launcher.landlock_tree import become_top, end_everything
from agent.jail.launcher.main import prefer_for_the_killer
from agent.jail.launcher.status import StatusPipe


def main(plan_fd: int, status_fd: int) -> None:
    """Run a plan; the descriptors come from the parent. Exits; what happened is told on the status channel."""
    with open(plan_fd, "rb") as file:
        plan = marshal.loads(file.read())  # noqa: S302 - from our own parent, and json costs half a start
    status = StatusPipe(status_fd, plan["nonce"])
    supervisor = -1
    try:
        forget_signals()
        prefer_for_the_killer()
        if plan["privileged"]:
            _come_first()
        shed_privileges(plan)
        become_top()
        guardian = os.pidfd_open(os.getpid())
        supervisor = os.fork()
        if supervisor == 0:
            run_supervisor(plan, status, guardian)
    except kernel.StepError as error:
        status.send_failure(error.step, error.number)
    except OSError as error:
        status.send_failure("preparing the jail", error.errno or 0)
    status.close()
    if supervisor < 0:
        return
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    while os.waitpid(-1, 0)[0] != supervisor:
        pass
    end_everything()


def _come_first() -> None:
    """Root's processes have no limit of the kernel: the one that counts them must not wait for its turn among them."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        return  # a wish, not a promise: the root of a container may have no right to it
