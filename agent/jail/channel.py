"""The outside of the launcher's status channel, and what a failure there means for a person."""

from __future__ import annotations

import array
import contextlib
import errno
import os
import socket
from dataclasses import dataclass

from agent.errors import JailUnavailable
from agent.jail.explain import hint_for

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


class OverlayRefused(JailUnavailable):
    """All is fine but the overlay: a private copy can stand in for it."""


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

    def hang_up(self) -> None:
        """Say that all has to end; what the launcher still says can be received. Idempotent."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close both ends. PID 1 of the jail takes this as the order to end everything. Idempotent."""
        self.socket.close()
        self.child.close()


def explain_failure(message: StatusMessage, backend: str) -> JailUnavailable:
    """The error for a FAIL message: which step, why, and what can be done about it."""
    number, _, step = message.text.partition(" ")
    code = int(number) if number.isdigit() else 0
    if step.startswith("canary: "):
        return JailUnavailable(
            f"jail `{backend}` did not prove itself: {step.removeprefix('canary: ')}",
            "Nothing was run. Please report this with the output of `frog-lsp doctor`.",
        )
    if step == "start of the command" and code in _NOT_EXECUTABLE:
        return CommandNotStarted(os.strerror(code), is_missing=code in (errno.ENOENT, errno.ENOTDIR))
    reason = f"{step}: {os.strerror(code)}" if code else step
    kind = OverlayRefused if step == "overlay" else JailUnavailable
    return kind(f"jail `{backend}` cannot be had: {reason}", hint_for(step, code))
