"""The filter of system calls, run by an interpreter of classic BPF: what each call gets."""

from __future__ import annotations

import errno
import platform
import re
import stat
from pathlib import Path

import pytest

from agent.jail.launcher import kernel
from agent.jail.seccomp import UnsupportedMachineError, build_filter
from agent.jail.syscalls import AARCH64, LAST_KNOWN, MACHINES, X86_64

ALLOW = 0x7FFF0000
PROGRAM = build_filter("x86_64")
AUDIT_ARCH_X86_64 = 0xC000003E


def verdict(number: int, *arguments: int, machine: str = "x86_64", arch: int | None = None) -> int:
    """0 where the call is allowed, else the errno it gets."""
    program = build_filter(machine)
    arch = MACHINES[machine].audit_arch if arch is None else arch
    words = {0: number, 4: arch} | {16 + 8 * i: a & 0xFFFFFFFF for i, a in enumerate((*arguments, *[0] * 6)[:6])}
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, constant = program[at]
        at += 1
        if code == 0x20:
            accumulator = words[constant]
        elif code == 0x06:
            assert constant == ALLOW or constant >> 16 == 5
            return 0 if constant == ALLOW else constant & 0xFFFF
        else:
            holds = {
                0x15: accumulator == constant,
                0x35: accumulator >= constant,
                0x45: bool(accumulator & constant),
            }[code]
            at += if_true if holds else if_false


def test_ordinary_calls_are_allowed() -> None:
    for number in (0, 1, 2, 9, 39, 57, 59, 90, 202, 231, 257, 262, 302, 318, 332, 334, 434, 436, 437, 439):
        assert verdict(number) == 0


def test_no_device_node_can_be_made_but_pipes_and_sockets_can() -> None:
    for name, before in (("mknod", (0,)), ("mknodat", (0, 0))):
        for kind in (stat.S_IFCHR, stat.S_IFBLK):
            assert verdict(X86_64[name], *before, kind | 0o600) == errno.EPERM
        for kind in (stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFREG):
            assert verdict(X86_64[name], *before, kind | 0o600) == 0


def test_dangerous_calls_are_refused() -> None:
    for name in (
        "mount",
        "ptrace",
        "bpf",
        "keyctl",
        "add_key",
        "unshare",
        "setns",
        "chroot",
        "perf_event_open",
        "kexec_load",
    ):
        assert verdict(X86_64[name]) == errno.EPERM
    for name in ("clone3", "io_uring_setup", "userfaultfd", "open_tree", "fsopen", "memfd_create"):
        assert verdict(X86_64[name]) == errno.ENOSYS


def test_what_is_unknown_does_not_exist() -> None:
    for number in (467, 470, 600, 10_000, 0x40000000, 0x40000000 | 39, 0x7FFFFFFF, 0xFFFFFFFF):
        assert verdict(number) == errno.ENOSYS
    assert verdict(39, arch=0x40000003) == errno.ENOSYS  # int 0x80


