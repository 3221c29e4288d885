"""Attacks, to be run as a script, inside and (those that harm nobody) outside: prints {name: it worked}.

Usage: attacks.py TARGETS(json) [outside]
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
ATTACKS = {}
HARMLESS = set()


def attack(outside):
    def register(function):
        ATTACKS[function.__name__] = function
        if outside:
            HARMLESS.add(function.__name__)
        return function

    return register


def contains(path, secret):
    with open(path, "rb") as file:
        return secret.encode() in file.read(1_000_000)


def connects(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)
        return True


def fails_with(result):
    return result >= 0


# --- secrets -----------------------------------------------------------------------------------------------


@attack(outside=True)
def read_secret_in_home(t):
    return contains(t["secret"], t["token"])


@attack(outside=True)
def read_secret_by_dots(t):
    return contains("/".join([t["workspace"]] + [".."] * 30) + t["secret"], t["token"])


@attack(outside=True)
def read_secret_by_standing_link(t):
    return contains(t["workspace"] + "/link_to_secret", t["token"])


@attack(outside=True)
def read_secret_by_folder_link(t):
    return contains(t["workspace"] + "/link_to_home/secret", t["token"])


@attack(outside=False)
def read_secret_by_new_link(t):
    os.symlink(t["secret"], "new_link")
    return contains("new_link", t["token"])


@attack(outside=True)
def read_secret_by_proc_root(t):
    return contains("/proc/self/root" + t["secret"], t["token"])


@attack(outside=False)
def read_secret_by_root_of_init(t):
    return contains("/proc/1/root" + t["secret"], t["token"])


@attack(outside=True)
def read_shadow(t):
    may_not = "outside" in t and os.geteuid() != 0  # an ordinary user cannot show that it works
    return may_not or contains("/etc/shadow", ":")


@attack(outside=True)
def see_environment_of_victim(t):
    return contains(f"/proc/{t['victim']}/environ", t["token"])


@attack(outside=False)
def see_environment_of_init(t):
    return contains("/proc/1/environ", "FROG") or bool(os.listdir("/proc/1/fd")) or bool(os.readlink("/proc/1/cwd"))


@attack(outside=False)
def read_memory_of_init(t):
    with open("/proc/1/mem", "rb"):
        return True


@attack(outside=True)
def see_token_in_own_environment(t):
    return any(t["token"] in value for value in os.environ.values())


@attack(outside=False)
def find_foreign_descriptors(t):
    return any(int(name) > 3 for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}"))


@attack(outside=True)
def find_home(t):
    return contains("/proc/self/mountinfo", t["home"]) or os.path.exists(t["home"])


@attack(outside=False)
def use_keyring(t):
    return LIBC.syscall(248, b"user", b"frog", b"x", 1, -3) >= 0


@attack(outside=False)
def open_by_handle(t):
    return LIBC.syscall(304, -100, b"\0" * 64, 0) >= 0 or ctypes.get_errno() != 1


# --- outside of the workspace ------------------------------------------------------------------------------


@attack(outside=True)
def append_to_host_file(t):
    with open(t["host_file"], "r+b") as file:
        file.write(b"host")
    return True


@attack(outside=True)
def append_by_link(t):
    with open(t["workspace"] + "/link_to_host_file", "r+b") as file:
        file.write(b"host")
    return True


@attack(outside=True)
def create_in_host_folder(t):
    path = t["host_folder"] + "/made"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.unlink(path)
    return True


@attack(outside=True)
def change_mode_of_host_file(t):
    os.chmod(t["host_file"], 0o644)
    return True


@attack(outside=True)
def change_time_of_host_file(t):
    os.utime(t["host_file"], (1, 1))
    return True


@attack(outside=False)
def change_mode_of_null(t):
    os.chmod("/dev/null", 0o666)
    return True


@attack(outside=False)
def change_time_of_null(t):
    os.utime("/dev/null", (1, 1))
    return True


@attack(outside=False)
def write_to_usr(t):
    with open("/usr/bin/frog-attack", "wb"):
        return True


@attack(outside=False)
def change_mode_in_usr(t):
    os.chmod("/usr/bin/env", 0o755)
    return True


@attack(outside=False)
def write_to_interpreter(t):
    with open(sys.executable, "ab"):
        return True


@attack(outside=False)
def hard_link_out(t):
    os.link("/usr/bin/env", "linked_env")
    return True


@attack(outside=False)
def write_to_root(t):
    os.mkdir("/made")
    return True


@attack(outside=False)
def write_to_etc(t):
    with open("/etc/passwd", "ab"):
        return True


@attack(outside=False)
def mount_tmpfs(t):
    return LIBC.mount(b"x", b"/tmp", b"tmpfs", 0, None) == 0


@attack(outside=False)
def unmount_workspace(t):
    return LIBC.umount2(os.fsencode(t["workspace"]), 2) == 0


@attack(outside=False)
def remount_usr_writable(t):
    return LIBC.mount(None, b"/usr", None, 0x20 | 0x1000, None) == 0


@attack(outside=False)
def new_mount_calls(t):
    return any(LIBC.syscall(number, 0, 0, 0, 0, 0) >= 0 for number in (428, 429, 430, 442))


@attack(outside=False)
def change_root(t):
    return LIBC.chroot(b"/tmp") == 0


@attack(outside=False)
def make_device(t):
    os.mknod("device", 0o20666, os.makedev(1, 3))
    return True


@attack(outside=False)
def make_whiteout(t):
    os.mknod("whiteout", 0o20666, os.makedev(0, 0))
    return True


# --- privileges --------------------------------------------------------------------------------------------


@attack(outside=False)
def nested_user_namespace(t):
    return LIBC.unshare(0x10000000) == 0


@attack(outside=False)
def nested_namespace_by_clone(t):
    pid = LIBC.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return pid > 0


@attack(outside=False)
def nested_namespace_by_clone3(t):
    return LIBC.syscall(435, 0, 0) >= 0 or ctypes.get_errno() != 38


@attack(outside=False)
def join_namespace(t):
    return LIBC.setns(os.open("/proc/self/ns/net", os.O_RDONLY), 0) == 0


@attack(outside=False)
def gain_by_setuid(t):
    os.setuid(0 if os.getuid() else 1000)
    return True


@attack(outside=False)
def write_uid_map(t):
    with open("/proc/self/uid_map", "wb", buffering=0) as file:
        file.write(b"0 0 1")
    return True


@attack(outside=False)
def write_core_pattern(t):
    with open("/proc/sys/kernel/core_pattern", "wb"):
        return True


@attack(outside=False)
def write_sysrq(t):
    with open("/proc/sysrq-trigger", "wb"):
        return True


@attack(outside=False)
def protect_from_killer(t):
    with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"-1000")
    return True


@attack(outside=False)
def read_kernel_log(t):
    return LIBC.klogctl(3, ctypes.create_string_buffer(4096), 4096) >= 0 or os.path.exists("/dev/kmsg")


@attack(outside=False)
def see_sys(t):
    return bool(os.listdir("/sys"))


@attack(outside=False)
def use_bpf(t):
    return LIBC.syscall(321, 0, 0, 0) >= 0 or ctypes.get_errno() != 1


@attack(outside=False)
def use_perf(t):
    return LIBC.syscall(298, ctypes.create_string_buffer(128), 0, -1, -1, 0) >= 0 or ctypes.get_errno() != 1


@attack(outside=False)
def use_io_uring(t):
    return LIBC.syscall(425, 1, ctypes.create_string_buffer(256)) >= 0 or ctypes.get_errno() != 38


@attack(outside=False)
def use_userfaultfd(t):
    return LIBC.syscall(323, 1) >= 0 or ctypes.get_errno() != 38


@attack(outside=False)
def use_unknown_call(t):
    LIBC.syscall(470, 0)
    return ctypes.get_errno() != 38


@attack(outside=False)
def use_x32_call(t):
    LIBC.syscall(0x40000000 | 39)
    return ctypes.get_errno() != 38


@attack(outside=False)
def trace_sibling(t):
    pid = os.fork()
    if pid == 0:
        time.sleep(5)
        os._exit(0)
    try:
        return LIBC.ptrace(16, pid, 0, 0) == 0
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@attack(outside=False)
def set_clock(t):
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return True


@attack(outside=False)
def set_hostname(t):
    socket.sethostname("owned")
    return True


@attack(outside=False)
def type_into_terminal(t):
    import fcntl

    _, slave = os.openpty()
    fcntl.ioctl(slave, 0x5412, b"x")
    return True


# --- processes and network ---------------------------------------------------------------------------------


@attack(outside=True)
def signal_victim(t):
    os.kill(t["victim"], 0)
    with open(f"/proc/{t['victim']}/cmdline", "rb") as file:
        return b"frog-victim" in file.read()


@attack(outside=False)
def kill_init(t):
    os.kill(1, 9)
    time.sleep(0.2)
    return False  # the end of this script would show it


@attack(outside=True)
def reach_host_tcp(t):
    return connects(socket.AF_INET, ("127.0.0.1", t["port"]))


@attack(outside=True)
def reach_host_tcp_any(t):
    return connects(socket.AF_INET, ("0.0.0.0", t["port"]))


@attack(outside=True)
def reach_host_tcp_mapped(t):
    return connects(socket.AF_INET6, ("::ffff:127.0.0.1", t["port"]))


@attack(outside=True)
def reach_host_abstract_socket(t):
    return connects(socket.AF_UNIX, "\0" + t["abstract"])


@attack(outside=True)
def reach_host_path_socket(t):
    return connects(socket.AF_UNIX, t["socket_path"])


@attack(outside=True)
def reach_socket_in_workspace(t):
    return connects(socket.AF_UNIX, t["workspace"] + "/s")


@attack(outside=False)
def reach_network(t):
    return connects(socket.AF_INET, ("192.0.2.1", 80)) or connects(socket.AF_INET, ("10.0.0.1", 53), socket.SOCK_DGRAM)


@attack(outside=False)
def resolve_name(t):
    return bool(socket.getaddrinfo("example.com", 80))


@attack(outside=False)
def raw_socket(t):
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
    return True


@attack(outside=False)
def packet_socket(t):
    socket.socket(17, socket.SOCK_RAW, 0)
    return True


@attack(outside=False)
def vsock(t):
    socket.socket(40, socket.SOCK_STREAM, 0)
    return True


@attack(outside=False)
def alg_socket(t):
    socket.socket(38, socket.SOCK_SEQPACKET, 0)
    return True


@attack(outside=False)
def netlink_audit(t):
    socket.socket(16, socket.SOCK_RAW, 9)
    return True


@attack(outside=False)
def netlink_uevent(t):
    socket.socket(16, socket.SOCK_RAW, 15)
    return True


def main():
    targets = json.loads(sys.argv[1])
    outside = len(sys.argv) > 2
    results = {}
    for name, function in ATTACKS.items():
        if outside and name not in HARMLESS:
            continue
        try:
            results[name] = bool(function(targets))
        except Exception as error:
            results[name] = False
            print(name, type(error).__name__, error, file=sys.stderr)
    print(json.dumps(results))


main()
