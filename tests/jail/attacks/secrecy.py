"""What the user would not tell: files, environments, descriptors, keys, memory of others."""

from __future__ import annotations

import ctypes
import os
import select
import time

from .registry import LIBC, attack, call, checked, contains, named

EPERM, ENOENT = 1, 2

for _name, _path in {
    "read_ssh_key": ".ssh/id_ed25519",
    "read_netrc": ".netrc",
    "read_cloud_credentials": ".aws/credentials",
    "read_gh_token": ".config/gh/hosts.yml",
    "read_browser_profile": ".mozilla/firefox/x.default/cookies.sqlite",
    "read_shell_history": ".bash_history",
}.items():
    attack("outside")(named(_name, lambda t, path=_path: contains(f"{t['home']}/{path}", t["token"])))


@attack("outside")
def read_other_home(t):
    return contains(t["other_home"] + "/.ssh/id_ed25519", t["token"])


@attack("outside")
def list_home(t):
    return ".ssh" in os.listdir(t["home"])


@attack("errno", ENOENT)
def read_shadow(t):
    return contains("/etc/shadow", ":")


@attack("outside")
def read_by_dots(t):
    return contains("/".join([t["workspace"]] + [".."] * 30) + t["home"] + "/.netrc", t["token"])


@attack("outside")
def read_by_standing_link_to_file(t):
    return contains(t["workspace"] + "/link_to_secret", t["token"])


@attack("outside")
def read_by_standing_link_to_folder(t):
    return contains(t["workspace"] + "/link_to_home/.netrc", t["token"])


@attack("outside")
def read_by_new_link(t):
    os.symlink(t["home"], t["scratch"] + "/new_link")
    try:
        return contains(t["scratch"] + "/new_link/.netrc", t["token"])
    finally:
        os.unlink(t["scratch"] + "/new_link")


@attack("outside")
def read_by_root_of_self(t):
    return contains("/proc/self/root" + t["home"] + "/.netrc", t["token"])


@attack("outside")
def read_environ_of_parent(t):
    with open(f"/proc/{t['parent']}/environ", "rb") as file:
        data = file.read()
    return t["token"].encode() in data if t["is_control"] else bool(data)


@attack("outside")
def read_through_root_of_parent(t):
    return contains(f"/proc/{t['parent']}/root{t['home']}/.netrc", t["token"])


@attack("outside")
def read_cwd_of_parent(t):
    return os.readlink(f"/proc/{t['parent']}/cwd") != ""


@attack("outside")
def open_descriptors_of_parent(t):
    """Root may list their numbers, and nothing else."""
    folder = f"/proc/{t['parent']}/fd"
    return any(os.readlink(f"{folder}/{number}") and os.stat(f"{folder}/{number}") for number in os.listdir(folder))


@attack("outside")
def open_memory_of_parent(t):
    with open(f"/proc/{t['parent']}/mem", "rb"):
        return True


@attack("outside")
def read_memory_map_of_parent(t):
    with open(f"/proc/{t['parent']}/maps", "rb") as file:
        return bool(file.read())


@attack("outside")
def see_environ_of_host_process(t):
    return contains(f"/proc/{t['victim']}/environ", t["token"])


@attack("outside")
def see_command_line_of_host_process(t):
    return contains(f"/proc/{t['victim']}/cmdline", "frog-victim")


@attack("outside")
def see_folder_of_host_process(t):
    return os.readlink(f"/proc/{t['victim']}/cwd") == t["folder"]


@attack("outside")
def find_host_process_by_name(t):
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and contains(f"/proc/{name}/cmdline", "frog-victim"):
                return True
        except OSError:
            continue
    return False


@attack("outside")
def see_token_of_environment(t):
    return any(t["token"] in value for value in os.environ.values())


@attack("outside")
def use_inherited_descriptor(t):
    for number in range(3, 256):
        try:
            if t["token"].encode() in os.pread(number, 4096, 0):
                return True
        except OSError:
            continue
    return False


@attack("outside")
def add_a_key(t):
    return call(t, "add_key", b"user", b"frog", b"x", 1, -2) > 0


@attack("outside")
def open_session_keyring(t):
    return call(t, "keyctl", 0, -3, 0) > 0


@attack("errno", EPERM)
def request_a_key(t):
    return call(t, "request_key", b"user", b"frog", None, 0) > 0


@attack("outside")
def name_to_handle(t):
    handle, mount = (128).to_bytes(4, "little") + bytes(132), ctypes.c_int()
    buffer = ctypes.create_string_buffer(handle, len(handle))
    call(t, "name_to_handle_at", -100, os.fsencode(t["workspace"]), buffer, ctypes.byref(mount), 0)
    return True


@attack("errno", EPERM)
def open_by_handle(t):
    return call(t, "open_by_handle_at", -100, b"\0" * 64, 0) >= 0


@attack("outside")
def trace_another_process(t):
    return _with_child(lambda pid: checked(LIBC.ptrace(0x4206, pid, 0, 0)) == 0)


@attack("outside")
def read_memory_of_another_process(t):
    source = ctypes.create_string_buffer(b"token")
    target = ctypes.create_string_buffer(6)
    there = (ctypes.addressof(source).to_bytes(8, "little")) + (5).to_bytes(8, "little")
    here = (ctypes.addressof(target).to_bytes(8, "little")) + (5).to_bytes(8, "little")
    return _with_child(lambda pid: call(t, "process_vm_readv", pid, here, 1, there, 1, 0) == 5)


@attack("outside")
def take_descriptor_of_another_process(t):
    def attempt(pid):
        number = os.pidfd_open(pid)
        return call(t, "pidfd_getfd", number, 1, 0) >= 0

    return _with_child(attempt)


def _with_child(attempt):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b"x")
        time.sleep(30)
        os._exit(0)
    select.select([reading], [], [], 5)
    try:
        return attempt(pid)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@attack("namespace")
def find_host_paths_in_mount_table(t):
    if t["is_control"]:
        checked(LIBC.mount(os.fsencode(t["folder"]), b"/mnt", None, 0x1000, None))
    return any(contains("/proc/self/mountinfo", mark) for mark in t["marks"])


@attack("outside")
def see_how_the_launcher_was_started(t):
    return contains(f"/proc/{t['parent']}/cmdline", "frog-victim" if t["is_control"] else t["package"])
