"""The text of open documents, as the client sees it. Disk is never read for the text of an open document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lsp_server.positions import Encoding, replace_range, split_lines
from lsp_server.uris import is_at_or_below, path_of, respelled


@dataclass(slots=True)
class Buffer:
    """One open document. `uri` is the very string that the client used; `path` is None where it is no file."""

    uri: str
    path: str | None
    language_id: str
    version: int
    lines: list[str] = field(repr=False)
    is_notebook_cell: bool = False

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.lines)


class BufferStore:
    """The open documents, found by path whatever the spelling of the URI."""

    def __init__(self) -> None:
        self._by_key: dict[str, Buffer] = {}
        self.listeners: set[Callable[[Buffer], None]] = set()
        """Each is told of every buffer that was opened, and of each single change."""

    def open(self, uri: str, language_id: str, version: int, text: str) -> Buffer:
        """Take a document that the client opened; opened twice, the later text counts."""
        path = path_of(uri)
        buffer = Buffer(uri, path, language_id, version, split_lines(text))
        self._by_key[path or uri] = buffer
        self._tell(buffer)
        return buffer

    def change(self, uri: str, version: int, changes: list[dict[str, Any]], encoding: Encoding) -> bool:
        """Apply incremental or full changes in order; False where the document is not open.

        Raises KeyError, TypeError or ValueError for a change that cannot be read; those before it stay.
        """
        buffer = self.get(uri)
        if buffer is None:
            return False
        buffer.version = version
        for change in changes:
            text = change["text"]
            if not isinstance(text, str):
                raise TypeError("the text of a change must be a string")
            span = change.get("range")
            if span is None:
                buffer.lines = split_lines(text)
            else:
                start, end = span["start"], span["end"]
                replace_range(
                    buffer.lines,
                    (int(start["line"]), int(start["character"])),
                    (int(end["line"]), int(end["character"])),
                    text,
                    encoding,
                )
            self._tell(buffer)
        return True

    def _tell(self, buffer: Buffer) -> None:
        for listener in list(self.listeners):
            listener(buffer)

    def rename(self, old: str, new: str, new_uri: str) -> None:
        """Let the documents of a file, or below a folder, follow it. One that is open at the new place stays."""
        for buffer in self:
            if buffer.path is None or not is_at_or_below(buffer.path, old):
                continue
            del self._by_key[buffer.path]
            buffer.path = new + buffer.path[len(old) :]
            buffer.uri = respelled(buffer.uri, buffer.path[len(new) :], new_uri)
            self._by_key.setdefault(buffer.path, buffer)

    def close(self, uri: str) -> Buffer | None:
        """Forget a document; the one that was open, if any."""
        return self._by_key.pop(path_of(uri) or uri, None)

    def get(self, uri: str) -> Buffer | None:
        """The open document of a URI, in any spelling."""
        return self._by_key.get(path_of(uri) or uri)

    def at(self, path: str) -> Buffer | None:
        """The open document of an absolute path."""
        return self._by_key.get(path)

    def __iter__(self) -> Iterator[Buffer]:
        return iter(list(self._by_key.values()))
