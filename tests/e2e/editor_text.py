"""Texts and positions as editors have them. Shares no code with the server, so that each can judge the other."""

from __future__ import annotations

import re
from typing import Any

_WIDTH = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}


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
