"""More rights than a jailed process has, and the kernel's interfaces that a hole is most likely to be in."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import socket
import subprocess
import sys
import time

from .registry import LIBC, attack, call, checked

EPERM, ENOENT, EACCES, EINVAL, EROFS, ENOSYS = 1, 2, 13, 22, 30, 38
NEW_USER = 0x10000000


@attack("outside")
def nested_user_namespace(t):
    return checked(LIBC.unshare(NEW_USER)) == 0


@attack("namespace")
def nested_mount_namespace(t):
    return checked(LIBC.unshare(0x20000)) == 0


@attack("outside")
def nested_namespace_by_clone(t):
    pid = call(t, "clone", NEW_USER | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return pid > 0


@attack("outside")
def nested_namespace_by_clone3(t):
    arguments = ctypes.create_string_buffer(NEW_USER.to_bytes(8, "little") + bytes(24) + b"\x11" + bytes(55), 88)
    pid = call(t, "clone3", arguments, 88)
    if pid == 0:
        os._exit(0)
    return pid > 0


@attack("namespace")
def join_a_namespace(t):
    return checked(LIBC.setns(os.open("/proc/self/ns/uts", os.O_RDONLY), 0)) == 0


@attack("outside")
def gain_by_setuid_program(t):
    """Whether the kernel would give new privileges with exec at all."""
    with open("/proc/self/status") as file:
        return "NoNewPrivs:\t0" in file.read()


@attack("errno", EPERM, EINVAL)
def become_another_user(t):
    os.setuid(0 if os.getuid() else 1000)
    return True


@attack("errno", EPERM, EINVAL)
def join_a_group(t):
    os.setgroups([0, 42])
    return True


@attack("namespace")
def give_a_file_capabilities(t):
    path = t["scratch"] + "/capable"
    with open(path, "wb"):
        pass
    os.setxattr(path, "security.capability", bytes.fromhex("0100000200200000" + "00" * 12))
    return True


@attack("errno", EPERM)
def raise_own_capabilities(t):
    version = (0x20080522).to_bytes(4, "little") + bytes(4)
    return checked(LIBC.capset(version, b"\xff" * 24)) == 0


@attack("errno", EROFS, EPERM, EACCES, ENOENT)
def map_identities(t):
    with open("/proc/self/uid_map", "wb", buffering=0) as file:
        file.write(b"0 0 1")
    return True


@attack("errno", EROFS, EPERM, EACCES)
def protect_itself_from_the_memory_killer(t):
    with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"-1000")
    return True


@attack("errno", EROFS, EPERM, EACCES, ENOENT)
def name_a_program_for_core_dumps(t):
    with open("/proc/sys/kernel/core_pattern", "wb"):
        return True


@attack("errno", EROFS, EPERM, EACCES, ENOENT)
def press_a_kernel_key(t):
    with open("/proc/sysrq-trigger", "wb"):
        return True


@attack("errno", EROFS, EPERM, EACCES, ENOENT)
def change_a_limit_of_the_kernel(t):
    with open("/proc/sys/user/max_user_namespaces", "wb", buffering=0) as file:
        file.write(b"1000")
    return True


@attack("errno", ENOENT, EACCES, EPERM)
def read_kernel_log_device(t):
    with open("/dev/kmsg", "rb"):
        return True


@attack("errno", EPERM)
def read_kernel_log(t):
    return checked(LIBC.klogctl(3, ctypes.create_string_buffer(4096), 4096)) >= 0


@attack("outside")
def read_addresses_of_the_kernel(t):
    with open("/proc/kallsyms", "rb") as file:
        return bool(file.read(100))


@attack("outside")
def see_devices_of_the_machine(t):
    return bool(os.listdir("/sys"))


@attack("outside")
def see_control_groups(t):
    return bool(os.listdir("/sys/fs/cgroup"))


@attack("errno", EPERM)
def load_a_bpf_program(t):
    return call(t, "bpf", 5, ctypes.create_string_buffer(128), 128) >= 0


@attack("errno", EPERM)
def measure_with_perf(t):
    attributes = ctypes.create_string_buffer(bytes([1, 0, 0, 0, 128, 0, 0, 0]), 128)
    return call(t, "perf_event_open", attributes, 0, -1, -1, 0) >= 0


@attack("outside")
def use_io_uring(t):
    return call(t, "io_uring_setup", 1, ctypes.create_string_buffer(256)) >= 0


@attack("outside")
def use_userfaultfd(t):
    return call(t, "userfaultfd", 1) >= 0


@attack("errno", EPERM)
def load_another_kernel(t):
    return call(t, "kexec_load", 0, 0, 0, 0) >= 0


@attack("errno", EPERM)
def load_a_module(t):
    return call(t, "init_module", b"", 0, b"") >= 0


@attack("errno", EPERM)
def remove_a_module(t):
    return call(t, "delete_module", b"frog_no_such_module", 0) >= 0


@attack("errno", EPERM)
def set_the_clock(t):
    return call(t, "clock_settime", 0, (1).to_bytes(8, "little") + (2_000_000_000).to_bytes(8, "little")) >= 0


@attack("errno", EPERM)
def slew_the_clock(t):
    return call(t, "adjtimex", (2).to_bytes(4, "little") + bytes(204)) >= 0


@attack("namespace")
def set_the_host_name(t):
    socket.sethostname("owned")
    return True


@attack("errno", EPERM)
def stop_the_machine(t):
    return call(t, "reboot", 0, 0, 0, 0) >= 0


@attack("errno", EPERM)
def swap_to_a_file(t):
    return call(t, "swapon", b"/frog-no-such-file", 0) >= 0


@attack("errno", EPERM)
def account_to_a_file(t):
    return call(t, "acct", b"/frog-no-such-file") >= 0


@attack("errno", EPERM)
def watch_the_file_system(t):
    return call(t, "fanotify_init", 4, 0) >= 0


@attack("outside")
def hide_memory_from_the_kernel(t):
    number = call(t, "memfd_create", b"frog", 0)
    return number >= 0


@attack("outside")
def make_all_data_executable(t):
    return checked(LIBC.personality(0x400000)) >= 0


@attack("errno", EPERM)
def type_into_a_terminal(t):
    _, terminal = os.openpty()
    fcntl.ioctl(terminal, 0x5412, b"x")
    return True


@attack("errno", EPERM)
def paste_into_a_console(t):
    _, terminal = os.openpty()
    fcntl.ioctl(terminal, 0x541C, b"\x03")
    return True


@attack("errno", ENOSYS)
def call_a_number_that_is_not_known(t):
    return checked(LIBC.syscall(ctypes.c_long(470), 0)) >= 0


@attack("errno", ENOSYS)
def call_by_the_x32_table(t):
    return checked(LIBC.syscall(ctypes.c_long(0x40000000 | 39))) >= 0


@attack("errno", ENOSYS)
def call_by_the_32_bit_gate(t):
    """`int 0x80` with getpid: its numbers are those of another table."""
    if t["machine"] != "x86_64":
        raise OSError(ENOSYS, "only x86_64 has it")
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("53b814000000cd805bc3"))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return True


@attack("outside")
def signal_a_host_process(t):
    os.kill(t["victim"], 0)
    with open(f"/proc/{t['victim']}/cmdline", "rb") as file:
        return b"frog-victim" in file.read()


@attack("outside")
def limit_a_host_process(t):
    import resource

    resource.prlimit(t["victim"], resource.RLIMIT_NOFILE)
    with open(f"/proc/{t['victim']}/cmdline", "rb") as file:
        return b"frog-victim" in file.read()


@attack("outside")
def kill_the_first_process_of_the_jail(t):
    if t["is_control"]:
        victim = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(30)"])
        os.kill(victim.pid, signal.SIGKILL)
        return victim.wait() == -9
    os.kill(t["parent"], signal.SIGKILL)
    time.sleep(0.2)
    return False  # the end of everything would show it
