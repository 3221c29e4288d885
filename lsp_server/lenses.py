"""What stands over the hunks of a review in an editor: apply it, discard it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agent.changes.changeset import printable
from agent.changes.proposal import is_never_applied
from agent.types import FileChange
from lsp_server.positions import split_lines

JsonObject = dict[str, Any]

_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@ hunk (\d+)\r?\n?")


def lenses(text: str, run_id: str, open_hunks: Mapping[int, FileChange]) -> list[JsonObject]:
    """The code lenses of a review document, as its reader sees it.

    `open_hunks`: those that are neither in place nor discarded, with their files. Others that an old text shows have
    no lens. A file that is applied only where it is named is named by its own lens, which says so.
    """
    run = {"runId": run_id}
    made = [_lens(0, "Apply all", "frog.apply", run), _lens(0, "Discard", "frog.discard", run)]
    for line, number in _hunk_lines(text):
        change = open_hunks.get(number)
        if change is None:
            continue
        one = {**run, "hunks": [number]}
        if change.applied_by_default:
            made.append(_lens(line, f"Apply hunk {number}", "frog.apply", one))
        elif not is_never_applied(change):
            flags = ", ".join(dict.fromkeys(flag.code for flag in change.flags))
            named = {**one, "files": [printable(change.path)]}
            made.append(_lens(line, f"Apply hunk {number} in spite of: {flags}", "frog.apply", named))
        made.append(_lens(line, f"Discard hunk {number}", "frog.discard", one))
    return made


def _hunk_lines(text: str) -> Iterator[tuple[int, int]]:
    """The lines of the headers, counted from 0 as LSP does, with the numbers of their hunks, each once."""
    seen: set[int] = set()
    for line, content in enumerate(split_lines(text)):
        found = _HUNK.fullmatch(content)
        if found and int(found[1]) not in seen:
            seen.add(int(found[1]))
            yield line, int(found[1])


def _lens(line: int, title: str, command: str, argument: JsonObject) -> JsonObject:
    start = {"line": line, "character": 0}
    return {
        "range": {"start": start, "end": start},
        "command": {"title": title, "command": command, "arguments": [argument]},
    }
