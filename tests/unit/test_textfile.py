from __future__ import annotations

import codecs

import pytest

from agent.changes.textfile import (
    NotTextError,
    TextFile,
    decode,
    is_binary,
    show,
    split_lines,
    usual_line_end,
    write_over,
)

LATIN = b"# -*- coding: latin-1 -*-\nname = '\xe9'\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", TextFile("")),
        ("é\r\n".encode(), TextFile("é\r\n")),
        (codecs.BOM_UTF8 + b"a", TextFile("a", "utf-8", codecs.BOM_UTF8)),
        ("\ufeffa😀".encode("utf-16-le"), TextFile("a😀", "utf-16-le", codecs.BOM_UTF16_LE)),
        ("\ufeffa".encode("utf-16-be"), TextFile("a", "utf-16-be", codecs.BOM_UTF16_BE)),
        ("\ufeffa".encode("utf-32-le"), TextFile("a", "utf-32-le", codecs.BOM_UTF32_LE)),
        ("\ufeffa".encode("utf-32-be"), TextFile("a", "utf-32-be", codecs.BOM_UTF32_BE)),
        (LATIN, TextFile(LATIN.decode("latin-1"), "iso8859-1")),
        (
            b"#!/x\n# vim: set fileencoding=cp1252 :\n\x80",
            TextFile("#!/x\n# vim: set fileencoding=cp1252 :\n€", "cp1252"),
        ),
        (b"x = 1\n# coding: latin-1\n", TextFile("x = 1\n# coding: latin-1\n")),
        (b"\n\n# coding: latin-1\n", TextFile("\n\n# coding: latin-1\n")),
        (b"# coding: no-such\nx", TextFile("# coding: no-such\nx")),
        (b"# coding: rot13\nx", TextFile("# coding: rot13\nx")),
        (b"# coding: unicode_escape\n\\d", TextFile("# coding: unicode_escape\n\\d")),
        ("# coding: ascii\né".encode(), TextFile("# coding: ascii\né")),
        (b"a\x01", TextFile("a\x01")),
    ],
)
def test_decode_and_back(data, expected):
    file = decode(data)
    assert file == expected
    assert file.encode(file.text) == data
    assert not is_binary(data)


@pytest.mark.parametrize(
    "data",
    [b"a\0b", b"\x89PNG\r\n\x1a\n\xff", b"\x80\x81\x82", codecs.BOM_UTF16_LE + b"\x00", codecs.BOM_UTF8 + b"\xff"],
)
def test_binary(data):
    assert is_binary(data)
    for read in (decode, show):
        with pytest.raises(NotTextError, match=r"^binary file$"):
            read(data)


@pytest.mark.parametrize("data", [b"caf\xe9\n", b"# coding: utf-8\ncaf\xe9\n"])
def test_an_unknown_encoding_is_shown_but_not_decoded(data):
    assert not is_binary(data)
    assert show(data) == data.decode("utf-8", "replace")
    with pytest.raises(NotTextError, match="not UTF-8"):
        decode(data)


def test_lines_end_at_three_things_only():
    assert split_lines("a\n\fb\r\n\u2028c\rd\x0b\x85e\r\r\n") == ["a\n", "\fb\r\n", "\u2028c\r", "d\x0b\x85e\r", "\r\n"]
    assert split_lines("") == []
    assert split_lines("a") == ["a"]
    assert usual_line_end("a\r\nb\nc\r\n") == "\r\n"
    assert usual_line_end("a\nb\r\n") == "\n"
    assert usual_line_end("a") == "\n"


def test_a_character_that_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"U\+20AC cannot be written in the file's encoding, iso8859-1"):
        decode(LATIN).encode("€")


@pytest.mark.parametrize(
    ("existing", "content", "expected"),
    [
        (None, "é\r\n", "é\r\n".encode()),
        (b"", "a\n", b"a\n"),
        (b"x\r\ny\r\n", "a\nb\n", b"a\r\nb\r\n"),
        (b"x\ry\r", "a\nb", b"a\rb"),
        (b"x\ny\n", "a\r\nb\r\n", b"a\nb\n"),
        (b"x\r\ny\n", "a\nb\r\n", b"a\nb\r\n"),
        (b"x", "a\nb\r\n", b"a\nb\r\n"),
        (codecs.BOM_UTF8 + b"x\r\n", "é\n", codecs.BOM_UTF8 + "é\r\n".encode()),
        (codecs.BOM_UTF8 + b"x", "\ufeffa", codecs.BOM_UTF8 + b"a"),
        ("\ufeffx\n".encode("utf-16-be"), "😀\n", "\ufeff😀\n".encode("utf-16-be")),
        (LATIN, "# coding: latin-1\nn = 'è'\n", b"# coding: latin-1\nn = '\xe8'\n"),
        (LATIN, "n = 'è'\n", "n = 'è'\n".encode()),
        (LATIN, "# coding: latin-1\nn = '€'\n", "# coding: latin-1\nn = '€'\n".encode()),
        (None, "# coding: latin-1\nn = 'è'\n", b"# coding: latin-1\nn = '\xe8'\n"),
        (b"\x00\x01\r\n", "a\n", b"a\n"),
        (b"caf\xe9\r\n", "a\n", b"a\n"),
        (b"x\n", "a\0", b"a\0"),
    ],
)
def test_write_over(existing, content, expected):
    assert write_over(existing, content) == expected


def test_a_lone_surrogate_cannot_be_written():
    with pytest.raises(ValueError, match=r"U\+D800"):
        write_over(None, "\ud800")
