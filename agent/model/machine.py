"""What this machine has for a model: free memory and processor cores, within the limits of its container."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Memory that a new process can have without swapping, in bytes."""
    return min(int(psutil.virtual_memory().available), _cgroup_room_bytes())


def total_bytes() -> int:
    """All the memory that programs may have here, in bytes."""
    limits = [_read_number(folder / "memory.max") for folder in _cgroup_folders()]
    limits += [_read_number(folder / "memory.limit_in_bytes") for folder in _cgroup_folders("memory")]
    return min([int(psutil.virtual_memory().total), *(limit for limit in limits if limit is not None)])


def physical_cores() -> int:
    """Cores that this process may use, hyper-threads not counted: more threads make decoding slower."""
    logical = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    real, all_logical = psutil.cpu_count(logical=False) or logical, psutil.cpu_count() or logical
    share = max(1, all_logical // max(1, real))
    return max(1, min(logical // share if logical >= share else 1, _cgroup_cores(logical)))


def _cgroup_room_bytes() -> int:
    """What is left below the limits of this process's own control groups, of version 2 and of version 1."""
    names = ("memory.max", "memory.current", "inactive_file")
    groups = [(folder, *names) for folder in _cgroup_folders()]
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    groups += [(folder, *names) for folder in _cgroup_folders("memory")]
    room = 1 << 62
    for folder, most, current, cache_field in groups:
        limit, used = _read_number(folder / most), _read_number(folder / current)
        if limit is not None and used is not None:
            cache = _read_field(folder / "memory.stat", cache_field)
            room = min(room, max(0, limit - used + cache))
    return room


def _cgroup_cores(default: int) -> int:
    cores = default
    for folder in _cgroup_folders():
        try:
            quota, period = (folder / "cpu.max").read_text().split()
            if quota != "max":
                cores = min(cores, max(1, round(int(quota) / int(period))))
        except (OSError, ValueError):
            continue
    return cores


def _cgroup_folders(controller: str = "") -> list[Path]:
    """This process's group and those around it: of version 2, or of a `controller` of version 1."""
    try:
        lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
        path = next(path for _, controllers, path in lines if controller in controllers.split(","))
    except (OSError, StopIteration, ValueError):
        return []
    root = _CGROUP / controller
    own = root / path.lstrip("/")
    return [folder for folder in (own, *own.parents) if folder == root or root in folder.parents]


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # "max", or a kernel without it


def _read_field(path: Path, name: str) -> int:
    try:
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    except (OSError, ValueError):
        return 0
    return 0
