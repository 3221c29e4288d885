"""The exact replacement of one piece of a file by another, changing no byte outside it.

Standard library only, and of our own code only `textfile`: it is shipped into the jail with it, so what is
slow to import (difflib) is imported when it is needed.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from typing import NamedTuple

from agent.changes.textfile import decode, encode_piece, line_ends, normalise, split_lines, usual_line_end

_MAX_HELP_LINES = 9
_MAX_HELP_CHARS = 200
_MAX_SEARCHED_LINES = 20_000
_MAX_LINE_NUMBERS = 30
_MAX_ALIGNED_LINES = 2_000  # aligning costs the square of this; only spans of mixed line ends pay it
_LINE_NUMBER = re.compile(r"^ *\d+\. ?", re.MULTILINE)


class EditOutcome(NamedTuple):
    """The new bytes of the file, and how many places changed."""

    data: bytes
    n_replacements: int


def edit(data: bytes, old: str, new: str, replace_all: bool = False) -> EditOutcome:
    """Replace `old` by `new`, matching with every line end read as a line feed.

    Only the matched spans change. A line of `new` that was in the span keeps its line end; new lines take
    that of the line where the match begins, or the usual one of the file. Raises ValueError with the
    words of the tool's contract, and after its first line up to ten that help.
    """
    if not old:
        raise ValueError("old_string must be non-empty")
    old, new = normalise(old), normalise(new)
    if old == new:
        raise ValueError("old_string and new_string are the same")
    file = decode(data)
    text = normalise(file.text)
    starts = list(_all_starts(text, old))
    if not starts:
        raise ValueError("\n".join(["old_string was not found", *_nearest(text, old)]))
    if len(starts) > 1 and not replace_all:
        raise ValueError(
            f"old_string matched {len(starts)} times; set replace_all=true or use a more specific old_string\n"
            + _where(text, starts)
        )
    pieces: list[str] = []  # kept, matched, kept, matched, …, kept
    position, end = _Positions(file.text), 0
    for start in starts:
        if start < end:
            continue  # it overlaps the one before
        kept_from, matched_from = position(end), position(start)
        end = start + len(old)
        pieces += [file.text[kept_from:matched_from], file.text[matched_from : position(end)]]
    pieces.append(file.text[position(end) :])
    encoded = [encode_piece(piece, file.encoding) for piece in pieces]
    if file.mark + b"".join(encoded) != data:
        raise ValueError(f"a part of the file cannot be changed alone in its encoding, {file.encoding}")
    line_end, at = _LineEnds(file.text), 0
    for index, piece in enumerate(pieces):
        if index % 2:
            ended = _with_ends(new, old, piece, line_end.after(at)) if "\n" in new else new
            encoded[index] = encode_piece(ended, file.encoding)
        at += len(piece)
    return EditOutcome(file.mark + b"".join(encoded), len(pieces) // 2)


def _all_starts(text: str, piece: str) -> Iterator[int]:
    """Where `piece` begins, overlapping ones too."""
    start = text.find(piece)
    while start >= 0:
        yield start
        start = text.find(piece, start + 1)


class _Positions:
    """From positions in the normalised text to those in the text itself."""

    def __init__(self, text: str) -> None:
        # the k-th CRLF stands one place earlier in the normalised text for each one before it
        self._crlf = [found.start() - k for k, found in enumerate(re.finditer("\r\n", text))]

    def __call__(self, position: int) -> int:
        return position + bisect.bisect_left(self._crlf, position)


class _LineEnds:
    """Which end the line at a position of the text has."""

    def __init__(self, text: str) -> None:
        self._ends = line_ends(text)
        self._starts = [found.start() for found in re.finditer(r"\r\n|\r|\n", text)]
        self._usual = usual_line_end(text)

    def after(self, position: int) -> str:
        """The end of the line that holds `position`, the usual one of the text where it has none."""
        index = bisect.bisect_left(self._starts, position)
        return self._ends[index] if index < len(self._ends) else self._usual


def _with_ends(new: str, old: str, matched: str, first_end: str) -> str:
    """`new` with real line ends: lines that stay keep theirs, the others take `first_end`."""
    ends = line_ends(matched)
    if set(ends) <= {first_end} or len(ends) > _MAX_ALIGNED_LINES:
        return new.replace("\n", first_end)
    import difflib

    old_lines, new_lines = old.split("\n"), new.split("\n")
    chosen = [first_end] * (len(new_lines) - 1)
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    for _, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        for i, j in zip(range(old_from, old_to), range(new_from, new_to), strict=False):
            if i < len(ends) and j < len(chosen):
                chosen[j] = ends[i]
    return "".join(line + end for line, end in zip(new_lines, [*chosen, ""], strict=True))


def _where(text: str, starts: list[int]) -> str:
    numbers = []
    line, at = 1, 0
    for start in starts[:_MAX_LINE_NUMBERS]:
        line += text.count("\n", at, start)
        at = start
        numbers.append(str(line))
    more = f" and {len(starts) - len(numbers)} more" if len(starts) > len(numbers) else ""
    return f"The matches begin in lines {', '.join(numbers)}{more}."


def _nearest(text: str, old: str) -> list[str]:
    """Up to ten lines of help: why it may not match, and the lines of the file that are most like it."""
    without_numbers = _LINE_NUMBER.sub("", old)
    if without_numbers.strip() and without_numbers in text:
        return ["old_string begins its lines with the numbers that Read shows; leave them out."]
    wanted = [line.strip() for line in old.split("\n")]
    first = next((i for i, line in enumerate(wanted) if line), None)
    lines = [line.rstrip("\n") for line in split_lines(text)][:_MAX_SEARCHED_LINES]
    if first is None or not lines:
        return []
    index, likeness = _most_like(lines, wanted[first])
    if likeness < 0.6:
        return []
    start = max(0, index - first)
    shown = lines[start : start + min(len(wanted), _MAX_HELP_LINES)]
    same = [line.strip() for line in shown] == wanted[: len(shown)]
    why = "These lines differ in white space alone:" if same else "The nearest lines are:"
    return [why, *(f"{start + i}. {line[:_MAX_HELP_CHARS]}" for i, line in enumerate(shown, 1))]


def _most_like(lines: list[str], wanted: str) -> tuple[int, float]:
    """The index of the line most like `wanted`, and how much (0 to 1)."""
    import difflib

    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[:_MAX_HELP_CHARS])
    best, likeness = 0, 0.0
    for index, line in enumerate(lines):
        stripped = line.strip()
        if stripped == wanted:
            return index, 1.0
        matcher.set_seq1(stripped[:_MAX_HELP_CHARS])
        if matcher.real_quick_ratio() > likeness and matcher.quick_ratio() > likeness:
            ratio = matcher.ratio()
            if ratio > likeness:
                best, likeness = index, ratio
    return best, likeness
