"""TODO comments in the comments of many languages, and what only looks like one."""

from __future__ import annotations

import time

import pytest

from lsp_server.comments import marker_at
from lsp_server.positions import split_lines


@pytest.mark.parametrize(
    ("name", "text", "line", "words"),
    [
        ("a.py", "x = 1  # TODO: handle None\n", 0, "TODO: handle None"),
        ("a.py", 'def f():\n    """TODO: one line."""\n', 1, "TODO: one line."),
        (
            "a.py",
            'def f():\n    """Do.\n\n    FIXME this\n    and that\n\n    More.\n    """\n',
            3,
            "FIXME this and that",
        ),
        ("a.py", "x = '# TODO no'  # XXX yes\n", 0, "XXX yes"),
        ("a.c", "int x; /* TODO: free\n * it later */ int y;\n", 0, "TODO: free it later"),
        ("a.c", "f(); // FIXME(bob): leak\n", 0, "FIXME(bob): leak"),
        ("a.rs", "fn f<'a>(x: &'a str) {} // TODO don't\n", 0, "TODO don't"),
        ("a.js", "const u = 'http://x' // TODO: https\n", 0, "TODO: https"),
        ("a.sql", "SELECT 1 -- TODO: index\n-- and more\n", 0, "TODO: index and more"),
        ("a.lua", "--[[ TODO: a\n b ]]\n", 0, "TODO: a b"),
        ("a.hs", "{- TODO x -}\n", 0, "TODO x"),
        ("a.el", ";; TODO: lisp\n;; more\n(car x)\n", 0, "TODO: lisp more"),
        ("a.tex", "Hi % XXX cite\n", 0, "XXX cite"),
        ("a.html", "<p>don't</p>\n<!-- TODO: link\n  it -->\n", 1, "TODO: link it"),
        ("a.css", "a {} /* TODO: red */\n", 0, "TODO: red"),
        ("a.yml", "a: b # TODO: c\n", 0, "TODO: c"),
        ("Makefile", "all: # TODO: build\n", 0, "TODO: build"),
        ("a.unknown", 'y = "TODO no" -- TODO: yes\n', 0, "TODO: yes"),
        ("a.py", "# TODO-12: fix\r\n#   both\r\n", 0, "TODO-12: fix both"),
    ],
)
def test_a_comment_of_any_language(name: str, text: str, line: int, words: str) -> None:
    marker = marker_at(split_lines(text), line, name)
    assert marker is not None
    assert (marker.first, marker.text) == (line, words)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.py", "x = 'TODO list'\n", 0),
        ("a.py", 'x = f"# TODO {y}"\n', 0),
        ("a.py", 'x = """\nTODO: data\n"""\n', 1),
        ("a.py", "TODO = TODO_COUNT + my_TODO\n", 0),
        ("a.py", "# the TODOs, and todo\n", 0),
        ("a.c", 'char *s = "// TODO no";\n', 0),
        ("a.go", "x := `// TODO no`\n", 0),
        ("a.js", "const a = `\n// TODO no\n`\n", 1),
        ("a.html", "<p>TODO</p>\n", 0),
        ("a.md", "TODO: write\n", 0),
        ("a.py", "# fine\n", 5),
        ("a.py", "# TODO: above\nx = 1\n", 1),
    ],
)
def test_what_is_no_comment(name: str, text: str, line: int) -> None:
    assert marker_at(split_lines(text), line, name) is None


def test_following_comment_lines_belong_to_it() -> None:
    lines = split_lines(
        "x = 1  # TODO: handle None\n#   and empty\n#\n# not this\n# FIXME: nor this\n# but this\ny = 1\n"
    )
    marker = marker_at(lines, 0, "a.py")
    assert marker is not None
    assert (marker.first, marker.last, marker.text) == (0, 1, "TODO: handle None and empty")
    assert marker_at(lines, 1, "a.py") == marker, "the cursor may be on any of its lines"
    assert marker_at(lines, 3, "a.py") is None
    other = marker_at(lines, 5, "a.py")
    assert other is not None
    assert (other.first, other.last) == (4, 5)


@pytest.mark.parametrize("name", ["a.py", "a.c", "a.html", "a.lua", "x"])
@pytest.mark.parametrize("piece", ["'", '"', '"""', "/*", "<!--", "--[[", "# ", "\\", "\n", "'\n", "x" * 99 + "\n"])
def test_no_text_takes_long(name: str, piece: str) -> None:
    lines = split_lines(piece * 20_000 + "\n# TODO: x\n")
    begun = time.perf_counter()
    for line in (len(lines) - 2, 0):
        marker_at(lines, line, name)
    assert time.perf_counter() - begun < 1.0
