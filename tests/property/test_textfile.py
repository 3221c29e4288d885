"""Edits against an oracle that knows nothing of normalised positions."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent.changes.textedit import edit
from agent.changes.textfile import decode, line_ends, normalise, split_lines, write_over

pieces = st.sampled_from(["a", "b", "é", "😀", "\t", " ", "\f", "\u2028", "\x85", "\n", "\r\n", "\r"])
texts = st.lists(pieces, max_size=14).map("".join)
encodings = st.sampled_from(
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ]
)


@given(st.binary(max_size=60))
def test_what_can_be_decoded_comes_back_byte_for_byte(data):
    try:
        file = decode(data)
    except ValueError:
        return
    assert file.encode(file.text) == data


@given(texts)
def test_lines_lose_nothing(text):
    lines = split_lines(text)
    assert "".join(lines) == text
    assert len(lines) == len(line_ends(text)) + (not text.endswith(("\n", "\r")) and text != "")
    assert all(line.rstrip("\r\n") == line[: len(line) - len("".join(line_ends(line)))] for line in lines)


@given(encodings, texts, texts, texts, texts)
def test_an_edit_changes_the_span_alone(encoding, before, span, after, new):
    # a lone \r before a \n would be one line end: keep the parts apart
    assume(
        not (before.endswith("\r") and span.startswith("\n")) and not (span.endswith("\r") and after.startswith("\n"))
    )
    mark, name = encoding
    text, old = before + span + after, normalise(span)
    assume(old and normalise(text).count(old) == 1 and old != normalise(new))
    data = mark + text.encode(name)
    try:
        got = edit(data, span, new).data
    except ValueError as error:
        assert str(error).startswith("old_string matched")  # overlapping
        return
    head, tail = mark + before.encode(name), after.encode(name)
    assert got.startswith(head)
    assert got.endswith(tail)
    middle = got[len(head) : len(got) - len(tail)].decode(name)
    assert normalise(middle) == normalise(new) or "\r" in middle
    here = line_ends(span + after)
    usual = max(dict.fromkeys(line_ends(text)), key=line_ends(text).count, default="\n")
    assert set(line_ends(middle)) <= {*line_ends(span), here[0] if here else usual}


@given(texts, texts, texts, st.integers(1, 3))
def test_replace_all_equals_the_replacement_of_the_normalised_text(before, old, new, n_times):
    text, old, new = normalise((before + old) * n_times + before), normalise(old), normalise(new)
    assume(old and old != new)
    outcome = edit(text.encode(), old, new, replace_all=True)
    assert outcome.data == text.replace(old, new).encode()
    assert outcome.n_replacements == text.count(old)


@given(texts, texts)
def test_write_over_keeps_one_kind_of_line_end(existing, content):
    data = write_over(existing.encode(), content)
    kinds = set(line_ends(existing))
    if len(kinds) == 1:
        assert set(line_ends(data.decode())) <= kinds
        assert normalise(data.decode()) == normalise(content)
    else:
        assert data == content.encode()


@pytest.mark.parametrize("data", [b"a\r", b"\r\n\r", b"\n\r"])
def test_odd_ends(data):
    assert decode(data).encode(decode(data).text) == data
