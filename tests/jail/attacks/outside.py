"""Changes to anything but the private view: files of the host, mounts, devices."""

from __future__ import annotations

import ctypes
import os
import subprocess

from .registry import LIBC, attack, call, checked

EPERM, ENOENT, EROFS, ENOSYS = 1, 2, 30, 38


@attack("outside")
def create_in_host_folder(t):
    return _made(t["folder"] + "/made")


def _made(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.unlink(path)
    return True


@attack("outside")
def make_folder_in_host_folder(t):
    os.mkdir(t["folder"] + "/made")
    os.rmdir(t["folder"] + "/made")
    return True


@attack("outside")
def append_to_host_file(t):
    with open(t["file"], "r+b") as file:
        file.write(b"host")
    return True


@attack("outside")
def truncate_host_file(t):
    os.truncate(t["file"], 5)
    return True


@attack("outside")
def rename_host_file(t):
    os.rename(t["file"], t["file"] + "2")
    os.rename(t["file"] + "2", t["file"])
    return True


@attack("outside")
def remove_host_file(t):
    os.unlink(t["folder"] + "/removable")
    _write(t["folder"] + "/removable", b"host\n")
    return True


def _write(path, data):
    with open(path, "wb") as file:
        file.write(data)


@attack("outside")
def hard_link_host_file_in(t):
    os.link(t["file"], t["scratch"] + "/linked")
    os.unlink(t["scratch"] + "/linked")
    return True


@attack("outside")
def hard_link_out(t):
    _write(t["scratch"] + "/own", b"x")
    os.link(t["scratch"] + "/own", t["folder"] + "/linked")
    os.unlink(t["folder"] + "/linked")
    return True


@attack("outside")
def hard_link_of_the_workspace_leads_out(t):
    """The workspace holds a second name of a host file: what is written to it must not reach the other one."""
    with open(t["workspace"] + "/twin", "r+b") as file:
        file.write(b"TWIN")
    with open(t["folder"] + "/twin", "rb") as file:
        return file.read(4) == b"TWIN"


@attack("outside")
def change_mode_of_host_file(t):
    os.chmod(t["file"], 0o644)
    return True


@attack("outside")
def change_owner_of_host_file(t):
    os.chown(t["file"], os.geteuid(), os.getegid())
    return True


@attack("outside")
def change_time_of_host_file(t):
    os.utime(t["file"], (1, 1))
    return True


@attack("outside")
def set_attribute_of_host_file(t):
    os.setxattr(t["file"], "user.frog", b"x")
    return True


@attack("outside")
def append_by_link_to_file(t):
    with open(t["workspace"] + "/link_to_file", "r+b") as file:
        file.write(b"host")
    return True


@attack("outside")
def change_mode_by_link_to_file(t):
    os.chmod(t["workspace"] + "/link_to_file", 0o644)
    return True


@attack("outside")
def create_by_link_to_folder(t):
    return _made(t["workspace"] + "/link_to_folder/made")


@attack("outside")
def append_by_shell(t):
    subprocess.run(["sh", "-c", f"echo host >>'{t['file']}'"], check=True, stderr=subprocess.DEVNULL)
    return True


@attack("outside")
def replace_by_shell(t):
    script = f"printf 'host\\n' >'{t['folder']}/new' && mv '{t['folder']}/new' '{t['file']}'"
    subprocess.run(["sh", "-c", script], check=True, stderr=subprocess.DEVNULL)
    return True


@attack("errno", EROFS, EPERM, 13)
def write_to_usr(t):
    with open("/usr/bin/frog-attack", "wb"):
        return True


@attack("errno", EROFS, EPERM, 13)
def change_mode_in_usr(t):
    os.chmod("/usr/bin/env", 0o755)
    return True


@attack("errno", EROFS, EPERM, 13)
def plant_a_module_in_own_library(t):
    return _made(os.path.dirname(os.__file__) + "/frog_attack.py")


@attack("errno", EROFS, EPERM, 13)
def make_folder_in_root(t):
    os.mkdir("/made")
    return True


@attack("errno", EROFS, EPERM, 13)
def write_to_etc(t):
    with open("/etc/passwd", "ab"):
        return True


@attack("namespace")
def mount_memory(t):
    return checked(LIBC.mount(b"x", b"/mnt", b"tmpfs", 0, None)) == 0


@attack("namespace")
def bind_a_folder(t):
    return checked(LIBC.mount(b"/usr", b"/tmp", None, 0x1000, None)) == 0


@attack("namespace")
def unmount(t):
    if t["is_control"]:
        checked(LIBC.mount(b"x", b"/mnt", b"tmpfs", 0, None))
        return checked(LIBC.umount2(b"/mnt", 2)) == 0
    return checked(LIBC.umount2(os.fsencode(t["workspace"]), 2)) == 0


@attack("namespace")
def remount_writable(t):
    if t["is_control"]:
        checked(LIBC.mount(b"x", b"/mnt", b"tmpfs", 1, None))
        return checked(LIBC.mount(None, b"/mnt", None, 0x20 | 0x1000, None)) == 0
    return checked(LIBC.mount(None, b"/usr", None, 0x20 | 0x1000, None)) == 0


@attack("namespace")
def open_a_file_system(t):
    return call(t, "fsopen", b"tmpfs", 0) >= 0


@attack("namespace")
def clone_a_mount_tree(t):
    return call(t, "open_tree", -100, b"/usr", 1) >= 0


@attack("namespace")
def move_a_mount(t):
    tree = call(t, "open_tree", -100, b"/usr", 1) if t["is_control"] else 0
    return call(t, "move_mount", tree, b"", -100, b"/mnt", 4) == 0


@attack("namespace")
def change_attributes_of_a_mount(t):
    if t["is_control"]:
        checked(LIBC.mount(b"x", b"/mnt", b"tmpfs", 0, None))
    attributes = bytes(8) + (1).to_bytes(8, "little") + bytes(16)
    return call(t, "mount_setattr", -100, b"/mnt", 0, attributes, len(attributes)) == 0


@attack("namespace")
def pivot_root(t):
    if t["is_control"]:
        checked(LIBC.mount(b"x", b"/mnt", b"tmpfs", 0, None))
        os.chdir("/mnt")
    return call(t, "pivot_root", b".", b".") == 0


@attack("namespace")
def change_root(t):
    return checked(LIBC.chroot(b"/tmp")) == 0


@attack("errno", EROFS, EPERM)
def change_mode_of_dev_null(t):
    os.chmod("/dev/null", 0o666)
    return True


@attack("errno", EROFS, EPERM)
def change_time_of_dev_null(t):
    os.utime("/dev/null", (1, 1))
    return True


@attack("errno", EROFS, EPERM, 13)
def replace_dev_null(t):
    os.rename("/dev/null", "/dev/null2")
    return True


@attack("errno", EPERM)
def make_a_character_device(t):
    os.mknod(t["scratch"] + "/device", 0o20666, os.makedev(1, 3))
    return True


@attack("errno", EPERM)
def make_a_block_device(t):
    os.mknod(t["scratch"] + "/disk", 0o60666, os.makedev(254, 0))
    return True


@attack("errno", ENOENT)
def open_a_disk(t):
    names = ("sda", "vda", "nvme0n1", "loop0", "dm-0", "mem", "kmem", "port", "fuse", "kvm", "net/tun", "loop-control")
    for name in names:
        if os.path.lexists("/dev/" + name):
            return True
    raise FileNotFoundError(ENOENT, os.strerror(ENOENT))


@attack("errno", EPERM)
def make_a_whiteout(t):
    """A character device 0:0 hides a file of the lower layer: only the kernel may make one."""
    os.mknod(t["scratch"] + "/whiteout", 0o20666, os.makedev(0, 0))
    buffer = ctypes.create_string_buffer(256)
    checked(LIBC.statfs(b".", buffer))
    if int.from_bytes(buffer.raw[:8], "little") != 0x794C7630:
        raise PermissionError(EPERM, "no overlay here, so it hides nothing")
    return True


@attack("errno", EPERM, 95)
def forge_an_overlay_attribute(t):
    os.mkdir(t["scratch"] + "/forged")
    try:
        os.setxattr(t["scratch"] + "/forged", "trusted.overlay.redirect", b"/etc")
        return True
    finally:
        os.rmdir(t["scratch"] + "/forged")
