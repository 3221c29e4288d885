"""The forms of git's patch format that need an encoder of their own: quoted paths, blob ids, binary literals."""

from __future__ import annotations

import base64
import hashlib
import os
import zlib

NO_BLOB = "0" * 40

_ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
_BYTES_PER_LINE = 52


def quote_path(path: str) -> str:
    """The path as git writes it with `core.quotePath`: in quotes and escaped where a byte is not plain ASCII."""
    raw = os.fsencode(path)
    if all(0x20 <= byte < 0x7F and byte not in _ESCAPES for byte in raw):
        return path
    return '"' + "".join(map(_escape, raw)) + '"'


def _escape(byte: int) -> str:
    if byte in _ESCAPES:
        return _ESCAPES[byte]
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def blob_id(data: bytes | None) -> str:
    """The name that git gives to a file's bytes (40 hexadecimal digits); None, no file, is all zeros."""
    if data is None:
        return NO_BLOB
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def binary_patch(before: bytes, after: bytes) -> str:
    """The `GIT binary patch` that makes `after`, and the one that makes `before` again."""
    return "GIT binary patch\n" + _literal(after) + "\n" + _literal(before) + "\n"


def _literal(data: bytes) -> str:
    packed = zlib.compress(data)
    lines = [f"literal {len(data)}\n"]
    for start in range(0, len(packed), _BYTES_PER_LINE):
        piece = packed[start : start + _BYTES_PER_LINE]
        n = len(piece)
        length = chr(ord("A") + n - 1) if n <= 26 else chr(ord("a") + n - 27)
        lines.append(length + base64.b85encode(piece, pad=True).decode("ascii") + "\n")
    return "".join(lines)


def is_text(data: bytes) -> bool:
    """Whether the bytes can stand in a patch that is a string: valid UTF-8 without NUL."""
    if b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
