"""A well-behaved editor: buffers, files on disk, a person who types, answers and saves.

An edit of a closed file opens it, unsaved, as all real editors do; `save_all` is the person who saves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from tests.e2e.editor_text import change_between
from tests.e2e.lsp_client import CLIENTS, Document, LspClient, LspError, edited, to_path, to_uri
from tests.e2e.transcript import Transcript

MARK = b"\xef\xbb\xbf"
YES = ("Apply", "Do it")


class EditFailed(Exception):
    """The editor cannot do a part of an edit."""


@dataclass
class Buffer(Document):
    """An open document; `is_dirty` until it is saved."""

    is_dirty: bool = False


class FakeEditor(LspClient):
    """A well-behaved editor: versions are checked before anything is done, no file is made over another."""

    capabilities_name: ClassVar[str]
    """The file in `tests/clients`."""
    questions: ClassVar[Literal["answered", "refused", "ignored"]] = "answered"
    """What becomes of a question of the server: a person says yes, it is an error, or it is never answered."""

    def __init__(self, env: dict[str, str]) -> None:
        super().__init__(env=env)
        sent = json.loads((CLIENTS / f"{self.capabilities_name}.json").read_text())
        self.capabilities, self.info = sent["capabilities"], sent["clientInfo"]
        self.transcript = Transcript()
        self.types_first: Callable[[], None] = lambda: None
        """What a person types between the server's sending an edit and the editor's taking it."""
        self.saved: set[str] = set()
        """Paths that this editor wrote from a buffer."""
        self.handlers["window/showMessageRequest"] = self.answer_question
        for method in ("client/unregisterCapability", "workspace/codeLens/refresh"):
            self.handlers[method] = lambda params: None

    # --- what is heard --------------------------------------------------------------------------------------

    def _take(self, message: dict[str, Any]) -> None:
        self.transcript.hear(message)
        super()._take(message)

    def send(self, message: Any) -> None:
        if "method" not in message:
            self.transcript.answer(message)
        super().send(message)

    async def give(self, name: str, argument: Any) -> Any:
        """A command that a person gives; it and its answer stand in the transcript."""
        entry = self.transcript.add(f"command {name}")
        try:
            result = await self.run(name, argument)
        except LspError as error:
            entry.answer = f"error {error.code} {error.message}"
            raise
        entry.answer = result
        return result

    def answer_question(self, params: Any) -> Any:
        titles = [action["title"] for action in params["actions"]]
        return next(({"title": title} for title in titles if title in YES), None)

    # --- buffers ------------------------------------------------------------------------------------------------

    def shown(self, data: bytes) -> str:
        """The text of a file as this editor shows it. Raises UnicodeDecodeError."""
        return data.removeprefix(MARK).decode("utf-8")

    def written(self, buffer: Buffer, before: bytes) -> bytes:
        """The bytes that saving a buffer gives, over what the file holds."""
        return (MARK if before.startswith(MARK) else b"") + buffer.text.encode()

    def as_saved(self, data: bytes) -> bytes:
        """What this editor makes of the bytes of a file that it saves: the same, or what its users are used to."""
        return data

    def buffer_at(self, uri: str) -> Buffer:
        """The buffer of a file, opened where it is not; a file that is not there is an empty buffer."""
        if uri not in self.documents:
            path = Path(to_path(uri))
            data = path.read_bytes() if path.exists() else b""
            try:
                text = self.shown(data)
            except UnicodeDecodeError as error:
                raise EditFailed(f"{path.name} is not UTF-8") from error
            self.show(Buffer(uri, text))
        found = self.documents[uri]
        assert isinstance(found, Buffer)
        return found

    def show(self, buffer: Buffer) -> None:
        self.documents[buffer.uri] = buffer
        item = {"uri": buffer.uri, "languageId": "python", "version": buffer.version, "text": buffer.text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def close(self, uri: str) -> None:
        if self.documents.pop(uri, None) is not None:
            self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def change(self, document: Document, text: str) -> None:
        """Replace the text; the server is told of the part that is another."""
        change = change_between(document.text, text, self.encoding)
        document.text, document.version = text, document.version + 1
        assert isinstance(document, Buffer)
        document.is_dirty = True
        identifier = {"uri": document.uri, "version": document.version}
        self.notify("textDocument/didChange", {"textDocument": identifier, "contentChanges": [change]})

    def save_all(self) -> None:
        for buffer in self.documents.values():
            assert isinstance(buffer, Buffer)
            if buffer.is_dirty:
                path = Path(to_path(buffer.uri))
                path.write_bytes(self.written(buffer, path.read_bytes() if path.exists() else b""))
                buffer.is_dirty = False
                self.saved.add(str(path))
                self.notify("textDocument/didSave", {"textDocument": {"uri": buffer.uri}})

    # --- edits --------------------------------------------------------------------------------------------------

    async def apply_edit(self, params: Any) -> Any:  # type: ignore[override]
        self.types_first()
        edit = params["edit"]
        parts = edit.get("documentChanges")
        if parts is None:
            parts = [{"textDocument": {"uri": uri}, "edits": edits} for uri, edits in edit["changes"].items()]
        try:
            await self.apply_parts(parts)
        except EditFailed as error:
            return self.refuse(str(error))
        return {"applied": True}

    def refuse(self, reason: str) -> Any:
        return {"applied": False, "failureReason": reason}

    async def apply_parts(self, parts: Sequence[dict[str, Any]]) -> None:
        if any(self.is_stale(part) for part in parts):
            raise EditFailed("stale")
        for part in parts:
            await self.do_part(part)

    def is_stale(self, part: dict[str, Any]) -> bool:
        """Whether a part is for another version than the buffer's. Versions 0 and null are checked by nobody."""
        document = part.get("textDocument", {})
        buffer = self.documents.get(document.get("uri", ""))
        return buffer is not None and bool(document.get("version")) and document["version"] != buffer.version

    async def do_part(self, part: dict[str, Any]) -> None:
        kind = part.get("kind")
        if kind is None:
            self.edit_text(part["textDocument"]["uri"], part["edits"])
        elif kind == "create":
            self.create(part["uri"], part.get("options") or {})
        elif kind == "delete":
            self.delete(part["uri"])
        else:
            await self.rename(part["oldUri"], part["newUri"])

    def edit_text(self, uri: str, edits: list[dict[str, Any]]) -> None:
        buffer = self.buffer_at(uri)
        self.change(buffer, edited(buffer.text, edits, self.encoding))

    def create(self, uri: str, options: dict[str, Any]) -> None:
        """An empty file on disk at once."""
        path = Path(to_path(uri))
        if path.exists() and not options.get("overwrite"):
            if options.get("ignoreIfExists"):
                return
            raise EditFailed(f"{path.name} is there")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")

    def delete(self, uri: str) -> None:
        os.remove(to_path(uri))
        self.close(uri)

    async def rename(self, old_uri: str, new_uri: str) -> None:
        self.move(Path(to_path(old_uri)), Path(to_path(new_uri)))

    def move(self, old: Path, new: Path) -> None:
        if new.exists():
            raise EditFailed(f"{new.name} is there")
        new.parent.mkdir(parents=True, exist_ok=True)
        os.rename(old, new)
        buffer = self.documents.get(to_uri(old))
        if buffer is not None:
            self.close(buffer.uri)
            self.show(Buffer(to_uri(new), buffer.text))

    async def ask_before_rename(self, old_uri: str, new_uri: str) -> None:
        """VS Code and Helix ask the server in the middle of its own edit, and wait; an error is no obstacle."""
        files = [{"oldUri": old_uri, "newUri": new_uri}]
        try:
            await self.request("workspace/willRenameFiles", {"files": files}, timeout_s=10)
        except LspError as error:
            assert error.code == -32601
