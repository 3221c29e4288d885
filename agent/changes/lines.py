"""Lines and the edits between two lists of them: the ground of diff and merge."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

MAX_EDIT_DISTANCE = 400
"""Where no line is unique, the shortest edit script is looked for up to this many lines; beyond it the whole
stretch counts as replaced. The search costs the square of it: about 0.1 s in Python at 400."""

MAX_DEPTH = 50
"""How often a stretch between unique lines is searched for unique lines again: a text made to need more of it
would cost the square of its length."""

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines `old_lo` to `old_hi` of the old text become lines `new_lo` to `new_hi` of the new (half open, from 0)."""

    old_lo: int
    old_hi: int
    new_lo: int
    new_hi: int


def split_lines(data: bytes) -> list[bytes]:
    r"""Split at `\n`, `\r\n` and `\r` only, line ends kept, so that joining gives `data` again."""
    return _LINE.findall(data)


def split_at_newline(data: bytes) -> list[bytes]:
    r"""Split at `\n` only, as git does, line ends kept."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def line_edits(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Edit]:
    """The edits that make `new` of `old`, in order, never touching one another. Lines are bytes, or text.

    Lines that occur once on both sides are matched first (patience), what lies between by the shortest edit
    script. The cost grows linearly for texts that are mostly alike.
    """
    edits: list[Edit] = []
    i = j = 0
    for old_at, new_at, n_lines in [*_matches(old, new), (len(old), len(new), 0)]:
        if old_at > i or new_at > j:
            edits.append(Edit(i, old_at, j, new_at))
        i, j = old_at + n_lines, new_at + n_lines
    return edits


_Match = tuple[int, int, int]  # place in old, place in new, number of lines


def _matches(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[_Match]:
    numbers: dict[Hashable, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in old]
    b = [numbers.setdefault(line, len(numbers)) for line in new]
    found: list[_Match] = []
    stretches = [(0, len(a), 0, len(b), 0)]
    while stretches:
        a_lo, a_hi, b_lo, b_hi, depth = stretches.pop()
        n_same = _common_prefix(a, a_lo, a_hi, b, b_lo, b_hi)
        if n_same:
            found.append((a_lo, b_lo, n_same))
            a_lo, b_lo = a_lo + n_same, b_lo + n_same
        n_same = _common_suffix(a, a_lo, a_hi, b, b_lo, b_hi)
        if n_same:
            a_hi, b_hi = a_hi - n_same, b_hi - n_same
            found.append((a_hi, b_hi, n_same))
        if a_lo == a_hi or b_lo == b_hi:
            continue
        anchors = _anchors(a, a_lo, a_hi, b, b_lo, b_hi) if depth < MAX_DEPTH else []
        if not anchors:
            found += _shortest(a[a_lo:a_hi], b[b_lo:b_hi], a_lo, b_lo)
            continue
        # Each stretch begins at its anchor, which its common prefix then takes.
        for at, (start, end) in enumerate(pairwise([(a_lo, b_lo), *anchors, (a_hi, b_hi)])):
            if at and end[0] - start[0] == 1 == end[1] - start[1]:
                found.append((*start, 1))
            else:
                stretches.append((start[0], end[0], start[1], end[1], depth + 1))
    return sorted(found)


def _common_prefix(a: list[int], a_lo: int, a_hi: int, b: list[int], b_lo: int, b_hi: int) -> int:
    n_most = min(a_hi - a_lo, b_hi - b_lo)
    n = 0
    while n < n_most and a[a_lo + n] == b[b_lo + n]:
        n += 1
    return n


def _common_suffix(a: list[int], a_lo: int, a_hi: int, b: list[int], b_lo: int, b_hi: int) -> int:
    n_most = min(a_hi - a_lo, b_hi - b_lo)
    n = 0
    while n < n_most and a[a_hi - 1 - n] == b[b_hi - 1 - n]:
        n += 1
    return n


def _unique(lines: list[int], lo: int, hi: int) -> dict[int, int]:
    """The place of each line that occurs once between `lo` and `hi`."""
    places: dict[int, int] = {}
    for i in range(lo, hi):
        places[lines[i]] = -1 if lines[i] in places else i
    return {line: i for line, i in places.items() if i >= 0}


def _anchors(a: list[int], a_lo: int, a_hi: int, b: list[int], b_lo: int, b_hi: int) -> list[tuple[int, int]]:
    """The longest rising chain of lines that are unique on both sides."""
    unique_b = _unique(b, b_lo, b_hi)
    pairs = [(i, unique_b[line]) for line, i in _unique(a, a_lo, a_hi).items() if line in unique_b]
    if all(before < after for (_, before), (_, after) in pairwise(pairs)):
        return pairs  # nothing was moved, as is usual
    piles: list[int] = []  # the smallest end of a chain of each length, by its place in b
    tops: list[int] = []  # the pair that ends it
    before: list[int] = []
    for at, (_, j) in enumerate(pairs):
        pile = bisect_left(piles, j)
        before.append(tops[pile - 1] if pile else -1)
        if pile == len(piles):
            piles.append(j)
            tops.append(at)
        else:
            piles[pile] = j
            tops[pile] = at
    chain: list[tuple[int, int]] = []
    at = tops[-1] if tops else -1
    while at >= 0:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]


def _shortest(a: list[int], b: list[int], a_offset: int, b_offset: int) -> list[_Match]:
    """The matches of a shortest edit script (Myers 1986), or none beyond MAX_EDIT_DISTANCE."""
    if not set(a) & set(b):
        return []
    n_a, n_b = len(a), len(b)
    furthest = {1: 0}
    history: list[dict[int, int]] = []
    for distance in range(min(n_a + n_b, MAX_EDIT_DISTANCE) + 1):
        history.append(furthest.copy())
        for k in range(-distance, distance + 1, 2):
            x = _step(furthest, k, n_a, n_b)
            if x < 0:
                furthest.pop(k, None)
                continue
            y = x - k
            while x < n_a and y < n_b and a[x] == b[y]:
                x, y = x + 1, y + 1
            furthest[k] = x
            if x == n_a and y == n_b:
                return _walk_back(history, n_a, n_b, a_offset, b_offset)
    return []


def _step(furthest: dict[int, int], k: int, n_a: int, n_b: int) -> int:
    """Where the best path to diagonal `k` enters it (-1: it cannot), preferring deletions first."""
    down = furthest.get(k + 1, -1)
    if down - k > n_b:
        down = -1
    right = furthest.get(k - 1, -2) + 1
    if right > n_a:
        right = -1
    return max(down, right)


def _walk_back(history: list[dict[int, int]], n_a: int, n_b: int, a_offset: int, b_offset: int) -> list[_Match]:
    matches: list[_Match] = []
    x, y = n_a, n_b
    for furthest in reversed(history):
        k = x - y
        entered = _step(furthest, k, n_a, n_b)
        if x > entered:
            matches.append((a_offset + entered, b_offset + entered - k, x - entered))
        came_down = furthest.get(k + 1, -1) == entered and entered - k <= n_b
        x = entered if came_down else entered - 1
        y = (entered - k) - 1 if came_down else entered - k
    return matches
