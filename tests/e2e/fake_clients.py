"""Editors that behave as the real ones were seen to, with the capabilities that the real ones sent.

One model of buffers (`FakeEditor`: a well-behaved editor), and a small class for what each does otherwise. An edit of
a closed file opens it, unsaved, as all real ones do; `save_all` is the person who saves.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from tests.e2e.lsp_client import (
    CLIENTS,
    NEVER,
    Document,
    LspClient,
    LspError,
    RespondError,
    edited,
    to_path,
    to_uri,
)
from tests.e2e.transcript import Transcript

MARK = b"\xef\xbb\xbf"
YES = ("Apply", "Do it")
_WIDTH = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}


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


class VsCode(FakeEditor):
    """Makes line ends uniform, gives no reason for a stale edit, asks back before a rename."""

    capabilities_name = "vscode"

    def shown(self, data: bytes) -> str:
        return uniform(super().shown(data))

    def as_saved(self, data: bytes) -> bytes:
        return uniform(data.decode()).encode()

    def refuse(self, reason: str) -> Any:
        return {"applied": False}

    async def rename(self, old_uri: str, new_uri: str) -> None:
        await self.ask_before_rename(old_uri, new_uri)
        await super().rename(old_uri, new_uri)


class Neovim(FakeEditor):
    """Buffers of lines, ended when saved. A stale first document is skipped and "applied", later ones are not checked.

    Creates a file over another unless told to ignore it, and then makes only a buffer.
    """

    capabilities_name = "neovim"

    def shown(self, data: bytes) -> str:
        return super().shown(data) or "\n"

    def written(self, buffer: Buffer, before: bytes) -> bytes:
        return self.as_saved(super().written(buffer, before))

    def as_saved(self, data: bytes) -> bytes:
        return data if data.endswith(b"\n") or not data else data + b"\n"

    async def apply_parts(self, parts: Sequence[dict[str, Any]]) -> None:
        for at, part in enumerate(parts):
            if at > 0 or not self.is_stale(part):
                await self.do_part(part)

    def is_stale(self, part: dict[str, Any]) -> bool:
        document = part.get("textDocument", {})
        buffer = self.documents.get(document.get("uri", ""))
        return buffer is not None and 0 < (document.get("version") or 0) < buffer.version

    def edit_text(self, uri: str, edits: list[dict[str, Any]]) -> None:
        buffer = self.buffer_at(uri)
        lines = NeovimLines(buffer.text)
        lines.edit(edits, self.encoding)
        self.change(buffer, lines.text)

    def create(self, uri: str, options: dict[str, Any]) -> None:
        if not options.get("ignoreIfExists") or options.get("overwrite"):
            path = Path(to_path(uri))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")


class OldNeovim(Neovim):
    """Neovim 0.7: UTF-16, no showDocument."""

    capabilities_name = "neovim-0.7"


class Helix(FakeEditor):
    """Asks no questions, does what comes before a failure, empties a file that it is to create, makes no folder."""

    capabilities_name = "helix"
    questions = "refused"

    def answer_question(self, params: Any) -> Any:
        raise RespondError(-32601, "Method not found")

    async def apply_parts(self, parts: Sequence[dict[str, Any]]) -> None:
        for part in parts:
            if self.is_stale(part):
                raise EditFailed("document version mismatch")
            await self.do_part(part)

    def create(self, uri: str, options: dict[str, Any]) -> None:
        super().create(uri, options if options.get("ignoreIfExists") else {"overwrite": True})

    async def rename(self, old_uri: str, new_uri: str) -> None:
        await self.ask_before_rename(old_uri, new_uri)
        await super().rename(old_uri, new_uri)

    def move(self, old: Path, new: Path) -> None:
        if not new.parent.is_dir():
            raise EditFailed("No such file or directory (os error 2)")
        super().move(old, new)


class Emacs(FakeEditor):
    """A file whose line ends are all CRLF is shown without them."""

    def shown(self, data: bytes) -> str:
        text = super().shown(data)
        return text.replace("\r\n", "\n") if has_crlf_alone(text) else text

    def written(self, buffer: Buffer, before: bytes) -> bytes:
        data = super().written(buffer, before)
        return data.replace(b"\n", b"\r\n") if has_crlf_alone(before.decode()) else data


class Eglot(Emacs):
    """Lists no file operation; knows the keys of the protocol and no others; a stale edit is an error."""

    capabilities_name = "eglot"

    async def apply_edit(self, params: Any) -> Any:  # type: ignore[override]
        if unknown := set(params) - {"label", "edit"}:
            raise RespondError(-32603, f"unknown keys {sorted(unknown)}")
        return await super().apply_edit(params)

    async def do_part(self, part: dict[str, Any]) -> None:
        if "kind" in part:
            raise RespondError(-32603, "wrong-type-argument")
        await super().do_part(part)

    def refuse(self, reason: str) -> Any:
        raise RespondError(-32603, reason)


class OldEglot(Eglot):
    """Eglot 1.9: a file operation is "applied" and not done."""

    capabilities_name = "eglot-1.9"

    async def do_part(self, part: dict[str, Any]) -> None:
        if "kind" not in part:
            await super().do_part(part)


class LspMode(Emacs):
    """A stale edit is an error."""

    capabilities_name = "lsp-mode"

    def refuse(self, reason: str) -> Any:
        raise RespondError(-32603, reason)


class Ale(FakeEditor):
    """Says that it applies no edits; answers no request at all."""

    capabilities_name = "ale"
    questions = "ignored"

    def answer_question(self, params: Any) -> Any:
        return NEVER


class ToldAle(Ale):
    """The setting `client.appliesEdits` is on: the edit is applied, and never answered."""

    async def apply_edit(self, params: Any) -> Any:  # type: ignore[override]
        await super().apply_edit(params)
        return NEVER


class Preview(VsCode):
    """A preview in which a person ticked only the first change of each file, then said Apply: "applied"."""

    n_ticked = 1

    def edit_text(self, uri: str, edits: list[dict[str, Any]]) -> None:
        if self.n_ticked:
            super().edit_text(uri, edits[: self.n_ticked])


class UntickedPreview(Preview):
    """Nothing was ticked."""

    n_ticked = 0


class ShownDiff(Eglot):
    """Set to show a diff: "applied", and nothing is done."""

    async def apply_parts(self, parts: Sequence[dict[str, Any]]) -> None:
        await asyncio.sleep(0)


FAKES: dict[str, type[FakeEditor]] = {
    kind.capabilities_name: kind for kind in (VsCode, Neovim, OldNeovim, Helix, Eglot, OldEglot, LspMode, Ale)
}


class NeovimLines:
    """A buffer as Neovim holds it: lines, and whether the last is ended."""

    def __init__(self, text: str) -> None:
        self.is_ended = text.endswith("\n")
        self.lines = text.removesuffix("\n").split("\n")

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + ("\n" if self.is_ended else "")

    def edit(self, edits: list[dict[str, Any]], encoding: str) -> None:
        """The last edit first. What reaches behind the last line leaves no line there; what begins there does."""
        reached_end = False
        for _, edit in sorted(enumerate(edits), key=_place_of_edit, reverse=True):
            start, end = edit["range"]["start"], edit["range"]["end"]
            new = re.sub("\r\n?", "\n", edit["newText"]).split("\n")
            if start["line"] >= len(self.lines):
                self.lines += new
                continue
            last = min(end["line"], len(self.lines) - 1)
            head = self.lines[start["line"]][: column(self.lines[start["line"]], start["character"], encoding)]
            tail = self.lines[last][column(self.lines[last], end["character"], encoding) :]
            if end["line"] >= len(self.lines):
                tail, reached_end = "", True
            new[0], new[-1] = head + new[0], new[-1] + tail
            self.lines[start["line"] : last + 1] = new
        if reached_end and self.lines[-1] == "" and len(self.lines) > 1:
            self.lines.pop()


def _place_of_edit(numbered: tuple[int, dict[str, Any]]) -> tuple[int, int, int]:
    start = numbered[1]["range"]["start"]
    return start["line"], start["character"], numbered[0]


def column(line: str, character: int, encoding: str) -> int:
    """The index in a line of a column in units."""
    codec = _WIDTH[encoding]
    width = len("a".encode(codec))
    return len(line.encode(codec)[: character * width].decode(codec, "ignore"))


def change_between(old: str, new: str, encoding: str) -> dict[str, Any]:
    """One content change, as small as whole characters allow, as editors send it."""
    lo = 0
    while lo < min(len(old), len(new)) and old[lo] == new[lo]:
        lo += 1
    tail = 0
    while tail < min(len(old), len(new)) - lo and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    if lo and old[lo - 1] == "\r":  # never between the two of a line end
        lo -= 1
    if tail and old[len(old) - tail] == "\n":
        tail -= 1
    span = {"start": position(old[:lo], encoding), "end": position(old[: len(old) - tail], encoding)}
    return {"range": span, "text": new[lo : len(new) - tail]}


def position(before: str, encoding: str) -> dict[str, int]:
    """The position of the end of a text."""
    lines = re.split(r"\r\n|\n|\r", before)
    codec = _WIDTH[encoding]
    return {"line": len(lines) - 1, "character": len(lines[-1].encode(codec)) // len("a".encode(codec))}


def uniform(text: str) -> str:
    """The text with the line end that most of its lines have."""
    n_lines, n_crlf = len(re.findall(r"\r\n|\n|\r", text)), text.count("\r\n")
    return re.sub(r"\r\n|\n|\r", "\r\n" if n_crlf > n_lines / 2 else "\n", text)


def has_crlf_alone(text: str) -> bool:
    return set(re.findall(r"\r\n|\n|\r", text)) == {"\r\n"}
