"""PID 1 of a jail whose namespaces and mounts bubblewrap made (backend B): the same launcher without the building."""

from __future__ import annotations

import marshal
import os

from agent.jail.launcher.init import run_init
from agent.jail.launcher.kernel import ATTR_NOEXEC, ATTR_NOSUID, ATTR_RDONLY, StepError, set_attributes
from agent.jail.launcher.main import join_group
from agent.jail.launcher.mounts import set_kernel_limits
from agent.jail.launcher.status import StatusPipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HARMLESS = ATTR_RDONLY | ATTR_NOSUID | ATTR_NOEXEC


def main(plan_fd: int, status_fd: int) -> None:
    """Run a plan; the descriptors come from the parent of bubblewrap. Never returns."""
    with open(plan_fd, "rb") as file:
        plan = marshal.loads(file.read())  # noqa: S302 - from our own parent, and json costs half a start
    status = StatusPipe(status_fd, plan["nonce"])
    join_group(plan)
    if "stderr" in plan["numbers"]:  # until here it was bubblewrap's
        os.dup2(plan["numbers"]["stderr"], 2)
    status.send(b"INIT", os.pidfd_open(os.getpid()))
    run_init(plan, lambda: take_root(plan), status)


def take_root(plan: dict[str, Any]) -> int:
    """Finish what bubblewrap cannot do, look that the workspace is not the real one; the private view's descriptor.

    Raises StepError, OSError.
    """
    if plan["privileged"]:  # bubblewrap binds device nodes writable: root could change those of the host
        for name in plan["devices"]:
            if os.path.exists(b"/dev/" + name):
                set_attributes(b"/dev/" + name, _HARMLESS, "read-only device")
        set_kernel_limits(plan, b"/proc")  # the kernel counts no processes of root by itself
        set_attributes(b"/proc", _HARMLESS, "read-only proc")
    here = os.stat(plan["workspace"])
    if (here.st_dev, here.st_ino) == (plan["workspace_device"], plan["workspace_inode"]):
        raise StepError("canary: the workspace is the real one", 0)
    view = plan["numbers"].get("view")
    return os.open(plan["workspace"], os.O_RDONLY | os.O_DIRECTORY) if view is None else int(view)
