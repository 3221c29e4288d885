"""Editors that behave as the real ones were seen to, with the capabilities that the real ones sent.

A small class for what each does otherwise than `FakeEditor`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.editor_text import NeovimLines, has_crlf_alone, uniform
from tests.e2e.fake_editor import Buffer, EditFailed, FakeEditor
from tests.e2e.lsp_client import NEVER, RespondError, to_path


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
