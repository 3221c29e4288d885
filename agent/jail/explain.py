"""Why a step of building a jail fails on this machine, in a sentence that a user can act on."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass

# Ubuntu ships the profile that lets bubblewrap make user namespaces, but does not install it.
_BWRAP_PROFILE = (
    "`sudo apt-get install bubblewrap apparmor-profiles && sudo ln -s "
    "/usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && "
    "sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict`"
)
_REFUSED = (errno.EPERM, errno.EACCES)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """What decides whether namespaces can be had. Numbers are the kernel's settings, None where it has no such one."""

    max_user_namespaces: int | None = None
    unprivileged_userns_clone: int | None = None
    apparmor_restrict_unprivileged_userns: int | None = None
    is_root: bool = False
    is_container: bool = False
    kernel: tuple[int, int] = (6, 6)


def explain_platform(platform: str) -> str:
    """Why commands cannot be jailed on a system (`sys.platform`) at all, "" on Linux. Pure."""
    if platform == "linux":
        return ""
    if platform == "darwin":
        return (
            "The jail for macOS (Seatbelt) is written, but nobody has run it yet, so it is not used: "
            "the four file tools work, and in a virtual machine with Linux Bash does too."
        )
    if platform in ("win32", "cygwin"):
        return "Windows itself has no jail for commands: the four file tools work, and in WSL2 Bash does too."
    return f"There is no jail for commands on {platform}: the four file tools work."


def hint_for(step: str, code: int) -> str:
    """What a user can do about a step that failed here with this errno (0: it failed without one)."""
    return explain(step, code, look_at_host())


def explain(step: str, code: int, host: HostState) -> str:
    """The same for any host. Pure."""
    if host.kernel < (5, 12):
        major, minor = host.kernel
        return f"Linux 5.12 or later is needed, this is {major}.{minor}: update the kernel."
    if host.max_user_namespaces == 0 or (code == errno.ENOSPC and step == "unshare"):
        return "User namespaces are switched off: `sudo sysctl user.max_user_namespaces=15000`."
    if host.unprivileged_userns_clone == 0 and not host.is_root:
        return "User namespaces are off for users: `sudo sysctl kernel.unprivileged_userns_clone=1`."
    if host.apparmor_restrict_unprivileged_userns == 1 and code in _REFUSED and not host.is_root:
        return (
            "AppArmor restricts user namespaces (Ubuntu 23.10 and later). Backend `bwrap` works with the profile that "
            f"Ubuntu has for it: {_BWRAP_PROFILE}. "
            "Or for every program: `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`."
        )
    if step == "overlay" and code == errno.ENODEV:
        return "The kernel has no overlay file system: `sudo modprobe overlay`."
    if step == "overlay":
        return "The workspace, or (before Linux 6.6) the cache folder, is on a file system that an overlay cannot use."
    if step in ("landlock", "user notification"):
        return "The kernel lacks it, or a filter of system calls around frog-lsp (a container's) hides it."
    if host.is_container and code in (errno.EPERM, errno.EACCES, errno.EINVAL):
        return (
            "This is a container: its seccomp profile or its masked /proc forbids namespaces. Docker, Podman: start it "
            "with `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`."
        )
    if code in (errno.ENOSYS, errno.EOPNOTSUPP):
        return "The kernel lacks it, or a filter of system calls around frog-lsp hides it."
    return "`frog-lsp doctor` shows what is missing. The four file tools work without it; Bash does not."


def look_at_host() -> HostState:
    """The state of this machine."""
    return HostState(
        max_user_namespaces=_read_number("/proc/sys/user/max_user_namespaces"),
        unprivileged_userns_clone=_read_number("/proc/sys/kernel/unprivileged_userns_clone"),
        apparmor_restrict_unprivileged_userns=_read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        is_root=os.geteuid() == 0,
        is_container=any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))) or "container" in os.environ,
        kernel=kernel_version(os.uname().release),
    )


def kernel_version(release: str) -> tuple[int, int]:
    """Major and minor of a release such as "6.6.87.2-microsoft-standard-WSL2"; missing parts count as 0."""
    found = re.match(r"(\d+)(?:\.(\d+))?", release)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _read_number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
