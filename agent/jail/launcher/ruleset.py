"""Landlock: what this process, and all that it starts, may reach from now on."""

from __future__ import annotations

import ctypes
import os

from agent.jail.launcher import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Rights on files (include/uapi/linux/landlock.h); ABI 1 has 13 of them, then refer, truncate, ioctl_dev
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, IOCTL_DEV = 1, 2, 4, 8, 1 << 15
MAKE_CHAR, MAKE_BLOCK, TRUNCATE = 1 << 6, 1 << 11, 1 << 14
RIGHTS_BY_ABI = {2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""The rights that a rule on a single file may have."""

BIND_AND_CONNECT_TCP = 3
SIGNALS_AND_ABSTRACT_SOCKETS = 3


def enforce(version: int, rights: int, rules: Iterable[tuple[bytes, int]], network: int = 0) -> None:
    """From now on `rights` on files are refused but where a rule (path, rights) gives them, for good.

    `network` are the rights on TCP ports that nothing has. From `version` (the ABI) 6 on, signals and abstract
    sockets reach only processes that are under the same rules. Raises StepError, OSError.
    """
    attributes = rights.to_bytes(8, "little")
    if version >= 6:
        attributes += network.to_bytes(8, "little") + SIGNALS_AND_ABSTRACT_SOCKETS.to_bytes(8, "little")
    ruleset = kernel.syscall(kernel.SYS_LANDLOCK_CREATE, "landlock", attributes, len(attributes), 0)
    for path, allowed in rules:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = allowed.to_bytes(8, "little") + place.to_bytes(4, "little")
        kernel.syscall(kernel.SYS_LANDLOCK_ADD, "landlock", ruleset, 1, ctypes.c_char_p(rule), 0)
        os.close(place)
    kernel.syscall(kernel.SYS_LANDLOCK_RESTRICT, "landlock", ruleset, 0)
    os.close(ruleset)
