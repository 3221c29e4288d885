"""What all jailed processes use together. RLIMITs count for each process alone, so PID 1 looks ten times a second."""

from __future__ import annotations

import os

from agent.jail.launcher import kernel

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def processes() -> list[int]:
    """The process ids of the jail besides PID 1."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def memory_bytes(pids: list[int], limit: int) -> int:
    """The memory of these processes together; shared pages are counted once only where it matters.

    The resident sizes are cheap but count shared pages again and again; where they are above `limit` the
    exact, dear figure is asked for. Shared memory that nobody has attached counts too.
    """
    unattached = sum(size for _, size in _unattached_segments())
    return unattached + memory_of(pids, limit - unattached)


def memory_of(pids: list[int], limit: int) -> int:
    """The same without shared memory that nobody has attached, which may be others' where there is no namespace."""
    total = sum(_resident_bytes(pid) for pid in pids)
    return total if total <= limit else sum(_proportional_bytes(pid) for pid in pids)


def own_bytes(pid: int) -> int:
    """The exact memory of one process."""
    return _proportional_bytes(pid)


def is_tree_over(root: int, max_bytes: int, max_entries: int) -> bool:
    """Whether the tree below an open folder takes more than this on disk; stops at the first excess."""
    used_bytes = entries = 0
    for _, folders, files, here in os.fwalk(".", dir_fd=root, onerror=None):
        entries += len(folders) + len(files)
        for name in files:
            try:
                used_bytes += os.stat(name, dir_fd=here, follow_symlinks=False).st_blocks * 512
            except OSError:
                continue  # it went meanwhile
        if used_bytes > max_bytes or entries > max_entries:
            return True
    return False


def remove_unattached_memory() -> None:
    """Remove the System V shared memory that nobody has attached: no end of a process would free it."""
    for number, _ in _unattached_segments():
        kernel.remove_shared_memory(number)


def _unattached_segments() -> list[tuple[int, int]]:
    """(id, resident bytes) of the segments that no process has attached."""
    try:
        with open("/proc/sysvipc/shm", "rb", buffering=0) as file:
            rows = [line.split() for line in file.read(1_000_000).splitlines()[1:]]
        return [(int(row[1]), int(row[14])) for row in rows if row[6] == b"0"]
    except (OSError, IndexError, ValueError):
        return []  # a kernel without them


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            return int(file.read(256).split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0  # it ended meanwhile


def _proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
            for line in file.read(4096).splitlines():
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, IndexError):
        pass
    return 0
