"""What backend C does not promise, case by case, with the reason; a test fails where one of them holds after all."""

from __future__ import annotations

import errno

_NAMES = "without a namespace of mounts, names of the host can be seen (not opened)"

NOT_PROMISED = {
    "see_interfaces_of_the_machine": "it is in the host's network, where it can make no socket",
    "open_a_disk": _NAMES,
}
"""Attacks that succeed. They change nothing of the host and read no content: only names are seen."""

_NO_SOCKET = (errno.EACCES,)
_NO_TERMINAL = (errno.EACCES, errno.ENOENT)
REFUSED_OTHERWISE = {
    "reach_tcp_outside": _NO_SOCKET,
    "reach_tcp_outside_6": _NO_SOCKET,
    "reach_udp_outside": _NO_SOCKET,
    "reach_the_metadata_service": _NO_SOCKET,
    "load_a_rare_protocol": _NO_SOCKET,
    "listen_to_the_audit": _NO_SOCKET,
    "type_into_a_terminal": _NO_TERMINAL,
    "paste_into_a_console": _NO_TERMINAL,
    "read_shadow": (errno.EACCES,),
}
"""Attacks that are refused, with other errors than in a jail with namespaces."""

_NO_SEMAPHORE = "semaphores with a name are files in /dev/shm, which is the host's"
_NO_SERVER = "no socket can be bound or connected: they would be the host's"
_NO_PTY = "terminals would be the host's"
COMMANDS_THAT_FAIL = {
    "pool": _NO_SEMAPHORE,
    "semaphore": _NO_SEMAPHORE,
    "locks": _NO_SEMAPHORE,
    "server": _NO_SERVER,
    "unix-socket": _NO_SERVER,
    "node": _NO_SERVER,
    "pty": _NO_PTY,
    "script": _NO_PTY,
    "ps": "there is no /proc: that of the host tells of all processes",
    "identity": "there is no /etc/hosts: that of the host names other machines",
}
"""Commands of developers (tests/jail/test_jail_tools.py) that do not work."""

SCENARIOS_THAT_FAIL = {
    "bash time-outs, daemons and the scratch folder": "it looks into /proc, and uses /tmp by its name"
}
"""Scenarios of tools (tests/scenarios/tools.json) that cannot be the same."""

_WATCH = "a disk has no bound of its own: the watch ends the command"
BOMBS_STOPPED_OTHERWISE = {
    "shared-memory": (1, "there is no /dev/shm"),
    "semaphores": (1, "there is no System V IPC"),
    "queues": (1, "there is no System V IPC"),
    "full-scratch": (1, "nothing can be written to /tmp; TMPDIR is elsewhere"),
    "full-view": (124, _WATCH),
    "empty-files": (124, _WATCH),
}
"""The exit code, and why it is another than in a jail with namespaces."""

_ROOT = "the kernel counts no processes of root, and there is no namespace to count them"
BOMBS_WITHOUT_A_KERNEL_LIMIT = {"processes": _ROOT, "threads": _ROOT, "zombies": _ROOT}
