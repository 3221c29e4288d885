from __future__ import annotations

import codecs

import pytest

from agent.changes.textedit import edit
from agent.changes.textfile import NotTextError


@pytest.mark.parametrize(
    ("data", "old", "new", "expected"),
    [
        (b"v = 1\n", "v = 1", "v = 2", b"v = 2\n"),
        (b"a\r\nb\r\n", "a\nb", "a\nc", b"a\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "a\r\nc", b"a\r\nc\r\n"),
        (b"a\nb\n", "a\r\nb", "c\r\nd", b"c\nd\n"),
        (b"a\rb\rc", "a\nb", "x\ny\nz", b"x\ry\rz\rc"),
        (b"a\r\nb", "b", "c\nd", b"a\r\nc\r\nd"),
        (b"b", "b", "c\nd", b"c\nd"),
        (b"a\r\nb\nc\r\n", "b", "b2\nb3", b"a\r\nb2\nb3\nc\r\n"),
        (b"a\r\nb\nc\r\n", "a", "a1\na2", b"a1\r\na2\r\nb\nc\r\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nc\n", "a\nB\nc\n", b"a\r\nB\nc\r\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nc\n", "a\nnew\nb\nc\n", b"a\r\nnew\r\nb\nc\r\n"),
        (b"a\r\nb\r\n", "a\n", "", b"b\r\n"),
        (b"a\r\n\r\nb", "\n\n", "\n", b"a\r\nb"),
        (b"a\n\x0cb\n", "b", "c", b"a\n\x0cc\n"),
        ("a\u2028b\n".encode(), "a\u2028b", "x\ny", b"x\ny\n"),
        ("x😀y😀".encode(), "y", "é", "x😀é😀".encode()),
        (codecs.BOM_UTF8 + b"a\r\nb", "b", "c", codecs.BOM_UTF8 + b"a\r\nc"),
        ("\ufeffa\r\nb".encode("utf-16-le"), "a\nb", "😀\nc", "\ufeff😀\r\nc".encode("utf-16-le")),
        ("\ufeffab".encode("utf-32-be"), "b", "c", "\ufeffac".encode("utf-32-be")),
        (b"# coding: latin-1\nn='\xe9'\nx=1\n", "n='é'", "n='è'", b"# coding: latin-1\nn='\xe8'\nx=1\n"),
        (b"a\t \nb", "a\t ", "a", b"a\nb"),
    ],
)
def test_one_edit(data, old, new, expected):
    outcome = edit(data, old, new)
    assert (outcome.data, outcome.n_replacements) == (expected, 1)


def test_replace_all_takes_the_line_ends_of_each_place():
    outcome = edit(b"x\r\na\nx\nb\rx", "x", "y\nz", replace_all=True)
    assert (outcome.data, outcome.n_replacements) == (b"y\r\nz\r\na\ny\nz\nb\ry\nz", 3)


def test_replace_all_of_overlapping_places_goes_from_the_left():
    assert edit(b"aaaaa", "aa", "b", replace_all=True).data == b"bba"
    assert edit(b"x\r\nx\r\nx\r\n", "x\nx\n", "y\n", replace_all=True).data == b"y\r\nx\r\n"


def error(data, old, new, replace_all=False):
    with pytest.raises(ValueError) as caught:
        edit(data, old, new, replace_all)
    return str(caught.value).split("\n")


def test_the_words_of_each_failure():
    assert error(b"a", "", "b") == ["old_string must be non-empty"]
    assert error(b"a", "a", "a") == ["old_string and new_string are the same"]
    assert error(b"a\r\n", "a\r\n", "a\n") == ["old_string and new_string are the same"]
    assert error(b"a\0", "a", "b") == ["binary file"]
    assert error(b"caf\xe9 1\n", "1", "2")[0].startswith("the file is not UTF-8")
    assert error(b"abc\n", "xyz", "q") == ["old_string was not found"]
    assert error(b"", "xyz", "q") == ["old_string was not found"]
    assert error(b"# coding: latin-1\n\xe9", "é", "€")[0].startswith("U+20AC cannot be written")


def test_undecodable_is_an_error_of_its_own_kind():
    with pytest.raises(NotTextError):
        edit(b"\xff\xfe\x00", "a", "b")


def test_an_ambiguous_match_names_its_lines_and_counts_overlapping_ones():
    assert error(b"x\ny\nx\n", "x", "z") == [
        "old_string matched 2 times; set replace_all=true or use a more specific old_string",
        "The matches begin in lines 1, 3.",
    ]
    assert error(b"aaa", "aa", "z")[0].startswith("old_string matched 2 times;")
    many = error(b"x\n" * 100, "x", "z")
    assert many[0].startswith("old_string matched 100 times;")
    assert many[1].endswith("30 and 70 more.")


def test_help_for_white_space():
    lines = error(b"def f():\n    return  1\n\n", "def f():\n\treturn  1", "x")
    assert lines == [
        "old_string was not found",
        "These lines differ in white space alone:",
        "1. def f():",
        "2.     return  1",
    ]


def test_help_for_a_line_that_is_nearly_right():
    data = b"alpha = 1\nthe_value = compute(alpha)\nomega = 2\n"
    assert error(data, "the_value = compute(alpa)", "x") == [
        "old_string was not found",
        "The nearest lines are:",
        "2. the_value = compute(alpha)",
    ]


def test_help_for_line_numbers_and_never_more_than_ten_lines():
    assert "numbers that Read shows" in error(b"a = 1\nb = 2\n", "1. a = 1\n2. b = 2", "x")[1]
    data = "".join(f"line number {i}\n" for i in range(40)).encode()
    old = "".join(f"line  number {i}\n" for i in range(40))
    assert len(error(data, old, "x")) == 11


def test_a_stateful_encoding_is_edited_only_where_every_other_byte_stays():
    data = "# coding: iso2022_jp\nx = 'あい' # a\n".encode("iso2022_jp")
    assert edit(data, "# a", "# b").data == data.replace(b"# a", b"# b")
    assert error(data, "い", "う")[0].startswith("a part of the file cannot be changed alone")


@pytest.mark.timeout(60)
def test_huge_lines_and_many_matches_take_no_square_of_time():
    data = b"ab" * 100_000
    assert edit(data, "a", "c\nd", replace_all=True).n_replacements == 100_000
    assert error(b"x" * 500_000, "y" * 50, "z") == ["old_string was not found"]
