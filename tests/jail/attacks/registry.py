"""The cases: what each tries, and how it is shown that the attempt is a real one.

`outside`: the same code works on the host, on decoys. `namespace`: it works in a throw-away user namespace,
where it harms nobody. `errno`: nowhere is it harmless (or this machine has no such thing), so the error inside
is compared with the one that our mechanism gives.
"""

from __future__ import annotations

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
CASES = {}


class Case:
    def __init__(self, attempt, control, errnos):
        self.attempt = attempt
        self.name = attempt.__name__
        self.control = control
        self.errnos = errnos


def attack(control, *errnos):
    """Register `attempt(targets)`: true where it did what it must not; an OSError says how it was refused."""

    def register(attempt):
        assert attempt.__name__ not in CASES, attempt.__name__
        assert control in ("outside", "namespace", "errno")
        assert bool(errnos) == (control == "errno"), attempt.__name__
        CASES[attempt.__name__] = Case(attempt, control, errnos)
        return attempt

    return register


def named(name, attempt):
    """The same attempt on another target, as a case of its own."""
    attempt.__name__ = name
    return attempt


def checked(result):
    """A result of the C library; raises OSError where it is an error."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def call(targets, name, *arguments):
    """A raw system call by the name that the kernel's table gives it."""
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return checked(LIBC.syscall(ctypes.c_long(targets["numbers"][name]), *values))


def contains(path, token):
    with open(path, "rb") as file:
        return token.encode() in file.read(1_000_000)


def connects(family, address, kind=1):
    import socket

    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)
        return True
