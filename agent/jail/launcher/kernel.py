"""System calls that Python 3.11 does not have, through ctypes. Each failure names its step."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 0x20
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 1, 4, 24, 28
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
PR_GET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_GET_NO_NEW_PRIVS = 21, 36, 39
# NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE, each with its lock
SECUREBITS = 0x01 | 0x02 | 0x04 | 0x08 | 0x40 | 0x80

FILTER_NEW_LISTENER, FILTER_WAIT_KILLABLE = 0x08, 0x20
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08

OVERLAYFS_MAGIC, TMPFS_MAGIC = 0x794C7630, 0x01021994

# The same on every architecture since they were added (5.6, 5.12, 5.13); the others are per machine.
SYS_OPENAT2 = 437
SYS_MOUNT_SETATTR, SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 442, 444, 445, 446
_BY_MACHINE = {
    "x86_64": {"pivot_root": 155, "seccomp": 317, "capset": 126, "capget": 125},
    "aarch64": {"pivot_root": 41, "seccomp": 277, "capset": 91, "capget": 90},
}

_libc = ctypes.CDLL(None, use_errno=True)


class StepError(Exception):
    """A step of building the jail failed; `number` is the errno."""

    def __init__(self, step: str, number: int) -> None:
        super().__init__(f"{step}: {os.strerror(number)}")
        self.step = step
        self.number = number


def checked(result: int, step: str) -> int:
    """`result`, unless it says that the call failed. Raises StepError."""
    if result < 0:
        raise StepError(step, ctypes.get_errno())
    return result


def syscall(number: int | str, step: str, *arguments: Any) -> int:
    """A raw system call by number, or by name where the number depends on the machine. Raises StepError."""
    if isinstance(number, str):
        number = _BY_MACHINE[os.uname().machine][number]
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return checked(int(_libc.syscall(ctypes.c_long(number), *values)), step)


def unshare(flags: int, step: str) -> None:
    """Enter new namespaces. Raises StepError."""
    checked(_libc.unshare(flags), step)


def mount(
    source: bytes | None, target: bytes, kind: bytes | None, flags: int, options: bytes | None, step: str
) -> None:
    """Mount. Raises StepError."""
    checked(_libc.mount(source, target, kind, ctypes.c_ulong(flags), options), step)


def set_attributes(target: bytes, attributes: int, step: str) -> None:
    """Set attributes of a mount and of all mounts below it, at once (Linux 5.12). Raises StepError."""
    at_fdcwd, at_recursive = -100, 0x8000
    wanted = attributes.to_bytes(8, "little") + bytes(24)
    syscall(SYS_MOUNT_SETATTR, step, at_fdcwd, ctypes.c_char_p(target), at_recursive, wanted, len(wanted))


def bind(source: bytes, target: bytes, attributes: int, step: str) -> None:
    """Bind `source` with all below it at `target`, with these attributes on all of it. Raises StepError."""
    mount(source, target, None, MS_BIND | MS_REC, None, step)
    set_attributes(target, attributes, step)


def pivot_root_here(step: str) -> None:
    """Make the current folder, a mount, the root; the old root is gone. Raises StepError."""
    syscall("pivot_root", step, ctypes.c_char_p(b"."), ctypes.c_char_p(b"."))
    checked(_libc.umount2(b".", MNT_DETACH), step)
    os.chdir("/")


def prctl(option: int, value: int, step: str, third: int = 0) -> int:
    """prctl with up to two arguments; its result. Raises StepError."""
    zero = ctypes.c_ulong(0)
    return checked(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(third), zero, zero), step)


def drop_capabilities() -> None:
    """No capability is left in any set, and none can come back with exec, root or not. Raises StepError."""
    prctl(PR_SET_SECUREBITS, SECUREBITS, "securebits")
    with open("/proc/sys/kernel/cap_last_cap", "rb") as file:
        last = int(file.read())
    for capability in range(last + 1):
        prctl(PR_CAPBSET_DROP, capability, "bounding set")
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, "ambient set")


def clear_capability_sets() -> None:
    """Empty the effective, permitted and inheritable sets. Raises StepError."""
    version_3 = (0x20080522).to_bytes(4, "little") + bytes(4)
    syscall("capset", "capset", version_3, bytes(24))


def has_capabilities() -> bool:
    """Whether any of the effective, permitted and inheritable sets has one. Raises StepError."""
    sets = ctypes.create_string_buffer(24)
    syscall("capget", "capget", (0x20080522).to_bytes(4, "little") + bytes(4), sets)
    return any(sets.raw)


def install_filter(program: list[tuple[int, int, int, int]], flags: int = 0) -> int:
    """Install a seccomp filter for good. Needs no_new_privs. Raises StepError.

    With FILTER_NEW_LISTENER the result is the descriptor on which the filter asks.
    """
    raw = b"".join(
        code.to_bytes(2, "little") + bytes((if_true, if_false)) + (constant & 0xFFFFFFFF).to_bytes(4, "little")
        for code, if_true, if_false, constant in program
    )
    buffer = ctypes.create_string_buffer(raw, len(raw))
    head = len(program).to_bytes(8, "little") + ctypes.addressof(buffer).to_bytes(8, "little")
    return syscall("seccomp", "seccomp", 1, flags, head)


def openat2(folder: int, path: bytes, flags: int, resolve: int) -> int:
    """Open a path as `resolve` allows it, and close it on exec. Raises OSError."""
    how = (flags | os.O_CLOEXEC).to_bytes(8, "little") + bytes(8) + resolve.to_bytes(8, "little")
    try:
        return syscall(SYS_OPENAT2, "openat2", folder, ctypes.c_char_p(path), how, len(how))
    except StepError as error:
        raise OSError(error.number, os.strerror(error.number)) from error


def set_times(path: bytes, times: bytes | None) -> None:
    """utimensat with its two timespecs as they are (None: now). Raises OSError."""
    if _libc.utimensat(-100, path, times, 0) < 0:
        raise OSError(ctypes.get_errno(), "utimensat")


def filesystem_of(path: bytes) -> int:
    """The magic number of the file system at `path`. Raises StepError."""
    buffer = ctypes.create_string_buffer(256)
    checked(_libc.statfs(path, buffer), "statfs")
    return int.from_bytes(buffer.raw[:8], "little")


def remove_ipc(kind: str, number: int) -> None:
    """Remove a segment ("shm"), a set of semaphores ("sem") or a queue ("msg"); that it is gone is no error."""
    remove = 0  # IPC_RMID
    if kind == "sem":
        _libc.semctl(number, 0, remove)
    else:
        (_libc.shmctl if kind == "shm" else _libc.msgctl)(number, remove, None)


def wipe_command_line() -> None:
    """Overwrite what /proc shows of how this process was started: it has paths of the host. Raises OSError."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start, arg_end: 48th and 49th of proc_pid_stat(5)
    ctypes.memset(begin, 0, end - begin)


def can_unshare_user() -> bool:
    """Try to make a nested user namespace: True where it works (then the jail is no jail)."""
    return int(_libc.unshare(CLONE_NEWUSER)) == 0


def landlock_version() -> int:
    """The Landlock ABI, 0 where there is none."""
    return max(0, int(_libc.syscall(ctypes.c_long(SYS_LANDLOCK_CREATE), None, ctypes.c_long(0), ctypes.c_long(1))))
