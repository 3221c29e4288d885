"""The issue text that the model gets: from diagnostics, a comment, a selection, a test's output, a document, or words.

Files are named relative to the workspace. Whatever a client sends gives a text of at most `MAX_ISSUE_BYTES`, which
says what was left out of it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent.visible import visible
from lsp_server.capabilities import dig
from lsp_server.comments import Marker, marker_at
from lsp_server.failures import Failure, describe_failure, recognise
from lsp_server.positions import Encoding, locate, without_end
from lsp_server.quotes import Span, cut_line, cut_middle, enclosing_definition, plain, quote, size_of, without_root

MAX_ISSUE_BYTES = 16 * 1024
"""Some 4,000 tokens of the Qwen3.5 tokenizer: an eighth of the smallest context that the model is good with (32 K)."""
MAX_LISTED = 50
MAX_MESSAGE_CHARS = 1_000
MAX_RELATED = 5
MAX_TITLE = 60
_MAX_UINTEGER = 2**31 - 1  # of LSP
_QUOTE_BYTES = 6 * 1024
_SEVERITIES = {1: "error", 2: "warning", 3: "information", 4: "hint"}
_FRONT_MATTER = re.compile(r"\A\ufeff?(?P<mark>---|\+\+\+)[ \t]*\n(?:.*\n)*?(?P=mark)[ \t]*(?:\n|\Z)")


@dataclass(frozen=True, slots=True)
class Source:
    """The file that an issue is about, as the user sees it, and what names things in the workspace.

    `roots` are the absolute paths of the workspace; `name_of` gives the path of a URI relative to it, or words for a
    file outside; `is_file` says whether a relative path is a file in it.
    """

    relative: str
    lines: Sequence[str]
    encoding: Encoding
    language_id: str = ""
    roots: tuple[str, ...] = ()
    name_of: Callable[[str], str] = str
    is_file: Callable[[str], bool] = lambda _: False


def short(text: str, n_most: int = MAX_TITLE) -> str:
    """The beginning of a message on one line of at most `n_most` columns, for a title."""
    line = " ".join(visible(text.lstrip()[: 4 * n_most]).split())
    columns = 0
    for at, char in enumerate(line):
        columns += 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if columns > n_most:
            return line[: max(0, at - 1)].rstrip() + "…"
    return line


def message_of(diagnostic: Any) -> str:
    """The words of a diagnostic; markup is taken as its text."""
    message = dig(diagnostic, "message")
    if isinstance(message, dict):
        message = message.get("value")
    return message if isinstance(message, str) else ""


def is_markdown(name: str, language_id: str = "") -> bool:
    """Whether a document is Markdown: what it says is the issue."""
    return language_id.lower() == "markdown" or name.lower().endswith((".md", ".markdown"))


def bounded(text: str, n_bytes: int = MAX_ISSUE_BYTES) -> str:
    """Words as the model may get them: all of them, visible, and of very long ones the beginning and the end."""
    return cut_middle(plain(text).strip(), n_bytes)


def from_markdown(text: str) -> str:
    """The text of a document without its front matter; links stay as they are written."""
    return bounded(_FRONT_MATTER.sub("", text.replace("\r\n", "\n"), count=1).removeprefix("\ufeff"))


# --- diagnostics ----------------------------------------------------------------------------------------------


def from_diagnostics(source: Source, diagnostics: Sequence[Any], n_bytes: int = MAX_ISSUE_BYTES) -> str:
    """An issue that quotes diagnostics and, once, the code that they are about."""
    listed = _most_severe(diagnostics)
    if len(diagnostics) == 1:
        head = f"Fix in {source.relative}, line {_line(listed[0]) + 1}: {short(_message(source, listed[0]))}"
    else:
        head = f"Fix {len(diagnostics):,} problems in {source.relative}"
    parts, used = [head], size_of(head)
    kept: list[Any] = []
    for diagnostic in listed:
        told = _describe(source, diagnostic)
        if kept and used + size_of(told) > n_bytes - min(_QUOTE_BYTES, n_bytes // 2):
            continue
        parts.append(told)
        used += size_of(told) + 2
        kept.append(diagnostic)
    if len(kept) < len(diagnostics):
        parts.append(f"[{len(diagnostics) - len(kept):,} more problems are left out]")
    spans = [(_line(d), max(_line(d), _position(dig(d, "range", "end"))[0])) for d in kept]
    left = n_bytes - size_of("\n\n".join(parts)) - 2
    return cut_middle("\n\n".join([*parts, quote(source.relative, source.lines, spans, left)]), n_bytes)


def _most_severe(diagnostics: Sequence[Any]) -> list[Any]:
    """At most `MAX_LISTED` of them, in the order of their lines."""

    def rank(diagnostic: Any) -> int:
        severity = dig(diagnostic, "severity")
        return severity if isinstance(severity, int) and severity in _SEVERITIES else 1

    return sorted(sorted(diagnostics, key=rank)[:MAX_LISTED], key=_line)


def _describe(source: Source, diagnostic: Any) -> str:
    line = _line(diagnostic)
    told = f"{source.relative}, line {line + 1}: {_told(source, diagnostic)}"
    definition = enclosing_definition(source.lines, line)
    if definition is not None:
        code = cut_line(plain(without_end(source.lines[definition])).strip(), 200)
        told += f"\n  in line {definition + 1}: {code}"
    related = dig(diagnostic, "relatedInformation")
    related = [item for item in related if message_of(item)] if isinstance(related, list) else []
    for item in related[:MAX_RELATED]:
        uri = dig(item, "location", "uri")
        where = source.name_of(uri) if isinstance(uri, str) else source.relative
        at = _position(dig(item, "location", "range", "start"))[0] + 1
        told += f"\n  see {where}, line {at}: {_message(source, item)}"
    if len(related) > MAX_RELATED:
        told += f"\n  [{len(related) - MAX_RELATED:,} more places are left out]"
    return told


def _told(source: Source, diagnostic: Any) -> str:
    severity = dig(diagnostic, "severity")
    word = _SEVERITIES[severity] if isinstance(severity, int) and severity in _SEVERITIES else "problem"
    code = dig(diagnostic, "code")
    code = code.get("value") if isinstance(code, dict) else code
    words = [short(str(value)) for value in (dig(diagnostic, "source"), code) if isinstance(value, str | int)]
    origin = " ".join(word for word in words if word)
    return f"{word} ({origin}): {_message(source, diagnostic)}" if origin else f"{word}: {_message(source, diagnostic)}"


def _message(source: Source, diagnostic: Any) -> str:
    message = message_of(diagnostic)
    return cut_line(plain(without_root(message[: 2 * MAX_MESSAGE_CHARS], source.roots)).strip(), MAX_MESSAGE_CHARS) + (
        f" [of {len(message):,}]" if len(message) > 2 * MAX_MESSAGE_CHARS else ""
    )


# --- places ---------------------------------------------------------------------------------------------------


def from_file(relative: str) -> str:
    """An issue that only names a file."""
    return f"Find and fix the problem in {plain(relative)}."


@dataclass(frozen=True, slots=True)
class Place:
    """What there is in a range: its lines (from 0), what is selected, and the one thing that an issue is made of."""

    first: int
    last: int
    selected: str
    failure: Failure | None = None
    is_markdown: bool = False
    marker: Marker | None = None

    @property
    def is_part(self) -> bool:
        """Whether several lines are selected."""
        return self.last > self.first and bool(self.selected.strip())


def look_at(lines: Sequence[str], span: Any, encoding: Encoding, name: str, language_id: str) -> Place:
    """What a range of a document holds: a selected test's output, else Markdown, else a comment, else code."""
    first, last = lines_of(lines, span)
    selected = selected_text(lines, span, encoding)
    failure = recognise(selected) if selected else None
    if failure is not None:
        return Place(first, last, selected, failure)
    if is_markdown(name, language_id):
        return Place(first, last, selected, is_markdown=True)
    marker = marker_at(lines, first, name)
    return Place(first, last, selected, marker=marker if marker is not None and last <= marker.last else None)


