"""The issue text that the model gets: from diagnostics, a comment under the cursor, a selection, or free text.

Files are named relative to the workspace; a diagnostic is quoted with its code and source and the lines around it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lsp_server.capabilities import dig
from lsp_server.positions import Encoding, locate, without_end

N_AROUND = 3
MAX_SELECTED_LINES = 200
MAX_TITLE = 60
_MARKER = re.compile(r"\b(?:TODO|FIXME|XXX)\b.*")
_COMMENT_END = re.compile(r"\s*(?:\*/|-->|\"\"\"|''')\s*$")
_SEVERITIES = {1: "error", 2: "warning", 3: "information", 4: "hint"}


def short(text: str, n_most: int = MAX_TITLE) -> str:
    """One line of a message, for a title."""
    line = " ".join(text.split())
    return line if len(line) <= n_most else line[: n_most - 1].rstrip() + "…"


def message_of(diagnostic: Any) -> str:
    """The words of a diagnostic; markup is taken as its text."""
    message = dig(diagnostic, "message")
    if isinstance(message, dict):
        message = message.get("value")
    return message if isinstance(message, str) else ""


def marker_at(lines: Sequence[str], line: int) -> str | None:
    """The `TODO`, `FIXME` or `XXX` comment on a line."""
    if not 0 <= line < len(lines):
        return None
    found = _MARKER.search(without_end(lines[line]))
    return _COMMENT_END.sub("", found[0]).strip() if found else None


def from_diagnostics(relative: str, lines: Sequence[str], diagnostics: Sequence[Any]) -> str:
    """An issue that quotes diagnostics and the code that they are about."""
    if len(diagnostics) == 1:
        line = _line(dig(diagnostics[0], "range", "start"))
        head = f"Fix in {relative}, line {line + 1}: {short(message_of(diagnostics[0]))}"
    else:
        head = f"Fix {len(diagnostics)} problems in {relative}"
    parts = [head]
    for diagnostic in diagnostics:
        line = _line(dig(diagnostic, "range", "start"))
        origin = [str(v) for v in (dig(diagnostic, "source"), _code(diagnostic)) if v not in (None, "")]
        severity = _SEVERITIES.get(dig(diagnostic, "severity") or 0, "problem")
        told = f" ({' '.join(origin)})" if origin else ""
        parts.append(f"{relative}, line {line + 1}: {severity}{told}: {message_of(diagnostic)}")
        parts.append(quote_lines(relative, lines, line, _line(dig(diagnostic, "range", "end"))))
    return "\n\n".join(parts)


def from_place(relative: str, lines: Sequence[str], span: Any, encoding: Encoding) -> str:
    """An issue without words: the comment under the cursor, the selected text, or the lines there."""
    start, end = _position(dig(span, "start")), _position(dig(span, "end"))
    marker = marker_at(lines, start[0])
    if marker is not None and end[0] == start[0]:
        return f"{relative}, line {start[0] + 1} has this comment: {marker}\n\nDo what it asks for.\n\n" + quote_lines(
            relative, lines, start[0], end[0]
        )
    selected = _selected(lines, start, end, encoding)
    if selected.strip():
        return f"Find and fix the problem in what is selected in {relative}, from line {start[0] + 1}:\n\n{selected}"
    return f"Find and fix the problem in {relative} at line {start[0] + 1}.\n\n" + quote_lines(
        relative, lines, start[0], end[0]
    )


def quote_lines(relative: str, lines: Sequence[str], first: int, last: int) -> str:
    """Lines `first` to `last` (from 0) with some around them, numbered as Read does."""
    if not any(lines):
        return f"({relative} is empty)"
    first, last = min(first, len(lines) - 1), min(max(first, last), len(lines) - 1)
    lo, hi = max(0, first - N_AROUND), min(len(lines), last + N_AROUND + 1)
    return "\n".join([relative, *(f"{at + 1}. {without_end(lines[at])}" for at in range(lo, hi))])


def _selected(lines: Sequence[str], start: tuple[int, int], end: tuple[int, int], encoding: Encoding) -> str:
    first, last = locate(lines, *start, encoding), locate(lines, *end, encoding)
    if last <= first:
        return ""
    if first[0] == last[0]:
        return lines[first[0]][first[1] : last[1]]
    chosen = [lines[first[0]][first[1] :], *lines[first[0] + 1 : last[0]], lines[last[0]][: last[1]]]
    return "".join(chosen[:MAX_SELECTED_LINES])


def _code(diagnostic: Any) -> Any:
    code = dig(diagnostic, "code")
    return code.get("value") if isinstance(code, dict) else code


def _line(position: Any) -> int:
    return _position(position)[0]


def _position(position: Any) -> tuple[int, int]:
    line, character = dig(position, "line"), dig(position, "character")
    return (
        line if isinstance(line, int) and line >= 0 else 0,
        character if isinstance(character, int) and character >= 0 else 0,
    )
