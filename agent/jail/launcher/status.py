"""The launcher's side of the status channel: short messages, each begins with the nonce of this start."""

from __future__ import annotations

import _socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class StatusPipe:
    """Sends messages, with descriptors, over a socket that keeps the borders of messages."""

    def __init__(self, number: int, nonce: bytes) -> None:
        self._socket = _socket.socket(fileno=number)
        self._nonce = nonce

    def fileno(self) -> int:
        """For poll: readable means that the other side is gone."""
        return self._socket.fileno()

    def send(self, message: bytes, *descriptors: int) -> None:
        """Send one message. That nobody listens any more is no error: the end comes by itself."""
        rights: Sequence[tuple[int, int, bytes]] = ()
        if descriptors:
            packed = b"".join(number.to_bytes(4, "little") for number in descriptors)
            rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)]
        try:
            self._socket.sendmsg([self._nonce + b" " + message], rights, _socket.MSG_NOSIGNAL)
        except OSError:
            return

    def send_failure(self, step: str, number: int) -> None:
        """Say which step failed, with its errno."""
        self.send(b"FAIL %d %s" % (number, step.encode("utf-8", "replace")[:2000]))

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
