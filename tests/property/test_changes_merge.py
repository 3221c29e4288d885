"""Merging: laws, git as the judge, and never a line lost."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.changes.lines import line_edits, split_lines
from agent.changes.merge import conflict_block, merge

line = st.one_of(
    st.sampled_from([b"a", b"b", b"c", b"", b"}", b"    return"]), st.integers(0, 40).map(lambda n: b"line %d" % n)
)
ends = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r"])
ended = st.builds(lambda text, end: text + end, line, ends)
texts = st.builds(
    lambda body, tail: b"".join(body) + tail, st.lists(ended, max_size=14), st.sampled_from([b"", b"", b"x"])
)
plain_lines = st.lists(line.map(lambda text: text + b"\n"), max_size=14)


@st.composite
def edits_of(draw: st.DrawFn, base: list[bytes]) -> list[bytes]:
    lines = [*base]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(lines)))
        lines[at : at + draw(st.integers(0, 2))] = draw(st.lists(line.map(lambda text: text + b"\n"), max_size=3))
    return lines


@st.composite
def triples(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    base = draw(plain_lines)
    return b"".join(base), b"".join(draw(edits_of(base))), b"".join(draw(edits_of(base)))


@given(texts, texts)
def test_one_side_alone_wins(base: bytes, other: bytes) -> None:
    assert merge(base, base, other).data == other
    assert merge(base, other, base).data == other
    assert merge(base, other, other).data == other


@given(texts, texts, texts)
def test_the_sides_are_equal(base: bytes, theirs: bytes, ours: bytes) -> None:
    one, other = merge(base, theirs, ours), merge(base, ours, theirs)
    assert one.data == other.data
    assert bool(one.conflicts) == (one.data is None)
    assert [(c.theirs, c.ours) for c in one.conflicts] == [(c.ours, c.theirs) for c in other.conflicts]


@given(st.one_of(triples(), st.tuples(texts, texts, texts)))
def test_no_line_of_either_side_is_lost(texts: tuple[bytes, bytes, bytes]) -> None:
    base, theirs, ours = texts
    merged = merge(base, theirs, ours).data
    if merged is None:
        return
    result = split_lines(merged)
    for side in (theirs, ours):
        lines = split_lines(side)
        added = [line for edit in line_edits(split_lines(base), lines) for line in lines[edit.new_lo : edit.new_hi]]
        at = iter(result)
        assert all(line in at for line in added), "what a side added is there, in its order"
    # a line that occurs once; of two that are alike each side may have taken away another one
    for kept in set(split_lines(theirs)) & set(split_lines(ours)):
        assert kept in result or split_lines(base).count(kept) > 1


git_ends = st.sampled_from([b"\n", b"\n", b"\r\n"])
"""Git knows no line end that is a carriage return alone."""
git_texts = st.builds(
    lambda body, tail: b"".join(body) + tail,
    st.lists(st.builds(lambda text, end: text + end, line, git_ends), max_size=10),
    st.sampled_from([b"", b"", b"x"]),
)


def merge_of_git(texts: tuple[bytes, bytes, bytes]) -> bytes | None:
    """What `git merge-file` makes of base, theirs and ours; None for a conflict."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in zip(("base", "theirs", "ours"), texts, strict=True):
            Path(folder, name).write_bytes(data)
        done = subprocess.run(["git", "merge-file", "-p", "theirs", "base", "ours"], cwd=folder, capture_output=True)
    assert done.returncode < 128, done.stderr
    return done.stdout if done.returncode == 0 else None


@pytest.mark.slow
@settings(max_examples=300)
@given(st.one_of(triples(), st.tuples(git_texts, git_texts, git_texts)))
def test_as_git_or_a_conflict(texts: tuple[bytes, bytes, bytes]) -> None:
    merged, of_git = merge(*texts).data, merge_of_git(texts)
    if merged is not None and merged != of_git:
        # Lines that are repeated can be matched in several ways, and git may have taken another one into a conflict.
        assert of_git is None
        assert any(len(lines) != len(set(lines)) for lines in map(split_lines, texts))


@settings(max_examples=100)
@given(st.integers(0, 8), st.data())
def test_where_no_line_is_repeated_as_git(n_lines: int, data: st.DataObject) -> None:
    base = [b"line %d\n" % number for number in range(n_lines)]

    def side(name: bytes) -> bytes:
        lines = [*base]
        for at in sorted(data.draw(st.sets(st.integers(0, n_lines), max_size=3)), reverse=True):
            n_gone = data.draw(st.integers(0, 2))
            lines[at : at + n_gone] = [b"%s %d.%d\n" % (name, at, n) for n in range(data.draw(st.integers(0, 2)))]
        return b"".join(lines)

    texts = (b"".join(base), side(b"theirs"), side(b"ours"))
    assert merge(*texts).data == merge_of_git(texts)


@pytest.mark.parametrize(
    ("base", "theirs", "ours", "merged"),
    [
        (b"1\n2\n3\n4\n5\n", b"one\n2\n3\n4\n5\n", b"1\n2\n3\n4\nfive\n", b"one\n2\n3\n4\nfive\n"),
        (b"1\n2\n3\n", b"0\n1\n2\n3\n", b"1\n2\n3\n4\n", b"0\n1\n2\n3\n4\n"),
        (b"1\r\n2\r\n3\r\n", b"one\r\n2\r\n3\r\n", b"1\r\n2\r\nthree\r\n", b"one\r\n2\r\nthree\r\n"),
        (b"1\r2\r3\r", b"one\r2\r3\r", b"1\r2\rthree\r", b"one\r2\rthree\r"),
        (b"1\n2\n3", b"one\n2\n3", b"1\n2\nthree", b"one\n2\nthree"),
        (b"1\n2\n3\n", b"one\n2\n3\n", b"One\n2\n3\n", None),
        (b"1\n2\n3\n", b"one\n2\n3\n", b"1\ntwo\n3\n", None),
        (b"1\n", b"1\na\n", b"1\nb\n", None),
        (b"1\n2\n", b"1\n2\nx\n", b"1\n2\nx\n", b"1\n2\nx\n"),
        (b"a\x00b\n1\n2\n", b"A\x00b\n1\n2\n", b"a\x00b\n1\n3\n", None),
        (b"1\n2\n3\n4\n5\n", b"1\nX\n3\n4\n5\n", b"1\nX\n3\n4\nY\n", b"1\nX\n3\n4\nY\n"),
        (b"a\nb\na\n", b"a\nb\na\nb\n", b"a\na\nb\na\na\n", None),  # the last a of ours may stand on either side
        (b"1\x0c2\n3\n4\n", b"1\x0cb\n3\n4\n", b"a\x0c2\n3\n4\n", None),
    ],
)
def test_cases(base: bytes, theirs: bytes, ours: bytes, merged: bytes | None) -> None:
    outcome = merge(base, theirs, ours)
    assert outcome.data == merged


def test_a_conflict_shows_all_three() -> None:
    outcome = merge(b"a\nb\nc\nd\ne\nf\n", b"new\na\nb\nC\nd\ne\nf\n", b"a\nb\nc!\nd\ne\nf")
    assert conflict_block(outcome.conflicts[0]) == (
        "<<<<<<< yours, the file now, line 4\nC\n||||||| base, when the run began, line 3\nc\n"
        "=======\nc!\n>>>>>>> proposal, line 3\n"
    )
    conflict = outcome.conflicts[0]
    assert (conflict.base_line, conflict.theirs_line, conflict.ours_line) == (3, 4, 3)
