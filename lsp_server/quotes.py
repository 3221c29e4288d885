"""What an issue quotes: numbered lines, and foreign text made visible, cut, and without the paths of this machine.

Nothing is left out silently: every cut is said where it was made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from agent.visible import visible_diff
from lsp_server.positions import without_end

N_AROUND = 3
MAX_LINE_CHARS = 2_000
MAX_SPAN_LINES = 120
"""The most lines that are quoted of one place."""
_MAX_LINES_UP = 2_000
_DEFINITION = re.compile(
    r"(?:export\s+|pub(?:\([\w:]+\))?\s+|public\s+|private\s+|protected\s+|static\s+|default\s+|async\s+|unsafe\s+)*"
    r"(?:def|class|function|func|fn|impl|struct|trait|interface|module|sub|defmodule|defp)\b"
)

Span = tuple[int, int]
"""The first and the last line of a place, both from 0."""


def size_of(text: str) -> int:
    """The bytes that a text takes in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def plain(text: str) -> str:
    r"""Foreign text as the model and a person may see it: control characters as escapes, `\n` as the only line end."""
    return visible_diff(text.replace("\r\n", "\n"))


def cut_line(line: str, n_most: int = MAX_LINE_CHARS) -> str:
    """The beginning of a long line, and how much is missing."""
    return line if len(line) <= n_most else f"{line[:n_most]} [{len(line) - n_most:,} more characters are left out]"


def cut_middle(text: str, n_bytes: int) -> str:
    """The beginning and the end of a long text, and how much is missing between them."""
    size = size_of(text)
    if size <= n_bytes:
        return text
    note = "\n[… {:,} bytes of {:,} are left out here …]\n"
    room = max(0, n_bytes - len(note) - 24)
    data = text.encode("utf-8", "surrogatepass")
    head, tail = (
        part.decode("utf-8", "ignore") for part in (data[: room * 3 // 4], data[len(data) - (room - room * 3 // 4) :])
    )
    return head + note.format(size - size_of(head) - size_of(tail), size) + tail


def without_root(text: str, roots: Iterable[str]) -> str:
    """The text with absolute paths below a root made relative to it, compared by components."""
    for root in sorted({root.rstrip("/") for root in roots} - {""}, key=len, reverse=True):
        if root in text:
            pattern = rf"(?<![\w.~/-])(?:file://(?:localhost)?)?{re.escape(root)}(?:/+(?=[^\s/\"'`):,;\]])|(?=/?(?:[\s\"'`):,;\]]|$)))"
            text = re.sub(pattern, lambda found: "" if found[0].endswith("/") else ".", text)
    return text


def enclosing_definition(lines: Sequence[str], line: int) -> int | None:
    """The line of the function or class that holds a line, found by indentation; None where there is none near."""
    if not 0 <= line < len(lines):
        return None
    depth = _depth(lines[line])
    for at in range(line, max(-1, line - _MAX_LINES_UP), -1):
        content = lines[at].strip()
        if not content or content[0] in ")]}" or (at != line and _depth(lines[at]) >= depth > 0):
            continue
        if _DEFINITION.match(content):
            return at if at != line else None
        if _depth(lines[at]) == 0:
            return None
        depth = min(depth or MAX_LINE_CHARS, _depth(lines[at]))
    return None


def _depth(line: str) -> int:
    content = line.lstrip(" \t")
    return len(line[: len(line) - len(content)].expandtabs(4)) if content.strip() else MAX_LINE_CHARS


def merged(spans: Iterable[Span], n_lines: int, n_around: int = N_AROUND) -> list[Span]:
    """The spans with the lines around them, in order, inside the text; those that touch are one."""
    found: list[Span] = []
    for first, last in sorted(spans):
        first, last = min(max(first, 0), n_lines - 1), min(max(first, last, 0), n_lines - 1)
        lo, hi = max(0, first - n_around), min(n_lines - 1, last + n_around)
        if found and lo <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], hi))
        else:
            found.append((lo, hi))
    return found


def quote(relative: str, lines: Sequence[str], spans: Iterable[Span], n_bytes: int, n_around: int = N_AROUND) -> str:
    """The places of a file with the lines around them, numbered as the Read tool does, in at most `n_bytes`."""
    if not any(lines):
        return f"({relative} is empty)"
    made, used, left_out = [relative], size_of(relative), 0
    before = None
    n_lines = len(lines) - (not lines[-1])  # as Read counts: what follows the last line end is no line
    for number, line in _numbered(lines, merged(spans, n_lines, n_around)):
        if line is None:
            left_out += 1
            continue
        gap = "…\n" if before is not None and number != before + 1 else ""
        text = f"{gap}{number}. {line}"
        if used + size_of(text) + 1 > n_bytes - 80:
            left_out += 1
            continue
        before, used = number, used + size_of(text) + 1
        made.append(text)
    if left_out:
        made.append(f"[{left_out:,} more lines are left out: read the file]")
    return "\n".join(made)


def _numbered(lines: Sequence[str], spans: Sequence[Span]) -> Iterator[tuple[int, str | None]]:
    """Line numbers (from 1) and texts; None for a line of a place that is too long."""
    for first, last in spans:
        for at in range(first, last + 1):
            too_far = at - first >= MAX_SPAN_LINES
            yield at + 1, None if too_far else cut_line(plain(without_end(lines[at])))
