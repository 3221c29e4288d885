"""The outside of the launcher's status channel, and what a failure there means for a person."""

from __future__ import annotations

import array
import errno
import os
import re
import socket
from dataclasses import dataclass

from agent.errors import JailUnavailable

_MESSAGE_BYTES = 8192
_NOT_EXECUTABLE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC, errno.ELOOP, errno.ENAMETOOLONG)


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """One message: a word (INIT, VIEW, READY, LIMIT, EXIT, GONE, FAIL), its text, the descriptors it carries."""

    word: str
    text: str
    descriptors: tuple[int, ...] = ()


class CommandNotStarted(JailUnavailable):
    """The jail is fine, but the program in it cannot be executed."""

    def __init__(self, message: str, *, is_missing: bool) -> None:
        super().__init__(message, "Name a program that exists in the jail.")
        self.is_missing = is_missing


class StatusChannel:
    """Receives the launcher's messages. Only the launcher holds the other end; jailed processes never do."""

    def __init__(self, nonce: bytes) -> None:
        self._nonce = nonce
        self.socket, self.child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def receive(self) -> StatusMessage | None:
        """The next message; None at the end. Raises BlockingIOError, TimeoutError by the mode of the socket.

        Raises JailUnavailable for a message without our nonce.
        """
        size = array.array("i").itemsize
        try:
            data, ancillary, _, _ = self.socket.recvmsg(
                _MESSAGE_BYTES, socket.CMSG_SPACE(4 * size), socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return None
        numbers = array.array("i")
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers.frombytes(raw[: len(raw) - len(raw) % size])
        if not data:
            return None
        nonce, _, message = data.partition(b" ")
        if nonce != self._nonce:
            for number in numbers:
                os.close(number)
            raise JailUnavailable("the jail's status channel carries foreign messages", "Please report this.")
        word, _, text = message.decode("utf-8", "replace").partition(" ")
        return StatusMessage(word, text, tuple(numbers))

    def close(self) -> None:
        """Close both ends. PID 1 of the jail takes this as the order to end everything. Idempotent."""
        self.socket.close()
        self.child.close()


def explain_failure(message: StatusMessage, workspace: str) -> JailUnavailable:
    """The error for a FAIL message: which step, why, and what can be done about it."""
    number, _, step = message.text.partition(" ")
    code = int(number) if number.isdigit() else 0
    if step.startswith("canary: "):
        return JailUnavailable(
            f"jail `namespaces` did not prove itself: {step.removeprefix('canary: ')}",
            "Nothing was run. Please report this with the output of `frog-lsp doctor`.",
        )
    if step == "start of the command" and code in _NOT_EXECUTABLE:
        return CommandNotStarted(os.strerror(code), is_missing=code in (errno.ENOENT, errno.ENOTDIR))
    reason = f"{step}: {os.strerror(code)}" if code else step
    return JailUnavailable(f"jail `namespaces` cannot be had: {reason}", hint_for(step, code, workspace))


def hint_for(step: str, code: int, workspace: str) -> str:
    """What a user can do about a step that failed with this errno."""
    if _read_number("/proc/sys/user/max_user_namespaces") == 0 or (code == errno.ENOSPC and step == "unshare"):
        return "User namespaces are switched off: `sudo sysctl user.max_user_namespaces=15000`."
    if _read_number("/proc/sys/kernel/unprivileged_userns_clone") == 0:
        return "User namespaces are off for users: `sudo sysctl kernel.unprivileged_userns_clone=1`."
    if _read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1 and code in (
        errno.EPERM,
        errno.EACCES,
    ):
        return (
            "AppArmor restricts user namespaces (Ubuntu 23.10 and later): give the Python of frog-lsp a profile with "
            "`userns,`, or `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`."
        )
    if step == "overlay" and code == errno.ENODEV:
        return "The kernel has no overlay file system: `sudo modprobe overlay`."
    if step == "overlay" and (below := mounts_below(workspace)):
        return f"The workspace has mounts below it ({below[0]}): unmount them, or work on a copy."
    if step == "overlay" and code == errno.EINVAL:
        return "The workspace, or (before Linux 6.6) the cache folder, is on a file system that an overlay cannot use."
    if _in_container() and code in (errno.EPERM, errno.EACCES, errno.EINVAL):
        return (
            "This is a container: its seccomp profile or masked /proc forbids namespaces. Docker: "
            "`--security-opt seccomp=unconfined --security-opt systempaths=unconfined`."
        )
    if code in (errno.ENOSYS, errno.EOPNOTSUPP):
        return "Linux 5.12 or later is needed (6.6 for a private view in memory)."
    return "`frog-lsp doctor` shows what is missing. The four file tools work without it; Bash does not."


def mounts_below(folder: str) -> list[str]:
    """The mount points below a resolved folder: an overlay cannot be made over them."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            points = [line.split()[4] for line in file]
    except (OSError, IndexError):
        return []
    # spaces and the like are written as octal escapes there
    names = [os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda m: bytes((int(m[1], 8),)), point)) for point in points]
    return [name for name in names if name.startswith(folder.rstrip("/") + "/")]


def _in_container() -> bool:
    return os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv") or "container" in os.environ


def _read_number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
