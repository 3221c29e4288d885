"""Tries, from inside and as the very process that becomes the runner, what must be impossible.

Each check has been shown to work outside just before (agent.jail.traps). A miss means: no run.
"""

from __future__ import annotations

import _socket
import os

from agent.jail.launcher import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMESPACES = (b"user", b"mnt", b"pid", b"net", b"ipc", b"uts", b"cgroup")


def missed_canaries(plan: dict[str, Any]) -> list[str]:
    """The names of the promises that do not hold; empty where the jail proved itself."""
    traps = plan["traps"]
    status = _fields_of_status()
    checks = (
        ("a secret of the home can be read", lambda: can_open(traps["secret_path"], os.O_RDONLY)),
        ("a file of the host can be written", lambda: can_open(traps["secret_path"], os.O_WRONLY)),
        ("a secret of the environment can be read", lambda: _sees_environment(plan, traps["token"])),
        ("a host server can be reached", lambda: can_connect(_socket.AF_INET, ("127.0.0.1", traps["port"]))),
        ("a host socket can be reached", lambda: can_connect(_socket.AF_UNIX, traps["abstract"])),
        ("the process has capabilities", lambda: any(int(status[k], 16) for k in status if k.startswith(b"Cap"))),
        ("new privileges are possible", lambda: status.get(b"NoNewPrivs") != b"1"),
        ("system calls are not filtered", lambda: status.get(b"Seccomp") != b"2"),
        ("a namespace is the host's", lambda: _shares_namespace(traps["namespaces"])),
        ("processes of the host are visible", lambda: os.getppid() != 1),
        ("nested namespaces are possible", kernel.can_unshare_user),
        ("the workspace is the real one", lambda: _is_real_workspace(plan)),
        ("the workspace is at another path", lambda: os.getcwdb() != plan["workspace"]),
        ("a device node can be changed", lambda: can_change_mode(b"/dev/null")),
        ("settings of the kernel can be changed", lambda: can_open(b"/proc/sys/kernel/core_pattern", os.O_WRONLY)),
    )
    return [name for name, is_missed in checks if is_missed()]


def _fields_of_status() -> dict[bytes, bytes]:
    with open("/proc/self/status", "rb") as file:
        rows = (line.partition(b":") for line in file)
        return {name: value.strip() for name, _, value in rows}


def can_open(path: bytes, flags: int) -> bool:
    """Whether the path can be opened."""
    try:
        os.close(os.open(path, flags | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _sees_environment(plan: dict[str, Any], token: bytes) -> bool:
    """The launcher, and so PID 1, was started with the token in its environment."""
    if any(token in value for _, value in plan["environment"]):
        return True
    try:
        with open("/proc/1/environ", "rb") as file:
            return token in file.read()
    except OSError:
        return False


def can_connect(family: int, address: Any) -> bool:
    """Whether a stream socket can be connected; no when there is no port to try."""
    if address == ("127.0.0.1", None):  # the host has no network either
        return False
    try:
        connection = _socket.socket(family, _socket.SOCK_STREAM)
    except OSError:
        return False
    try:
        connection.settimeout(1.0)
        connection.connect(address)
    except OSError:
        return False
    finally:
        connection.close()
    return True


def _is_real_workspace(plan: dict[str, Any]) -> bool:
    """By what stands in for it: an overlay is a file system of its own, a copy another folder."""
    if not plan["copy"]:
        return kernel.filesystem_of(b".") != kernel.OVERLAYFS_MAGIC
    here = os.stat(b".")
    return (here.st_dev, here.st_ino) == (plan["workspace_device"], plan["workspace_inode"])


def _shares_namespace(of_host: dict[bytes, bytes]) -> bool:
    return any(of_host.get(kind) == os.readlink(b"/proc/self/ns/" + kind) for kind in _NAMESPACES)


def can_change_mode(path: bytes) -> bool:
    """Whether the mode of a path can be set, to what it is."""
    try:
        os.chmod(path, os.stat(path).st_mode & 0o7777)
    except OSError:
        return False
    return True
