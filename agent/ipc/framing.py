"""JSON objects as frames: `Content-Length: N`, a blank line, N bytes of JSON.

Standard library only and without imports from our own packages: it is shipped into the jail.
The other side may be hostile, so everything is capped before it is kept: headers at 1 KiB, a body at
64 MiB (a whole proposal of large files fits; a runner that floods does not).
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_HEADER_BYTES = 1024
_END_OF_HEADERS = b"\r\n\r\n"


class FrameError(ValueError):
    """The bytes are no frame of ours, or the message is larger than the cap."""


def encode(message: dict[str, Any]) -> bytes:
    """One frame. Raises FrameError when the body would be larger than the cap.

    Non-ASCII is escaped so that file names that are not UTF-8 (lone surrogates) survive.
    """
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(body) > MAX_BODY_BYTES:
        raise FrameError(f"a message of {len(body)} bytes is over the cap of {MAX_BODY_BYTES}")
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


class Decoder:
    """Turns a stream of bytes, in pieces of any size, into messages.

    Once bytes arrive that are no frame, nothing after them can be trusted: `failure` is set, and `feed`
    raises it as soon as every message before them has been handed out.
    """

    def __init__(self) -> None:
        self.failure: FrameError | None = None
        self._buffer = bytearray()
        self._body_bytes: int | None = None

    @property
    def pending(self) -> bool:
        """True in the middle of a frame: an end of the stream now is a cut message."""
        return bool(self._buffer) or self._body_bytes is not None

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Take the next bytes; return the messages that they complete. Raises FrameError."""
        if self.failure is not None:
            raise self.failure
        self._buffer += data
        messages = []
        try:
            while (message := self._next()) is not None:
                messages.append(message)
        except FrameError as error:
            self.failure = error
            self._buffer.clear()
            if not messages:
                raise
        return messages

    def _next(self) -> dict[str, Any] | None:
        if self._body_bytes is None:
            end = self._buffer.find(_END_OF_HEADERS, 0, MAX_HEADER_BYTES)
            if end < 0:
                _check_unfinished_header(self._buffer)
                return None
            self._body_bytes = _body_bytes(bytes(self._buffer[:end]))
            del self._buffer[: end + len(_END_OF_HEADERS)]
        if len(self._buffer) < self._body_bytes:
            return None
        body = bytes(self._buffer[: self._body_bytes])
        del self._buffer[: self._body_bytes]
        self._body_bytes = None
        return _parse(body)


def read_frame(stream: BinaryIO) -> dict[str, Any] | None:
    """Block for the next message; None at a clean end of the stream. Raises FrameError."""
    header = bytearray()
    while not header.endswith(_END_OF_HEADERS):
        byte = stream.read(1)
        if not byte:
            if header:
                raise FrameError("the stream ended inside a header")
            return None
        header += byte
        if len(header) >= MAX_HEADER_BYTES or not _HEADER_NAME.startswith(header[: len(_HEADER_NAME)].lower()):
            raise FrameError("no Content-Length header")
    n_bytes = _body_bytes(bytes(header[: -len(_END_OF_HEADERS)]))
    body = bytearray()
    while len(body) < n_bytes:
        piece = stream.read(n_bytes - len(body))
        if not piece:
            raise FrameError("the stream ended inside a message")
        body += piece
    return _parse(bytes(body))


def write_frame(stream: BinaryIO, message: dict[str, Any]) -> None:
    """Write one message and flush. Raises FrameError for an oversize one, OSError as the stream does."""
    data = memoryview(encode(message))
    while data:
        data = data[stream.write(data) or 0 :]
    stream.flush()


_HEADER_NAME = b"content-length:"


def _check_unfinished_header(buffer: bytearray) -> None:
    if len(buffer) >= MAX_HEADER_BYTES:
        raise FrameError("a header is over 1 KiB")
    if not _HEADER_NAME.startswith(bytes(buffer[: len(_HEADER_NAME)]).lower()):
        raise FrameError("no Content-Length header")


def _body_bytes(header: bytes) -> int:
    lines = header.split(b"\r\n")
    name, colon, value = lines[0].partition(b":")
    digits = value.strip()
    if len(lines) != 1 or not colon or name.lower() + b":" != _HEADER_NAME or not digits.isdigit() or len(digits) > 10:
        raise FrameError("a header that is not Content-Length")
    n_bytes = int(digits)
    if n_bytes > MAX_BODY_BYTES:
        raise FrameError(f"a message of {n_bytes} bytes is over the cap of {MAX_BODY_BYTES}")
    return n_bytes


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a body that is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError("a body that is not a JSON object")
    return message


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
