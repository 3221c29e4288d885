"""Text of files, commands and models made safe to show: it never moves a cursor, hides itself or runs backwards."""

from __future__ import annotations

import re

_TAB = "    "
# C0, DEL, C1, bidirectional controls, invisible format characters, lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    r"""`text` with every control character written as an escape (`\x1b`, `\u202e`). Newlines stay, tabs become blanks,
    and a carriage return before a newline is dropped."""
    return _UNSAFE.sub(_escape, text.replace("\r\n", "\n").replace("\t", _TAB))


def visible_line(text: str, n_most: int | None = None) -> str:
    """The first line of `text` that is not blank, made visible, at most `n_most` characters long."""
    line = next((line for line in visible(text).split("\n") if line.strip()), "").rstrip()
    return line if n_most is None or len(line) <= n_most else line[: max(0, n_most - 1)] + "…"


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
