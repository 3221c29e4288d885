"""Quoted lines: as Read numbers them, none twice, every cut said."""

from __future__ import annotations

import pytest

from lsp_server.positions import split_lines
from lsp_server.quotes import cut_line, cut_middle, enclosing_definition, merged, quote, size_of

SOURCE = """\
class Box:
    size = 1

    @property
    def area(
        self,
    ):
        if self.size:
            return 2

        return 3


def outside():
    pass


x = 1
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [(1, 0), (4, None), (7, 4), (8, 4), (9, 4), (10, 4), (13, None), (14, 13), (17, None), (99, None)],
)
def test_the_definition_around_a_line(line: int, expected: int | None) -> None:
    assert enclosing_definition(split_lines(SOURCE), line) == expected


def test_definitions_of_other_languages() -> None:
    for text in (
        "export async function f() {\n  x\n}\n",
        "pub(crate) fn f() {\n\tx\n}\n",
        "func (b *B) f() {\n\tx\n}\n",
    ):
        assert enclosing_definition(split_lines(text), 1) == 0


def test_spans_that_touch_are_one() -> None:
    assert merged([(9, 9), (0, 0), (7, 8)], 100) == [(0, 12)]
    assert merged([(0, 0), (20, 10**9)], 100) == [(0, 3), (17, 99)]
    assert merged([(-5, -9), (500, 600)], 100, 0) == [(0, 0), (99, 99)]


def test_a_quote_is_numbered_and_bounded() -> None:
    lines = split_lines("a\r\nb\tc\rd\n")
    assert quote("f", lines, [(0, 0)], 1_000) == "f\n1. a\n2. b\tc\n3. d"
    many = split_lines("line\n" * 500)
    made = quote("f", many, [(0, 0), (100, 400)], 1_000, 1)
    assert size_of(made) <= 1_000
    shown = [line for line in made.split("\n") if line.endswith(". line")]
    assert shown[:3] == ["1. line", "2. line", "100. line"]
    assert made.split("\n")[3] == "…"
    assert made.endswith(f"[{2 + 303 - len(shown)} more lines are left out: read the file]")


@pytest.mark.parametrize("n_bytes", [100, 1_000, 10_000])
@pytest.mark.parametrize("text", ["é" * 5_000, "a" * 9_999, "𝄞\n" * 3_000])
def test_a_cut_keeps_both_ends_and_counts(text: str, n_bytes: int) -> None:
    made = cut_middle(text, n_bytes)
    assert size_of(made) <= n_bytes
    head, _, rest = made.partition("\n[… ")
    n_said, _, tail = rest.partition(" bytes of")
    if rest:
        assert size_of(head) + int(n_said.replace(",", "")) + size_of(tail.partition("…]\n")[2]) == size_of(text)
    else:
        assert made == text
    assert cut_line("x" * 10, 4) == "xxxx [6 more characters are left out]"
