"""Edits that an editor applied to another text than they were made for, and how to put that right.

Neovim counts the versions of a document from 0 and checks no edit for version 0 (measured with 0.11.4): text typed
in the moment in which an edit arrives shifts it, and a line of the user's is overwritten. Clients that take no
versions do the same. We see every text that the document had, so we can tell, and mend it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.changes.merge import merge
from lsp_server.positions import Encoding, replace_range, split_lines


def with_edits(text: str, edits: Sequence[dict[str, Any]], encoding: Encoding) -> str:
    """The text that a client makes of our edits: they are in order and never overlap."""
    lines = split_lines(text)
    for edit in reversed(edits):
        start, end = edit["range"]["start"], edit["range"]["end"]
        positions = (start["line"], start["character"]), (end["line"], end["character"])
        replace_range(lines, *positions, edit["newText"], encoding)
    return "".join(lines)


def find_misapplied(
    shown: str, edits: Sequence[dict[str, Any]], history: Sequence[str], encoding: Encoding
) -> tuple[str, str] | None:
    """The texts before and after an edit, made for `shown`, that was applied to another text of `history`."""
    for at, before in enumerate(history):
        if before == shown:
            continue
        after = with_edits(before, edits, encoding)
        if after != before and after in history[at + 1 :]:
            return before, after
    return None


def mended(shown: str, target: str, before: str, after: str, now: str) -> tuple[str, bool] | None:
    """What the text should be now, and whether the proposal is in it; None where that cannot be told.

    Where the proposal and what was typed meet in the same lines, the proposal is taken out again.
    """
    wanted = _merge(shown, before, target)
    is_in = wanted is not None
    final = _merge(after, now, wanted if wanted is not None else before)
    return None if final is None else (final, is_in)


def _merge(base: str, theirs: str, ours: str) -> str | None:
    data = merge(*(text.encode("utf-8", "surrogatepass") for text in (base, theirs, ours))).data
    return None if data is None else data.decode("utf-8", "surrogatepass")
