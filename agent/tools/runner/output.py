"""The output of commands in bounded memory: its head for the model, its tail for the tests."""

from __future__ import annotations

import codecs
import io

_TAIL_BYTES = 256 * 1024


def cut(text: str, max_chars: int) -> str:
    """The text as the model sees it: what is longer ends in a new line that counts what is missing."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}\n[truncated {len(text) - max_chars} chars]"


class Sink:
    """Where bytes of a command go."""

    def take(self, data: bytes) -> None:
        """Take the next bytes. This one forgets them."""


class Head(Sink):
    """Decodes as it comes and keeps the first characters; `n_chars` counts all.

    Line ends become line feeds, as they did where the model learnt (its shell's pipes were in text mode).
    """

    def __init__(self, max_chars: int) -> None:
        self.n_chars = 0
        self._max_chars = max_chars
        self._pieces: list[str] = []
        self._n_kept = 0
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = io.IncrementalNewlineDecoder(utf8, translate=True)

    def take(self, data: bytes, *, final: bool = False) -> None:
        """Take the next bytes."""
        text = self._decoder.decode(data, final)
        self.n_chars += len(text)
        if self._n_kept < self._max_chars and text:
            self._pieces.append(text[: self._max_chars - self._n_kept])
            self._n_kept += len(self._pieces[-1])

    def finish(self) -> str:
        """The head, once everything has come."""
        self.take(b"", final=True)
        return "".join(self._pieces)


class Tail(Sink):
    """Keeps the last bytes of several streams in the order in which they came."""

    def __init__(self) -> None:
        self._data = bytearray()

    def take(self, data: bytes) -> None:
        """Take the next bytes."""
        self._data += data[-_TAIL_BYTES:]
        if len(self._data) > 2 * _TAIL_BYTES:
            del self._data[:-_TAIL_BYTES]

    def lines(self, n_lines: int) -> str:
        """The last lines, at most 256 KiB of them, without a line end after the last."""
        text = self._data[-_TAIL_BYTES:].decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
        return "\n".join(text.removesuffix("\n").split("\n")[-n_lines:])