def from_place(source: Source, span: Any) -> str:
    """An issue without words: a test's output, a document, a comment, the selected text, or the lines there."""
    place = look_at(source.lines, span, source.encoding, source.relative, source.language_id)
    first, last = place.first, place.last
    if place.failure is not None:
        return describe_failure(place.selected, place.failure, source.roots, source.is_file, MAX_ISSUE_BYTES)
    if place.is_markdown:
        return from_markdown("".join(source.lines[first : last + 1] if place.is_part else source.lines))
    if place.marker is not None:
        marker = place.marker
        where = f"{source.relative}, line {marker.first + 1}"
        head = f"{where} has this comment: {cut_line(plain(marker.text))}\n\nDo what it asks for."
        return _with_quote(source, head, (marker.first, marker.last))
    head = f"Find and fix the problem in {source.relative} "
    if not place.selected.strip():
        return _with_quote(source, f"{head}at line {first + 1}.", (first, first))
    if first == last:
        code = cut_line(plain(place.selected).strip())
        return _with_quote(source, f"{head}at line {first + 1}, in what is selected: {code}", (first, last))
    head += f"in what is selected, lines {first + 1} to {last + 1}."
    return _with_quote(source, head, (first, last), n_around=0)


def with_place(source: Source, words: str, span: Any) -> str:
    """A person's words, and under them the lines where the cursor or the selection is."""
    first, last = lines_of(source.lines, span)
    lines = f"lines {first + 1} to {last + 1}" if last > first else f"line {first + 1}"
    is_selected = bool(selected_text(source.lines, span, source.encoding).strip())
    where = f"{'Selected' if is_selected else 'The cursor is'} in {source.relative}, {lines}:"
    return _with_quote(source, f"{words}\n\n{where}", (first, last))


