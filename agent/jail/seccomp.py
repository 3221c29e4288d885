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

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
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
def build_filter(machine: str) -> tuple[Instruction, ...]:
    """The program for `machine` (as `os.uname().machine`). Raises UnsupportedMachineError."""
    if machine not in MACHINES:
        raise UnsupportedMachineError(machine)
    numbers = MACHINES[machine].numbers
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, MACHINES[machine].audit_arch),
        _error(errno.ENOSYS),  # int 0x80 and other foreign calls
        (_LOAD, 0, 0, _NR),
        (_JUMP_AT_LEAST, 0, 1, _X32_BIT),
        _error(errno.ENOSYS),
        (_JUMP_AT_LEAST, 0, 1, LAST_KNOWN + 1),
        _error(errno.ENOSYS),
    ]
    for name, number in numbers.items():
        if name not in _BY_ARGUMENT:
            program += [(_JUMP_EQUAL, 0, 1, number), _error(errno.ENOSYS if name in _ABSENT else errno.EPERM)]
    for name, rule in _rules().items():
        if name in numbers:  # mknod: newer machines have mknodat alone
            program += _when(numbers[name], rule)
    program.append((_RETURN, 0, 0, _ALLOW))
    return tuple(program)


def _rules() -> dict[str, list[Instruction]]:
    """What is asked of the arguments of a call that is neither allowed nor refused as a whole."""
    rules = {
        "clone": [(_LOAD, 0, 0, _argument(0)), (_JUMP_ANY_BIT, 0, 1, _NAMESPACE_FLAGS), _error(errno.EPERM)],
        "ioctl": [(_LOAD, 0, 0, _argument(1)), *_refuse_if_in(_TERMINAL_IOCTLS, errno.EPERM)],
        "personality": [(_LOAD, 0, 0, _argument(0)), *_refuse_unless_in(_PERSONALITIES, errno.EPERM)],
        "socketpair": [(_LOAD, 0, 0, _argument(0)), *_refuse_unless_in((_AF_UNIX,), errno.EAFNOSUPPORT)],
        "socket": _socket_rule(),
    }
    for name, place_of_mode in (("mknod", 1), ("mknodat", 2)):
        rules[name] = [(_LOAD, 0, 0, _argument(place_of_mode)), (_JUMP_ANY_BIT, 0, 1, _S_IFCHR), _error(errno.EPERM)]
    return rules


def _socket_rule() -> list[Instruction]:
    families = _refuse_unless_in((_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK), errno.EAFNOSUPPORT)
    protocol = (_LOAD, 0, 0, _argument(2))
    family = (_LOAD, 0, 0, _argument(0))
    netlink = [protocol, *_refuse_unless_in((_NETLINK_ROUTE,), errno.EPROTONOSUPPORT)]
    internet = [protocol, *_refuse_unless_in(_IP_PROTOCOLS, errno.EPROTONOSUPPORT)]
    return [
        family,
        *families,
        (_JUMP_EQUAL, 0, len(netlink), _AF_NETLINK),
        *netlink,
        family,  # the netlink rule may have loaded the protocol
        (_JUMP_EQUAL, 1, 0, _AF_INET),
        (_JUMP_EQUAL, 0, len(internet), _AF_INET6),
        *internet,
    ]


def _when(number: int, rule: list[Instruction]) -> list[Instruction]:
    """`rule` for one call; it falls through where it has nothing against it, with the number loaded again."""
    return [(_JUMP_EQUAL, 0, len(rule) + 1, number), *rule, (_LOAD, 0, 0, _NR)]


def _refuse_if_in(values: tuple[int, ...], error: int) -> list[Instruction]:
    n = len(values)
    checks = [(_JUMP_EQUAL, n - 1 - i, 0, value) for i, value in enumerate(values[:-1])]
    return [*checks, (_JUMP_EQUAL, 0, 1, values[-1]), _error(error)]


def _refuse_unless_in(values: tuple[int, ...], error: int) -> list[Instruction]:
    n = len(values)
    return [*((_JUMP_EQUAL, n - i, 0, value) for i, value in enumerate(values)), _error(error)]


def _argument(index: int) -> int:
    return 16 + 8 * index


def _error(number: int) -> Instruction:
    return (_RETURN, 0, 0, 0x00050000 | number)
