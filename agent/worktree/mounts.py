"""What is mounted below a folder, as /proc/self/mountinfo has it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

# The kernel's own: what they show are no files of anybody, and reading some of them never ends.
_VIRTUAL = frozenset(
    (
        *("autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs"),
        *("fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "sysfs", "tracefs"),
    )
)


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount point and the kind of its file system."""

    point: str
    kind: str

    @property
    def is_virtual(self) -> bool:
        """True for file systems that hold no files of a user."""
        return self.kind in _VIRTUAL


def mounts_below(folder: str) -> tuple[Mount, ...]:
    """The mounts below a resolved folder; empty where the system has no such table."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            table = file.read()
    except OSError:
        return ()
    inside = folder.rstrip("/") + "/"
    return tuple(mount for mount in parse_mounts(table) if mount.point.startswith(inside))


def parse_mounts(table: bytes) -> tuple[Mount, ...]:
    """All lines of a mountinfo table that can be read. Pure."""
    mounts = []
    for line in table.splitlines():
        head, _, tail = line.partition(b" - ")
        fields = head.split()
        if len(fields) > 4 and tail:
            # spaces and the like are written as octal escapes
            point = re.sub(rb"\\([0-7]{3})", lambda m: bytes((int(m[1], 8),)), fields[4])
            mounts.append(Mount(os.fsdecode(point), os.fsdecode(tail.split()[0])))
    return tuple(mounts)
