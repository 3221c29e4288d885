"""What all jailed processes use together. RLIMITs count for each process alone, so PID 1 looks ten times a second."""

from __future__ import annotations

import os
import stat

from agent.jail.launcher import kernel

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_DEPTH = 400
_RESERVED_SHARE = 4
_SHORT_SHARE = 32
_SEMAPHORE_BYTES = 64  # struct sem takes a cache line of its own (ipc/sem.c)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def processes() -> list[int]:
    """The process ids of the jail besides PID 1."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def memory_bytes(pids: list[int], limit: int) -> int:
    """The memory of these processes together; shared pages are counted once only where it matters.

    The resident sizes are cheap but count shared pages again and again; where they are above `limit` the
    exact, dear figure is asked for. What System V keeps without any process counts too.
    """
    unattached = sum(size for _, _, size in _kept_without_process())
    return unattached + memory_of(pids, limit - unattached)


def memory_of(pids: list[int], limit: int) -> int:
    """The same without what System V keeps, which may be others' where there is no namespace."""
    total = sum(_resident_bytes(pid) for pid in pids)
    return total if total <= limit else sum(_proportional_bytes(pid) for pid in pids)


def own_bytes(pid: int) -> int:
    """The exact memory of one process."""
    return _proportional_bytes(pid)


def is_machine_short() -> bool:
    """Whether the machine itself is about to run out of memory: the buffers of sockets are counted nowhere else."""
    try:
        with open("/proc/meminfo", "rb") as file:
            rows = dict(line.split()[:2] for line in file)
        return int(rows[b"MemAvailable:"]) < int(rows[b"MemTotal:"]) // _SHORT_SHARE
    except (OSError, KeyError, ValueError):
        return False


def is_tree_over(root: int, max_bytes: int, max_entries: int) -> bool:
    """Whether the tree below an open folder takes more than this on disk; stops at the first excess.

    A tree that is nested deeper than any honest one counts as too large: each level takes a descriptor. Hostile
    processes change it meanwhile: what is opened is a folder, or nothing, and never waits.
    """
    used_bytes = entries = 0
    way = [(os.dup(root), os.listdir(root))]  # the open folders, each with what is left to look at
    try:
        while way:
            here, names = way[-1]
            if not names:
                os.close(way.pop()[0])
                continue
            name = names.pop()
            entries += 1
            try:
                info = os.stat(name, dir_fd=here, follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    way.append((os.open(name, _FOLDER, dir_fd=here), []))
                    way[-1][1].extend(os.listdir(way[-1][0]))
                else:
                    used_bytes += info.st_blocks * 512
            except OSError:
                continue  # it went meanwhile
            if used_bytes > max_bytes or entries > max_entries or len(way) > _MAX_DEPTH:
                return True
    finally:
        for here, _ in way:
            os.close(here)
    return False


class DiskReserve:
    """The part of a disk that a jail leaves alone: a share of what was free when it began.

    Files that are open but removed, or are on their way through a socket, are in no tree that could be added up.
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._bytes = self._free_bytes() // _RESERVED_SHARE

    def is_touched(self) -> bool:
        """Whether less than the reserve is free now."""
        return self._free_bytes() < self._bytes

    def _free_bytes(self) -> int:
        system = os.fstatvfs(self._folder)
        return system.f_bavail * system.f_frsize


def remove_kept_memory() -> None:
    """Remove what System V keeps without any process: no end of one would free it."""
    for kind, number, _ in _kept_without_process():
        kernel.remove_ipc(kind, number)


def _kept_without_process() -> list[tuple[str, int, int]]:
    """(kind, id, bytes) of shared memory that nobody has attached, sets of semaphores, and queues with messages."""
    segments = [("shm", int(row[1]), int(row[14])) for row in _table("shm") if row[6] == b"0"]
    sets = [("sem", int(row[1]), int(row[3]) * _SEMAPHORE_BYTES) for row in _table("sem")]
    queues = [("msg", int(row[1]), int(row[3])) for row in _table("msg") if row[3] != b"0"]
    return segments + sets + queues


def _table(kind: str) -> list[list[bytes]]:
    try:
        with open(f"/proc/sysvipc/{kind}", "rb") as file:
            return [line.split() for line in file.readlines()[1:]]
    except OSError:
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
