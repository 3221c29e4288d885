"""Backend C: tries, as the very process that becomes the runner, what must be impossible, and what must work."""

from __future__ import annotations

import _socket
import ctypes
import os

from agent.jail.launcher import kernel
from agent.jail.launcher.canaries import can_change_mode, can_connect, can_open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_FOLDER = os.O_RDONLY | os.O_DIRECTORY


def missed_landlock_canaries(plan: dict[str, Any]) -> list[str]:
    """The names of the promises that do not hold; empty where the jail proved itself.

    What this backend does not promise (see `agent.jail.landlock.REDUCED`) is not tried.
    """
    traps = plan["traps"]
    secret = traps["secret_path"]
    supervisor = os.getppid()
    is_copy = plan["root"] != plan["workspace"]
    checks: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("a secret of the home can be read", lambda: can_open(secret, os.O_RDONLY)),
        ("a file of the host can be written", lambda: can_open(secret, os.O_WRONLY)),
        ("a file of the host can be truncated", lambda: _works(lambda: os.truncate(secret, 0))),
        ("the mode of a file of the host can be changed", lambda: can_change_mode(secret)),
        ("the times of a file of the host can be changed", lambda: _works(lambda: os.utime(secret, (1, 1)))),
        ("the owner of a file of the host can be changed", lambda: _works(lambda: os.chown(secret, -1, -1))),
        ("attributes of a file of the host can be set", lambda: _works(lambda: os.setxattr(secret, "user.x", b""))),
        ("a file of the host can be linked", lambda: _works(lambda: os.link(secret, plan["scratch"] + b"/linked"))),
        ("a secret of the environment can be read", lambda: _sees_environment(plan, traps["token"], supervisor)),
        ("a host server can be reached", lambda: can_connect(_socket.AF_INET, ("127.0.0.1", traps["port"]))),
        ("a host socket can be reached", lambda: can_connect(_socket.AF_UNIX, traps["abstract"])),
        ("the process has capabilities", kernel.has_capabilities),
        ("new privileges are possible", lambda: kernel.prctl(kernel.PR_GET_NO_NEW_PRIVS, 0, "no_new_privs") != 1),
        ("system calls are not filtered", lambda: kernel.prctl(kernel.PR_GET_SECCOMP, 0, "seccomp") != 2),
        ("processes of the host can be signalled", lambda: _works(lambda: os.kill(supervisor, 0))),
        ("limits of host processes can be changed", lambda: _can_limit(supervisor)),
        ("nested namespaces are possible", kernel.can_unshare_user),
        ("the real workspace can be read", lambda: is_copy and can_open(plan["workspace"], _FOLDER)),
        ("the workspace is the real one", lambda: is_copy and _is_real_workspace(plan)),
        ("the real workspace can be changed", lambda: can_change_mode(plan["workspace"])),
        ("a device node can be changed", lambda: can_change_mode(b"/dev/null")),
        ("settings of the kernel can be changed", lambda: can_open(b"/proc/sys/kernel/core_pattern", os.O_WRONLY)),
        ("modes of private files cannot be changed", lambda: not _can_change_own(plan["scratch"])),
    )
    return [name for name, is_missed in checks if is_missed()]


def _works(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def _sees_environment(plan: dict[str, Any], token: bytes, supervisor: int) -> bool:
    """The launcher, and so the supervisor, was started with the token in its environment."""
    if any(token in value for _, value in plan["environment"]):
        return True
    return can_open(b"/proc/%d/environ" % supervisor, os.O_RDONLY)


def _can_limit(pid: int) -> bool:
    old = ctypes.create_string_buffer(16)
    return int(ctypes.CDLL(None).prlimit64(pid, 7, None, old)) == 0


def _is_real_workspace(plan: dict[str, Any]) -> bool:
    here = os.stat(b".")
    return (here.st_dev, here.st_ino) == (plan["workspace_device"], plan["workspace_inode"])


def _can_change_own(scratch: bytes) -> bool:
    """Whether the supervisor answers: without it git, tar and compilers fail in ways that nobody understands."""
    path = scratch + b"/tmp/.canary"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        os.chmod(path, 0o640)
        os.utime(path, ns=(1, 2))
        info = os.stat(path)
        return (info.st_mode & 0o7777, info.st_mtime_ns) == (0o640, 2)
    except OSError:
        return False
    finally:
        os.unlink(path)
