"""The filter of system calls of backend C: what namespaces do for the others has to be done here by refusing."""

from __future__ import annotations

import errno
import functools

from agent.jail.seccomp import (
    JUMP_ANY_BIT,
    JUMP_EQUAL,
    LOAD,
    MASK,
    RETURN,
    Instruction,
    UnsupportedMachineError,
    argument,
    build_filter,
    error,
    refuse_if_in,
    refuse_unless_in,
    when,
)
from agent.jail.syscalls import X86_64, X86_64_WITHOUT_NAMESPACES

EMULATED = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
)
"""Landlock has no right for these: the supervisor is asked, and does them itself in the private folders alone."""

# As a file system without attributes, and a kernel without IPC: callers know both. Landlock would let attributes of
# every file be read, too.
_NO_ATTRIBUTES = (
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
    *("getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr"),
)
_ABSENT = (
    *(
        "setxattrat",
        "removexattrat",
        "getxattrat",
        "listxattrat",
        "mq_open",
        "mq_unlink",
        "msgget",
        "msgsnd",
        "msgrcv",
        "msgctl",
    ),
    *("semget", "semop", "semctl", "semtimedop", "shmget", "shmat", "shmctl", "shmdt"),
)
_REFUSED = ("connect", "bind", "listen", "accept", "accept4")
# Landlock scopes signals, but not these: they work on every process of the user. (call, {argument: only value})
_ITSELF_ONLY: tuple[tuple[str, dict[int, int]], ...] = (
    ("prlimit64", {0: 0}),
    ("sched_setaffinity", {0: 0}),
    ("sched_setattr", {0: 0}),
    ("sched_setparam", {0: 0}),
    ("sched_setscheduler", {0: 0}),
    ("setpriority", {0: 0, 1: 0}),
    ("ioprio_set", {0: 1, 1: 0}),
)
_NUMBERS = X86_64 | X86_64_WITHOUT_NAMESPACES
_USER_NOTIFICATION = 0x7FC00000
_NEW_LISTENER = 8
_PR_SET_DUMPABLE = 4
_SOCKET_FAMILIES = (1, 2, 10, 16)  # unix, the two of the internet, netlink; the others do not exist in any jail
_TYPE_BITS = 0xF
# stream and sequenced packets: a pair of datagram sockets could send to any socket with a path
_PAIR_TYPES = (1, 5)
# Attributes of a host file can be changed through a descriptor that only reads, so few requests are known:
# terminals (get, set, window, groups), FIONREAD, FIONBIO, FIOASYNC, FIOCLEX, FIONCLEX, clones, extents, reading flags.
_IOCTLS = (
    *(0x5401, 0x5402, 0x5403, 0x5404, 0x540B, 0x540F, 0x5410, 0x5413, 0x5414, 0x802C542A),
    *(0x541B, 0x5421, 0x5452, 0x5451, 0x5450),
    *(0x40049409, 0x4020940D, 0xC020660B, 0x80086601, 0x801C581F),
)


@functools.cache
def build_landlock_filter(machine: str) -> tuple[Instruction, ...]:
    """The program of backend C for `machine`. Raises UnsupportedMachineError."""
    if machine != "x86_64":
        raise UnsupportedMachineError(machine)
    rules: list[Instruction] = []
    for name in EMULATED:
        rules += when(_NUMBERS[name], [(RETURN, 0, 0, _USER_NOTIFICATION)])
    for names, number in (
        (_NO_ATTRIBUTES, errno.EOPNOTSUPP),
        (_ABSENT, errno.ENOSYS),
        (_REFUSED, errno.EACCES),
    ):
        for name in names:
            rules += when(_NUMBERS[name], [error(number)])
    for name, only in _ITSELF_ONLY:
        checks = [(_load(at), refuse_unless_in((value,), errno.EPERM)) for at, value in only.items()]
        rules += when(_NUMBERS[name], [part for load, check in checks for part in (load, *check)])
    # nobody may answer in the supervisor's place (the kernel takes no second listener, either)
    rules += when(_NUMBERS["seccomp"], [_load(1), (JUMP_ANY_BIT, 0, 1, _NEW_LISTENER), error(errno.EPERM)])
    # the supervisor reads arguments from memory: what hides its own is told that it does
    rules += when(_NUMBERS["prctl"], [_load(0), (JUMP_EQUAL, 0, 1, _PR_SET_DUMPABLE), error(0)])
    rules += when(_NUMBERS["socket"], [_load(0), *refuse_if_in(_SOCKET_FAMILIES, errno.EACCES)])
    kind = [_load(1), (MASK, 0, 0, _TYPE_BITS)]
    rules += when(_NUMBERS["socketpair"], [*kind, *refuse_unless_in(_PAIR_TYPES, errno.EPROTONOSUPPORT)])
    rules += when(_NUMBERS["ioctl"], [_load(1), *refuse_unless_in(_IOCTLS, errno.ENOTTY)])
    return build_filter(machine, tuple(rules))


def emulated_numbers() -> tuple[tuple[str, int], ...]:
    """The calls that the supervisor is asked for, by name and number."""
    return tuple((name, _NUMBERS[name]) for name in EMULATED)


def _load(index: int) -> Instruction:
    return (LOAD, 0, 0, argument(index))
