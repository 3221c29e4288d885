"""The filter of system calls, as a list of classic BPF instructions (pure; installed by the launcher).

Layout of what the filter sees (struct seccomp_data): nr at 0, arch at 4, the low 32 bits of argument n at
16 + 8n on little-endian machines.
"""

from __future__ import annotations

import errno
import functools

from agent.jail.syscalls import LAST_KNOWN, MACHINES

Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, constant."""

LOAD, MASK, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_X32_BIT = 0x40000000
_NR, _ARCH = 0, 4

_ABSENT = frozenset(
    (
        "_sysctl",
        "clone3",
        "create_module",
        "fsconfig",
        "fsmount",
        "fsopen",
        "fspick",
        "get_kernel_syms",
        "io_uring_enter",
        "io_uring_register",
        "io_uring_setup",
        "listmount",
        "lookup_dcookie",
        "memfd_create",
        "memfd_secret",
        "mount_setattr",
        "move_mount",
        "nfsservctl",
        "open_tree",
        "query_module",
        "statmount",
        "sysfs",
        "uselib",
        "userfaultfd",
        "ustat",
    )
)
"""Answered with ENOSYS: callers fall back to something older (memfd_create: memory that no limit of ours sees)."""

# What has a rule of its own below.
_BY_ARGUMENT = frozenset({"socket", "socketpair", "clone", "ioctl", "personality", "mknod", "mknodat"})

_NAMESPACE_FLAGS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
# this bit is in the modes of both kinds of device nodes: in a copy, a whiteout can be made by anybody
_S_IFCHR = 0x2000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_IP_PROTOCOLS = (0, 1, 6, 17, 58)  # default, ICMP, TCP, UDP, ICMPv6: the rest would load kernel modules
_NETLINK_ROUTE = 0
# TIOCSTI, TIOCCONS, TIOCLINUX: type into, or take over, a terminal
_TERMINAL_IOCTLS = (0x5412, 0x541D, 0x541C)
# query, PER_LINUX, PER_LINUX32, each with ADDR_NO_RANDOMIZE (debuggers)
_PERSONALITIES = (0xFFFFFFFF, 0x0, 0x8, 0x40000, 0x40008)


class UnsupportedMachineError(ValueError):
    """There is no table of system calls for this machine."""


@functools.cache
def build_filter(machine: str, before: tuple[Instruction, ...] = ()) -> tuple[Instruction, ...]:
    """The program for `machine` (as `os.uname().machine`). Raises UnsupportedMachineError.

    `before` are rules, each made by `when`, that come before all others.
    """
    if machine not in MACHINES:
        raise UnsupportedMachineError(machine)
    numbers = MACHINES[machine].numbers
    program: list[Instruction] = [
        (LOAD, 0, 0, _ARCH),
        (JUMP_EQUAL, 1, 0, MACHINES[machine].audit_arch),
        error(errno.ENOSYS),  # int 0x80 and other foreign calls
        (LOAD, 0, 0, _NR),
        (JUMP_AT_LEAST, 0, 1, _X32_BIT),
        error(errno.ENOSYS),
        (JUMP_AT_LEAST, 0, 1, LAST_KNOWN + 1),
        error(errno.ENOSYS),
        *before,
    ]
    for name, number in numbers.items():
        if name not in _BY_ARGUMENT:
            program += [(JUMP_EQUAL, 0, 1, number), error(errno.ENOSYS if name in _ABSENT else errno.EPERM)]
    for name, rule in _rules().items():
        if name in numbers:  # mknod: newer machines have mknodat alone
            program += when(numbers[name], rule)
    program.append((RETURN, 0, 0, _ALLOW))
    return tuple(program)


def _rules() -> dict[str, list[Instruction]]:
    """What is asked of the arguments of a call that is neither allowed nor refused as a whole."""
    rules = {
        "clone": [(LOAD, 0, 0, argument(0)), (JUMP_ANY_BIT, 0, 1, _NAMESPACE_FLAGS), error(errno.EPERM)],
        "ioctl": [(LOAD, 0, 0, argument(1)), *refuse_if_in(_TERMINAL_IOCTLS, errno.EPERM)],
        "personality": [(LOAD, 0, 0, argument(0)), *refuse_unless_in(_PERSONALITIES, errno.EPERM)],
        "socketpair": [(LOAD, 0, 0, argument(0)), *refuse_unless_in((_AF_UNIX,), errno.EAFNOSUPPORT)],
        "socket": _socket_rule(),
    }
    for name, place_of_mode in (("mknod", 1), ("mknodat", 2)):
        rules[name] = [(LOAD, 0, 0, argument(place_of_mode)), (JUMP_ANY_BIT, 0, 1, _S_IFCHR), error(errno.EPERM)]
    return rules


def _socket_rule() -> list[Instruction]:
    families = refuse_unless_in((_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK), errno.EAFNOSUPPORT)
    protocol = (LOAD, 0, 0, argument(2))
    family = (LOAD, 0, 0, argument(0))
    netlink = [protocol, *refuse_unless_in((_NETLINK_ROUTE,), errno.EPROTONOSUPPORT)]
    internet = [protocol, *refuse_unless_in(_IP_PROTOCOLS, errno.EPROTONOSUPPORT)]
    return [
        family,
        *families,
        (JUMP_EQUAL, 0, len(netlink), _AF_NETLINK),
        *netlink,
        family,  # the netlink rule may have loaded the protocol
        (JUMP_EQUAL, 1, 0, _AF_INET),
        (JUMP_EQUAL, 0, len(internet), _AF_INET6),
        *internet,
    ]


def when(number: int, rule: list[Instruction]) -> list[Instruction]:
    """`rule` for one call; it falls through where it has nothing against it, with the number loaded again."""
    return [(JUMP_EQUAL, 0, len(rule) + 1, number), *rule, (LOAD, 0, 0, _NR)]


def refuse_if_in(values: tuple[int, ...], number: int) -> list[Instruction]:
    """Give errno `number` where what was loaded is one of `values`."""
    n = len(values)
    checks = [(JUMP_EQUAL, n - 1 - i, 0, value) for i, value in enumerate(values[:-1])]
    return [*checks, (JUMP_EQUAL, 0, 1, values[-1]), error(number)]


def refuse_unless_in(values: tuple[int, ...], number: int) -> list[Instruction]:
    """Give errno `number` where what was loaded is none of `values`."""
    n = len(values)
    return [*((JUMP_EQUAL, n - i, 0, value) for i, value in enumerate(values)), error(number)]


def argument(index: int) -> int:
    """The place of the low 32 bits of an argument."""
    return 16 + 8 * index


def error(number: int) -> Instruction:
    """Do not make the call: its result is this errno (0: it seems to have worked)."""
    return (RETURN, 0, 0, 0x00050000 | number)
