"""Between the text of a buffer and the bytes of its file: what the client hides is put back, and taken away again.

Clients do not show a byte order mark, decode the file as they like, and Emacs shows `\\n` where the file has
`\\r\\n`. All merging is done on bytes, so this is where an edit could lose a character, and where it must not.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.changes.textfile import NotTextError, TextFile, decode, line_ends

_MARK = "\ufeff"
_EIGHT_BIT = ("latin-1", "cp1252", "iso8859-15")


class NotCarriedError(ValueError):
    """A text that an edit cannot carry; the message says why."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How one file is read and written. `hides_crlf`: every `\\r\\n` of the file is a `\\n` for the client."""

    encoding: str = "utf-8"
    mark: bytes = b""
    shows_mark: bool = False
    hides_crlf: bool = False

    def to_bytes(self, text: str) -> bytes:
        """The bytes that saving the text gives. Raises NotCarriedError."""
        if self.shows_mark:
            text = text.removeprefix(_MARK)
        if self.hides_crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        try:
            return TextFile("", self.encoding, self.mark).encode(text)
        except ValueError as error:
            raise NotCarriedError(str(error)) from None

    def to_text(self, data: bytes) -> str:
        """The text that the client would show for the bytes. Raises NotCarriedError."""
        if self.mark and not data.startswith(self.mark):
            raise NotCarriedError("the change takes away the byte order mark")
        try:
            text = data[len(self.mark) :].decode(self.encoding)
        except UnicodeDecodeError:
            raise NotCarriedError(f"the new bytes are not {self.encoding}") from None
        if not self.mark and text.startswith(_MARK):
            raise NotCarriedError("the change adds a byte order mark")
        if self.hides_crlf:
            text = text.replace("\r\n", "\n")
        return _MARK + text if self.shows_mark else text


def codec_of_file(data: bytes) -> Codec:
    """For a file that is not open: how clients will read it. Raises NotCarriedError where only some can read it."""
    try:
        file = decode(data)
    except NotTextError as error:
        raise NotCarriedError(str(error)) from None
    if file.encoding != "utf-8":
        raise NotCarriedError(f"the file is {file.encoding}: open it first, so that its encoding is known")
    return Codec(file.encoding, file.mark)


def codec_of_buffer(text: str, disk: bytes | None) -> Codec:
    """For an open document: the codec that joins its text to the file on disk (None: there is no file yet).

    Raises NotCarriedError where the text cannot be of this file's encoding.
    """
    if disk is None:
        return Codec()
    try:
        file = decode(disk)
    except NotTextError as error:
        for encoding in _EIGHT_BIT:
            if _same_lines(text, disk.decode(encoding, "replace")):
                return Codec(encoding, hides_crlf=_hides_crlf(text, disk.decode(encoding, "replace")))
        raise NotCarriedError(f"{error}: save it, or let the editor reopen it with its encoding") from None
    return Codec(
        file.encoding,
        file.mark,
        shows_mark=bool(file.mark) and text.startswith(_MARK),
        hides_crlf=_hides_crlf(text, file.text),
    )


def _hides_crlf(shown: str, on_disk: str) -> bool:
    return set(line_ends(on_disk)) == {"\r\n"} and set(line_ends(shown)) == {"\n"}


def _same_lines(a: str, b: str) -> bool:
    return a.replace("\r\n", "\n") == b.replace("\r\n", "\n")
