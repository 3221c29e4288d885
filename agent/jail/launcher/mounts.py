"""Builds the root of the jail and enters it. Runs as PID 1 with every capability in its own user namespace.

Nothing untrusted runs before the end of it.
"""

from __future__ import annotations

import _socket  # the whole `socket` module costs more to import than all of this launcher
import fcntl
import os
import stat

from agent.jail.launcher.kernel import (
    ATTR_NODEV,
    ATTR_NOEXEC,
    ATTR_NOSUID,
    ATTR_RDONLY,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    StepError,
    bind,
    mount,
    pivot_root_here,
    set_attributes,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_READ_ONLY = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV
_LOOPBACK_UP = b"lo".ljust(16, b"\0") + (0x1 | 0x40).to_bytes(2, "little") + bytes(22)
_SIOCSIFFLAGS = 0x8914
_ROOT_BYTES = 64 * 1024 * 1024

WRITABLE = (b"/tmp", b"/run/frog/home", b"/dev/shm")


def build_root(plan: dict[str, Any], runner: bytes) -> int:
    """Mount everything, make it the root, and return the descriptor of the private view. Raises StepError, OSError."""
    loopback = _start_loopback()
    mount(None, b"/", None, MS_REC | MS_PRIVATE, None, "private mounts")
    workspace = plan["workspace"]
    lower = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    info = os.fstat(lower)
    if (info.st_dev, info.st_ino) != (plan["workspace_device"], plan["workspace_inode"]):
        raise StepError("the workspace changed while it was opened", 0)
    staging = plan["staging"]
    layers = _mount_view(plan, staging)
    root = staging + b"/root"
    os.mkdir(root)
    os.mkdir(staging + b"/nothing")
    _mount_tmpfs(root, _ROOT_BYTES, None, b"root")
    _mount_devices(plan, root)
    _mount_scratch(plan, root, staging)
    _mount_proc(plan, root)
    for source, target in plan["binds"]:  # after the scratch folders: some may lie in the host's /tmp
        _show(plan, source, root, target)
    for path in plan["hidden"]:
        mount(b"hidden", root + path, b"tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, b"mode=755", "hidden folder")
    _write_files(plan, root, runner)
    target = root + workspace
    os.makedirs(target, exist_ok=True)
    view = _bind_copy(plan["copy"], target) if plan["copy"] else _mount_overlay(plan, layers, lower, target)
    for source, target in plan["over_workspace"]:
        _show(plan, source, root, target)
    _finish_loopback(loopback)
    _socket.sethostname("jail")
    os.close(lower)
    os.chdir(root)
    pivot_root_here("pivot_root")
    _make_root_read_only()
    return view


def _mount_overlay(plan: dict[str, Any], layers: bytes, lower: int, target: bytes) -> int:
    """Mount the workspace with the upper layer over it at `target`; the descriptor of the upper layer."""
    info = os.fstat(lower)
    upper = os.open(layers + b"/upper", os.O_RDONLY | os.O_DIRECTORY)
    if plan["privileged"]:
        os.fchown(upper, info.st_uid, info.st_gid)
    os.fchmod(upper, stat.S_IMODE(info.st_mode))
    os.setxattr(upper, b"user.overlay.probe", b"y")  # without these the overlay mounts and then fails
    os.removexattr(upper, b"user.overlay.probe")
    # by descriptor: names with commas and colons need no quoting, and the jail's mount table shows no host path
    work = os.open(layers + b"/work", os.O_PATH | os.O_DIRECTORY)
    fds = b"/proc/self/fd/"
    options = b"lowerdir=%s%d,upperdir=%s%d,workdir=%s%d,userxattr" % (fds, lower, fds, upper, fds, work)
    if plan["layers"]:
        options += b",volatile"
    mount(b"overlay", target, b"overlay", MS_NOSUID | MS_NODEV, options, "overlay")
    os.close(work)
    return upper


def _bind_copy(copy: bytes, target: bytes) -> int:
    """Bind the private copy in the place of the workspace; its descriptor."""
    bind(copy, target, ATTR_NOSUID | ATTR_NODEV, "private copy")
    return os.open(target, os.O_RDONLY | os.O_DIRECTORY)


def _make_root_read_only() -> None:
    """Make the root mount itself read-only, without touching what is mounted below it."""
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV
    mount(None, b"/", None, flags, None, "read-only root")


def _mount_view(plan: dict[str, Any], staging: bytes) -> bytes:
    """Mount the memory that holds the changes, and return the folder with `upper` and `work`."""
    _mount_tmpfs(staging, plan["view_bytes"], plan["view_inodes"], b"view")
    layers: bytes = plan["layers"] or staging
    os.mkdir(layers + b"/upper", 0o755)
    os.mkdir(layers + b"/work", 0o700)
    return layers


def _mount_tmpfs(target: bytes, size_bytes: int, inodes: int | None, name: bytes) -> None:
    options = b"mode=755,size=%d" % size_bytes
    if inodes is not None:
        options += b",nr_inodes=%d" % inodes
    mount(name, target, b"tmpfs", MS_NOSUID | MS_NODEV, options, "tmpfs")


def _show(plan: dict[str, Any], source: bytes, root: bytes, target: bytes) -> None:
    """Make a path of the host visible, and nothing else of it: a folder of a user is covered."""
    if target in plan["covered"] and os.path.isdir(source):
        os.makedirs(root + target, exist_ok=True)
        cover(source, root + target, plan["staging"] + b"/nothing")
    else:
        _bind_read_only(source, root + target)


def cover(source: bytes, target: bytes, nothing: bytes) -> None:
    """Mount a read-only overlay of a folder: files are the host's, but sockets, pipes and locks are its own.

    A bind would not do: a read-only mount keeps nobody from connecting to a socket or from writing to a pipe.
    `nothing` is an empty folder, since one layer alone would need an upper one. Raises StepError, OSError.
    """
    lower = os.open(source, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    empty = os.open(nothing, os.O_PATH | os.O_DIRECTORY)
    options = b"lowerdir=/proc/self/fd/%d:/proc/self/fd/%d" % (lower, empty)
    mount(b"shown", target, b"overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, options, "show " + os.fsdecode(source))
    os.close(lower)
    os.close(empty)


def _bind_read_only(source: bytes, target: bytes, attributes: int = _READ_ONLY) -> None:
    step = "bind " + os.fsdecode(source)
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o444))
    bind(source, target, attributes, step)


def _write_files(plan: dict[str, Any], root: bytes, runner: bytes) -> None:
    for path, target in plan["links"]:
        place = root + path
        if not os.path.lexists(place):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(target, place)
    for path, content in (*plan["files"], (b"/run/frog/runner.pyz", runner)):
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        with open(root + path, "wb") as file:
            file.write(content)
        os.chmod(root + path, 0o444)


def _mount_devices(plan: dict[str, Any], root: bytes) -> None:
    """Device nodes are bound read-only before anything else can see them: as root they could be changed."""
    os.makedirs(root + b"/dev", exist_ok=True)
    for name in plan["devices"]:
        device = b"/dev/" + name
        if os.path.exists(device):
            _bind_read_only(device, root + device, ATTR_RDONLY | ATTR_NOSUID | ATTR_NOEXEC)
    for name, target in ((b"fd", b"fd"), (b"stdin", b"fd/0"), (b"stdout", b"fd/1"), (b"stderr", b"fd/2")):
        os.symlink(b"/proc/self/" + target, root + b"/dev/" + name)
    os.mkdir(root + b"/dev/pts")
    options = b"newinstance,ptmxmode=0666,mode=620"
    mount(b"devpts", root + b"/dev/pts", b"devpts", MS_NOSUID | MS_NOEXEC, options, "devpts")
    os.symlink(b"pts/ptmx", root + b"/dev/ptmx")


def _mount_scratch(plan: dict[str, Any], root: bytes, staging: bytes) -> None:
    """One bounded memory for the home, the temporary folder and shared memory together."""
    scratch = staging + b"/scratch"
    os.mkdir(scratch)
    _mount_tmpfs(scratch, plan["scratch_bytes"], plan["view_inodes"], b"scratch")
    for target in WRITABLE:
        source = scratch + b"/" + os.path.basename(target)
        os.mkdir(source)
        os.chmod(source, 0o1777 if target != b"/run/frog/home" else 0o700)
        if plan["privileged"]:
            os.chown(source, *plan["run_as"])
        os.makedirs(root + target, exist_ok=True)
        noexec = ATTR_NOEXEC if target == b"/dev/shm" else 0
        bind(source, root + target, ATTR_NOSUID | ATTR_NODEV | noexec, "scratch")


def _mount_proc(plan: dict[str, Any], root: bytes) -> None:
    """A /proc of our own processes; its limits are set, then all of it becomes read-only.

    Read-only as a whole: root without capabilities could still write many of its files.
    """
    proc = root + b"/proc"
    os.mkdir(proc)
    mount(b"proc", proc, b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None, "proc")
    set_kernel_limits(plan, proc)
    for name in plan["masked"]:
        if os.path.exists(proc + b"/" + name):
            bind(root + b"/dev/null", proc + b"/" + name, ATTR_RDONLY, "mask")
    set_attributes(proc, ATTR_RDONLY | ATTR_NOSUID | ATTR_NOEXEC, "read-only proc")


def set_kernel_limits(plan: dict[str, Any], proc: bytes) -> None:
    """Set what the kernel counts for our own namespaces, where it lets us."""
    for kind in (b"user", b"mnt", b"pid", b"net", b"ipc", b"uts", b"cgroup", b"time"):
        _write(proc + b"/sys/user/max_%s_namespaces" % kind, b"0")
    if plan["own_pid_max"]:  # else the watchdog of PID 1 counts
        # numbers up to 300 are used once only, then the kernel leaves them to daemons
        _write(proc + b"/sys/kernel/pid_max", b"%d" % (plan["processes"] + 300))
    _write(proc + b"/sys/kernel/shmall", b"%d" % (64 * 1024 * 1024 // 4096))


def _write(path: bytes, value: bytes) -> None:
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(value)
    except OSError:
        # nested namespaces are refused by the filter as well, and a canary tries
        return


def _start_loopback() -> int:
    """Raise the loopback interface in a process beside: the kernel waits tens of milliseconds for it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _raise_loopback()
            code = 0
        finally:
            os._exit(code)
    return pid


def _finish_loopback(pid: int) -> None:
    if os.waitpid(pid, 0)[1] != 0:
        raise StepError("loopback", 1)


def _raise_loopback() -> None:
    with_ip = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        fcntl.ioctl(with_ip.fileno(), _SIOCSIFFLAGS, _LOOPBACK_UP)
    finally:
        with_ip.close()
