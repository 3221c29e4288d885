r"""Positions of LSP over Python strings, in utf-8, utf-16 and utf-32 units.

Lines end at `\n`, `\r\n` and `\r` only: never at form feed, U+0085 or U+2028, whatever `str.splitlines` says.
A text always has one line more than line ends; the last is empty where the text ends in one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

Encoding = Literal["utf-8", "utf-16", "utf-32"]
ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")


def split_lines(text: str) -> list[str]:
    """The lines with their ends; joining gives `text` again. At least one line, the last without an end."""
    if "\r" not in text:  # five times as fast as the pattern
        *ended, last = text.split("\n")
        return [f"{line}\n" for line in ended] + [last]
    lines = _LINE.findall(text)
    # The pattern matches once more at the end of a text that does not end in a line end.
    if len(lines) > 1 and not lines[-1] and not lines[-2].endswith(("\r", "\n")):
        lines.pop()
    return lines


def without_end(line: str) -> str:
    r"""The line without its `\n`, `\r\n` or `\r`."""
    if line.endswith("\r\n"):
        return line[:-2]
    return line[:-1] if line.endswith(("\n", "\r")) else line


def n_units(text: str, encoding: Encoding) -> int:
    """How many units of `encoding` the text takes."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-16":
        return len(text) + sum(char > "\uffff" for char in text)
    return len(text.encode("utf-8", "surrogatepass"))


def index_in_line(line: str, character: int, encoding: Encoding) -> int:
    """The index into `line` of a column in units: past the end gives the end of the line's text, before
    its line end; inside a character gives that character's start."""
    content = without_end(line)
    if encoding == "utf-32" or content.isascii():
        return max(0, min(character, len(content)))
    at = 0
    for index, char in enumerate(content):
        width = _width(char, encoding)
        if at + width > character:
            return index
        at += width
    return len(content)


def _width(char: str, encoding: Encoding) -> int:
    code = ord(char)
    if encoding == "utf-16":
        return 2 if code > 0xFFFF else 1
    return 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4


def locate(lines: Sequence[str], line: int, character: int, encoding: Encoding) -> tuple[int, int]:
    """The place (line, index) in `lines` of a position; out of range is clamped to the text."""
    if line < 0:
        return 0, 0
    if line >= len(lines):
        return len(lines) - 1, len(without_end(lines[-1]))
    return line, index_in_line(lines[line], character, encoding)


def replace_range(
    lines: list[str], start: tuple[int, int], end: tuple[int, int], new_text: str, encoding: Encoding
) -> None:
    r"""Replace from position `start` to position `end` (line, column in units) in place.

    An end before the start counts as the start. Costs what the change costs, not what the text holds. A `\r` and
    a `\n` that come together become one line end.
    """
    first, first_index = locate(lines, *start, encoding)
    last, last_index = locate(lines, *end, encoding)
    if (last, last_index) < (first, first_index):
        last, last_index = first, first_index
    piece = lines[first][:first_index] + new_text + lines[last][last_index:]
    if piece.startswith("\n") and first > 0 and lines[first - 1].endswith("\r"):
        first -= 1
        piece = lines[first] + piece
    if piece.endswith("\r") and last + 1 < len(lines) and lines[last + 1].startswith("\n"):
        last += 1
        piece += lines[last]
    made = split_lines(piece)
    if last + 1 < len(lines) and not made[-1]:
        made.pop()  # the piece ends in a line end: what follows is already a line of its own
    lines[first : last + 1] = made