@pytest.mark.parametrize("flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
def test_clone_makes_threads_and_processes_but_no_namespaces(flag: int) -> None:
    assert verdict(56, 0x3D0F00) == 0
    assert verdict(56, 17) == 0
    assert verdict(56, flag | 17) == errno.EPERM


def test_sockets_by_family_and_protocol() -> None:
    for family in (2, 10):
        for protocol in (0, 1, 6, 17, 58):
            assert verdict(41, family, 1, protocol) == 0
        for protocol in (33, 132, 262):
            assert verdict(41, family, 1, protocol) == errno.EPROTONOSUPPORT
    assert verdict(41, 1, 1, 0) == 0
    assert verdict(41, 16, 3, 0) == 0
    for protocol in (2, 4, 9, 12, 15, 16):
        assert verdict(41, 16, 3, protocol) == errno.EPROTONOSUPPORT
    for family in (0, 3, 9, 17, 29, 31, 38, 40, 44):
        assert verdict(41, family, 1, 0) == errno.EAFNOSUPPORT
        assert verdict(53, family, 1, 0) == errno.EAFNOSUPPORT
    assert verdict(53, 1, 1, 0) == 0


def test_terminals_cannot_be_typed_into() -> None:
    for request in (0x5412, 0x541C, 0x541D, 0xFFFFFFFF00005412):
        assert verdict(16, 0, request) == errno.EPERM
    for request in (0x5401, 0x5413, 0x5421):
        assert verdict(16, 0, request) == 0


def test_personalities() -> None:
    assert verdict(135, 0xFFFFFFFF) == 0
    assert verdict(135, 0x40000) == 0
    assert verdict(135, 0x400000) == errno.EPERM  # READ_IMPLIES_EXEC


def test_every_jump_lands_inside() -> None:
    for at, (code, if_true, if_false, _) in enumerate(PROGRAM):
        if code in (0x15, 0x35, 0x45):
            assert max(if_true, if_false) < 256
            assert at + 1 + max(if_true, if_false) < len(PROGRAM)
    assert PROGRAM[-1] == (6, 0, 0, ALLOW)
    assert len(PROGRAM) < 4096


def test_other_machines_have_no_filter() -> None:
    with pytest.raises(UnsupportedMachineError):
        build_filter("riscv64")


def _numbers_in(*headers: str) -> dict[str, int]:
    """What the kernel's headers say; where a number depends on the word size, it is the one of 64 bits."""
    for header in map(Path, headers):
        if header.exists():
            found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", header.read_text(), re.MULTILINE)
            return {name: int(number) for name, number in found}
    pytest.skip(f"no kernel headers: {headers[0]}")


KERNEL_HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}


@pytest.mark.parametrize("machine", KERNEL_HEADERS)
def test_the_numbers_are_the_kernels(machine: str) -> None:
    if machine == "x86_64" and platform.machine() != machine:
        pytest.skip("the numbers of another machine")
    known = _numbers_in(*KERNEL_HEADERS[machine])
    ours = dict(MACHINES[machine].numbers)
    wrong = {name: number for name, number in ours.items() if known.get(name, number) != number}
    assert not wrong
    assert len(ours.keys() & known.keys()) > 60, "the header was read"
    for name, number in kernel._BY_MACHINE[machine].items():
        assert known[name] == number


def test_aarch64_has_every_call_but_those_of_the_past() -> None:
    """Untested at run time: only the table and the program are."""
    known = _numbers_in(*KERNEL_HEADERS["aarch64"])
    missing = X86_64.keys() - AARCH64.keys()
    assert not missing & known.keys()
    assert missing == {
        *("mknod", "uselib", "ustat", "sysfs", "modify_ldt", "_sysctl", "iopl", "ioperm"),
        *("create_module", "get_kernel_syms", "query_module"),
    }


def test_the_filter_of_aarch64() -> None:
    for name in ("mount", "ptrace", "bpf", "keyctl", "unshare", "setns", "perf_event_open", "kexec_load"):
        assert verdict(AARCH64[name], machine="aarch64") == errno.EPERM
    for name in ("clone3", "io_uring_setup", "userfaultfd", "memfd_create"):
        assert verdict(AARCH64[name], machine="aarch64") == errno.ENOSYS
    assert verdict(AARCH64["clone"], 0x10000000 | 17, machine="aarch64") == errno.EPERM
    assert verdict(AARCH64["clone"], 17, machine="aarch64") == 0
    assert verdict(AARCH64["socket"], 40, 1, 0, machine="aarch64") == errno.EAFNOSUPPORT
    assert verdict(AARCH64["mknodat"], 0, 0, stat.S_IFCHR, machine="aarch64") == errno.EPERM
    assert verdict(63, arch=0xC00000B7) == errno.ENOSYS  # of another machine
    assert verdict(63, machine="aarch64") == 0  # read
    assert verdict(LAST_KNOWN + 1, machine="aarch64") == errno.ENOSYS
