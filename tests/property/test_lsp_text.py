"""Positions, buffers and edits for any text, against a client model that shares no code with ours."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.changes.merge import merge
from lsp_server.buffers import BufferStore
from lsp_server.edits import text_edits
from lsp_server.positions import ENCODINGS, Encoding, locate, n_units, replace_range, split_lines
from lsp_server.texts import Codec
from tests.e2e.lsp_client import edited

PIECES = ["a", "b", "x y", "é", "e\u0301", "𝄞", "\t", "\x0c", "\u2028", "\x85", "\n", "\r\n", "\r", "\ufeff", "line\n"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
NAMES = st.sampled_from(ENCODINGS)
POSITIONS = st.tuples(st.integers(0, 12), st.integers(0, 20))


def lines_by_pattern(text: str) -> list[str]:
    return re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)


@given(TEXTS)
def test_lines_join_and_end_at_three_ends_only(text: str) -> None:
    lines = split_lines(text)
    assert "".join(lines) == text
    assert lines == lines_by_pattern(text)


@given(TEXTS, NAMES)
def test_every_place_has_one_position(text: str, encoding: Encoding) -> None:
    lines = split_lines(text)
    for number, line in enumerate(lines):
        content = line.rstrip("\r\n")
        for index in range(len(content) + 1):
            assert locate(lines, number, n_units(content[:index], encoding), encoding) == (number, index)


@given(TEXTS, TEXTS, POSITIONS, POSITIONS, NAMES)
def test_a_range_is_replaced_as_in_the_client(
    text: str, new: str, start: tuple[int, int], end: tuple[int, int], encoding: Encoding
) -> None:
    start, end = sorted((start, end))
    edit: Any = {
        "range": {
            "start": {"line": start[0], "character": start[1]},
            "end": {"line": end[0], "character": end[1]},
        },
        "newText": new,
    }
    lines = split_lines(text)
    replace_range(lines, start, end, new, encoding)
    expected = edited(text, [edit], encoding)
    assert "".join(lines) == expected
    assert lines == split_lines(expected), "the lines stay those of the whole text"


@given(TEXTS, st.lists(st.tuples(POSITIONS, POSITIONS, TEXTS), max_size=6), NAMES)
def test_a_buffer_follows_its_client(text: str, changes: list[Any], encoding: Encoding) -> None:
    store = BufferStore()
    store.open("file:///w/a.py", "python", 1, text)
    for version, (a, b, new) in enumerate(changes, 2):
        start, end = sorted((a, b))
        change = {
            "range": {
                "start": {"line": start[0], "character": start[1]},
                "end": {"line": end[0], "character": end[1]},
            },
            "text": new,
        }
        assert store.change("file:///w/%61.py", version, [change], encoding)
        text = edited(text, [{"range": change["range"], "newText": new}], encoding)
    buffer = store.at("/w/a.py")
    assert buffer is not None
    assert buffer.text == text
    assert buffer.version == len(changes) + 1


@given(TEXTS, TEXTS, NAMES)
def test_our_edits_give_the_target_in_the_client(old: str, new: str, encoding: Encoding) -> None:
    made = list(text_edits(old, new, encoding))
    assert edited(old, made, encoding) == new
    assert (made == []) == (old == new)


@given(TEXTS, TEXTS, TEXTS, NAMES)
def test_a_clean_merge_reaches_the_client_whole(base: str, theirs: str, ours: str, encoding: Encoding) -> None:
    outcome = merge(base.encode(), theirs.encode(), ours.encode())
    if outcome.data is None:
        return
    target = outcome.data.decode()
    assert edited(theirs, list(text_edits(theirs, target, encoding)), encoding) == target
    for line in split_lines(theirs):
        if line not in split_lines(base):
            assert line in target, "a line that the user wrote is never lost"


@given(TEXTS, st.booleans(), st.booleans())
def test_bytes_and_text_are_one_another(text: str, hides_crlf: bool, has_mark: bool) -> None:
    text = text.replace("\ufeff", "")
    if hides_crlf:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    codec = Codec("utf-8", b"\xef\xbb\xbf" if has_mark else b"", hides_crlf=hides_crlf)
    assert codec.to_text(codec.to_bytes(text)) == text
