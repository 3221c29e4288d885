"""From texts to WorkspaceEdits: minimal line edits that never overlap, in the form that the client takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.changes.lines import line_edits
from lsp_server.capabilities import Capabilities
from lsp_server.positions import Encoding, n_units, split_lines

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DocumentEdit:
    """The edits of one document. `version` is that of the open document they were made for, None for a closed one."""

    uri: str
    version: int | None
    edits: tuple[JsonObject, ...]


def text_edits(old: str, new: str, encoding: Encoding) -> tuple[JsonObject, ...]:
    """The TextEdits that make `new` of `old`, whole lines each, in order.

    Lines added at the end take the last line with them: an edit that begins behind it leaves an extra blank line in
    Neovim (measured with 0.11.4).
    """
    old_lines, new_lines = split_lines(old), split_lines(new)
    made: list[JsonObject] = []
    for edit in line_edits(old_lines, new_lines):
        n_before = 1 if 0 < edit.old_lo == len(old_lines) - 1 and not old_lines[-1] else 0
        if edit.old_hi < len(old_lines):
            end = {"line": edit.old_hi, "character": 0}
        else:  # the last line has no end: up to the end of the text
            end = {"line": len(old_lines) - 1, "character": n_units(old_lines[-1], encoding)}
        start = {"line": edit.old_lo - n_before, "character": 0}
        text = "".join(new_lines[edit.new_lo - n_before : edit.new_hi])
        made.append({"range": {"start": start, "end": end}, "newText": text})
    return tuple(made)


def first_text(text: str) -> tuple[JsonObject, ...]:
    """The edit that fills a file just created. The range 0:0-1:0 is right in Neovim, VS Code and Helix (measured);
    0:0-0:0 leaves an extra blank line in Neovim."""
    span = {"start": {"line": 0, "character": 0}, "end": {"line": 1, "character": 0}}
    return ({"range": span, "newText": text},)


def workspace_edit(documents: Sequence[DocumentEdit], capabilities: Capabilities) -> JsonObject:
    """Text edits of existing files, with versions where the client takes document changes."""
    if not capabilities.document_changes:
        return {"changes": {document.uri: list(document.edits) for document in documents}}
    return {
        "documentChanges": [
            {
                "textDocument": {"uri": document.uri, "version": document.version},
                "edits": list(document.edits),
            }
            for document in documents
        ]
    }


def create_edit(uri: str) -> JsonObject:
    """Create an empty file. Without these options Neovim and Helix empty a file that is there (measured)."""
    options = {"overwrite": False, "ignoreIfExists": True}
    return {"documentChanges": [{"kind": "create", "uri": uri, "options": options}]}


def rename_edit(old_uri: str, new_uri: str) -> JsonObject:
    """Rename a file, never over another."""
    options = {"overwrite": False, "ignoreIfExists": False}
    return {"documentChanges": [{"kind": "rename", "oldUri": old_uri, "newUri": new_uri, "options": options}]}


def delete_edit(uri: str) -> JsonObject:
    """Delete one file."""
    options = {"recursive": False, "ignoreIfNotExists": True}
    return {"documentChanges": [{"kind": "delete", "uri": uri, "options": options}]}
