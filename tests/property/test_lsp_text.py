"""Positions, buffers and edits for any text, against a client model that shares no code with ours."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.changes.merge import merge
from lsp_server.buffers import BufferStore
from lsp_server.edits import text_edits
from lsp_server.positions import ENCODINGS, Encoding, locate, n_units, replace_range, split_lines
from lsp_server.texts import Codec
from tests.e2e.editor_text import NeovimLines, change_between
from tests.e2e.lsp_client import edited

PIECES = ["a", "b", "x y", "é", "e\u0301", "𝄞", "\t", "\x0c", "\u2028", "\x85", "\n", "\r\n", "\r", "\ufeff", "line\n"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
PLAIN_TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "x é\n", "𝄞\n", "\n"]), min_size=1, max_size=10).map("".join)
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


def places(edit: dict[str, Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    start, end = edit["range"]["start"], edit["range"]["end"]
    return (start["line"], start["character"]), (end["line"], end["character"])


@given(TEXTS, TEXTS, NAMES)
def test_our_edits_are_of_whole_lines_in_order_and_no_line_too_many(old: str, new: str, encoding: Encoding) -> None:
    lines = lines_by_pattern(old)
    made = text_edits(old, new, encoding)
    for before, after in pairwise(made):
        assert places(before)[1] <= places(after)[0]
    for edit in made:
        (first, column), (last, end_column) = places(edit)
        assert column == 0
        assert end_column == 0 or (last == len(lines) - 1 and end_column == n_units(lines[-1], encoding))
        gone = lines[first:last] + ([lines[last]] if end_column else [])
        come = lines_by_pattern(edit["newText"])
        come = come if come[-1] else come[:-1]
        is_appended = gone == lines[-2:-1] and not lines[-1] and come[:1] == gone
        assert is_appended or not gone or not come or (gone[0] != come[0] and gone[-1] != come[-1])
        assert gone or come


@given(PLAIN_TEXTS, st.one_of(PLAIN_TEXTS, st.just("")), NAMES)
def test_neovim_makes_no_blank_line_of_our_edits(old: str, new: str, encoding: Encoding) -> None:
    buffer = NeovimLines(old)
    buffer.edit(list(text_edits(old, new, encoding)), encoding)
    assert buffer.text == (new or "\n"), "a buffer without a line is one empty line"


@given(TEXTS, TEXTS, NAMES)
def test_a_buffer_follows_changes_as_small_as_editors_make_them(old: str, new: str, encoding: Encoding) -> None:
    store = BufferStore()
    store.open("file:///w/a.py", "python", 1, old)
    store.change("file:///w/a.py", 2, [change_between(old, new, encoding)], encoding)
    buffer = store.at("/w/a.py")
    assert buffer is not None
    assert buffer.text == new
    assert buffer.lines == split_lines(new)


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
