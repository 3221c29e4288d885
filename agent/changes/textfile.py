"""Bytes to text and back without losing a byte.

Standard library only and without imports from our own packages: it is shipped into the jail, where every
import costs time (`dataclasses` alone 10 ms: hence NamedTuple).

Lines end at `\\n`, `\\r\\n` and `\\r` only, never at a form feed or U+2028. The encoding of a file is what its
byte order mark says, else its PEP 263 cookie, else UTF-8.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from typing import NamedTuple

_MARKS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK_OR_COMMENT = re.compile(rb"^[ \t\f]*(?:#.*)?$")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LINE_END = re.compile(r"\r\n|\r|\n")
_PROBE_BYTES = 8192
_NO_FILE_ENCODINGS = {"unicode-escape", "raw-unicode-escape", "idna", "punycode", "undefined", "utf-7"}
# C0 controls that no text holds (tab, line ends, form feed, backspace and escape do occur in text)
_NOT_IN_TEXT = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")


class NotTextError(ValueError):
    """The bytes cannot be read as text without loss."""


class TextFile(NamedTuple):
    """A file as text. `mark` is the byte order mark (often empty), which `text` does not hold."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    def encode(self, text: str) -> bytes:
        """Another text with this file's mark and encoding. Raises ValueError naming a character that does not fit."""
        return self.mark + encode_piece(text, self.encoding)


def encode_piece(text: str, encoding: str) -> bytes:
    """Text as bytes, without a mark. Raises ValueError naming the first character that does not fit."""
    try:
        return text.encode(encoding)
    except UnicodeError as error:
        odd = text[error.start] if isinstance(error, UnicodeEncodeError) else text[:1]
        raise ValueError(f"U+{ord(odd):04X} cannot be written in the file's encoding, {encoding}") from None


def decode(data: bytes) -> TextFile:
    """The text of a file. Raises NotTextError: "binary file", or that its encoding is not known."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            text = _decoded(data[len(mark) :], encoding)
            if text is None:
                raise NotTextError("binary file")
            return TextFile(text, encoding, mark)
    if b"\0" in data:
        raise NotTextError("binary file")
    for encoding in (_cookie(data) or "utf-8", "utf-8"):
        text = _decoded(data, encoding)
        if text is not None:
            return TextFile(text, encoding)
    if is_binary(data):
        raise NotTextError("binary file")
    raise NotTextError("the file is not UTF-8 and names no other encoding, so it cannot be changed without damage")


def is_binary(data: bytes) -> bool:
    """True for bytes that nobody would call text (text in an unknown encoding is not binary)."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decoded(data[len(mark) :], encoding) is None
    if b"\0" in data:
        return True
    if _decoded(data, "utf-8") is not None or _decoded(data, _cookie(data) or "utf-8") is not None:
        return False
    probe = data[:_PROBE_BYTES]
    n_c1 = sum(0x80 <= byte <= 0x9F for byte in probe)
    return _NOT_IN_TEXT.search(probe) is not None or n_c1 > 0.3 * len(probe)


def show(data: bytes) -> str:
    """The text for reading only: an unknown encoding is shown with U+FFFD. Raises NotTextError: "binary file"."""
    try:
        return decode(data).text
    except NotTextError:
        if is_binary(data):
            raise
        return data.decode("utf-8", "replace")


def split_lines(text: str) -> list[str]:
    """The lines with their ends."""
    return _LINE.findall(text)


def line_ends(text: str) -> list[str]:
    """The line ends in order."""
    return _LINE_END.findall(text)


def normalise(text: str) -> str:
    """The text with every line end as a line feed."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def usual_line_end(text: str) -> str:
    """The line end that occurs most (the first of equals), a line feed where there is none."""
    ends = line_ends(text)
    return max(dict.fromkeys(ends), key=ends.count, default="\n")


def write_over(existing: bytes | None, content: str) -> bytes:
    """What a file becomes when `content` is written over it (`existing` None: a new file).

    The old line ends stay where there was one kind, the old mark and encoding where the text then reads
    back the same; else it is UTF-8, or what its own cookie says. Raises ValueError for a lone surrogate.
    """
    old = TextFile("")
    if existing:
        with contextlib.suppress(NotTextError):
            old = decode(existing)
    kinds = set(line_ends(old.text))
    if len(kinds) == 1:
        content = normalise(content).replace("\n", kinds.pop())
    if old.mark:
        content = content.removeprefix("\ufeff")
    own = _cookie(content[:_PROBE_BYTES].encode("utf-8", "replace"))
    for candidate in (old, TextFile(""), TextFile("", own or "utf-8")):
        try:
            data = candidate.encode(content)
            if decode(data) == TextFile(content, candidate.encoding, candidate.mark):
                return data
        except ValueError:
            continue
    return encode_piece(content, "utf-8")


def _cookie(data: bytes) -> str | None:
    """The encoding that a PEP 263 cookie in the first two lines names, where Python knows it as one of text."""
    for line in re.split(rb"\r\n|\r|\n", data[:_PROBE_BYTES], maxsplit=2)[:2]:
        if found := _COOKIE.match(line):
            try:
                codec = codecs.lookup(found[1].decode("ascii"))
            except (LookupError, UnicodeDecodeError):
                return None
            return codec.name if codec._is_text_encoding and codec.name not in _NO_FILE_ENCODINGS else None
        if not _BLANK_OR_COMMENT.match(line):
            return None
    return None


def _decoded(data: bytes, encoding: str) -> str | None:
    """The text, or None where the bytes cannot be had back from it exactly."""
    try:
        text = data.decode(encoding)
        return text if encoding == "utf-8" or text.encode(encoding) == data else None
    except (UnicodeError, LookupError):
        return None
