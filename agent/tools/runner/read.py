"""Read: a text file as numbered lines."""

from __future__ import annotations

from typing import Any

from agent.changes.textfile import show, split_lines
from agent.tools.runner.output import cut
from agent.tools.runner.places import Places

MAX_FILE_BYTES = 64 << 20
MAX_CHARS = 20_000


def read(places: Places, arguments: dict[str, Any]) -> str:
    """`file_path`, `offset` (first line, from 1), `limit` (most lines; 0 or less: all)."""
    place = places.resolve(arguments["file_path"])
    lines = split_lines(show(place.view.read(place.parts, MAX_FILE_BYTES)))
    first = max(1, arguments.get("offset", 1))
    limit = arguments.get("limit", 0)
    chosen = lines[first - 1 :] if limit <= 0 else lines[first - 1 : first - 1 + limit]
    numbered = (f"{number}. {line.rstrip(_LINE_END)}" for number, line in enumerate(chosen, first))
    return cut("\n".join([place.shown, *numbered]), MAX_CHARS)


_LINE_END = "\r\n"
