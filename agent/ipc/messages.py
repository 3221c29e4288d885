"""The words that both ends of a connection share: the handshake, and bytes inside JSON.

A request is `{"id", "method", "params"}`, its answer `{"id", "result"}` or
`{"id", "error": {"kind", "message"}}`, a notification `{"method", "params"}`.
The first request is `hello` with `{"protocol": 1}`; its result names the protocol too.
"""

from __future__ import annotations

import base64
import binascii

from agent.errors import ProtocolError
from agent.types import JsonObject

PROTOCOL = 1


def hello_params(**extra: object) -> JsonObject:
    """The parameters, or the result, of `hello`."""
    return {"protocol": PROTOCOL, **extra}


def check_hello(message: object) -> JsonObject:
    """Return the other side's part of the handshake. Raises ProtocolError for another protocol."""
    if not isinstance(message, dict) or message.get("protocol") != PROTOCOL:
        raise ProtocolError(
            f"the other side does not speak protocol {PROTOCOL}: {message!r:.200}",
            "both ends must come from the same installation of frog-lsp; reinstall it",
        )
    return message


def to_base64(data: bytes) -> str:
    """Bytes as they travel in a message."""
    return base64.b64encode(data).decode("ascii")


def from_base64(text: object) -> bytes:
    """The bytes of a message. Raises ProtocolError for anything else than base64."""
    if not isinstance(text, str):
        raise ProtocolError("bytes must travel as base64 text")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtocolError(f"bytes that are not base64: {error}") from error