def _with_quote(source: Source, head: str, span: Span, n_around: int = 3) -> str:
    left = MAX_ISSUE_BYTES - size_of(head) - 2
    return f"{head}\n\n{quote(source.relative, source.lines, [span], left, n_around)}"


def lines_of(lines: Sequence[str], place: Any) -> Span:
    """The first and the last line (from 0) of a range, inside the text; an end at the start of a line leaves it out."""
    start, end = _position(dig(place, "start")), _position(dig(place, "end"))
    first = min(start[0], len(lines) - 1)
    last = end[0] - 1 if end[1] == 0 and end[0] > start[0] else end[0]
    return first, max(first, min(last, len(lines) - 1))


def selected_text(lines: Sequence[str], place: Any, encoding: Encoding) -> str:
    """What a range selects."""
    first = locate(lines, *_position(dig(place, "start")), encoding)
    last = locate(lines, *_position(dig(place, "end")), encoding)
    if last <= first:
        return ""
    if first[0] == last[0]:
        return lines[first[0]][first[1] : last[1]]
    return "".join([lines[first[0]][first[1] :], *lines[first[0] + 1 : last[0]], lines[last[0]][: last[1]]])


def is_range(value: Any) -> bool:
    """Whether a value is a range of LSP."""
    ends = (dig(value, end, unit) for end in ("start", "end") for unit in ("line", "character"))
    return all(isinstance(number, int) and not isinstance(number, bool) for number in ends)


def _line(diagnostic: Any) -> int:
    return _position(dig(diagnostic, "range", "start"))[0]


def _position(position: Any) -> tuple[int, int]:
    line, character = dig(position, "line"), dig(position, "character")
    return _natural(line), _natural(character)


def _natural(value: Any) -> int:
    return min(value, _MAX_UINTEGER) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
