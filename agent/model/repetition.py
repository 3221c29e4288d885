"""Whether a text that is being written goes round in circles; pure.

The rule: it ends in one cycle of at most 2,000 characters, exactly the same again and again, at least 8 rounds and
1,500 characters long. Tables and code may repeat themselves rightly, and so may lines without words (rulers, zeros):
in a fenced block, in rows that begin with `|`, and without words the cycle has to fill 6,000 characters. Rows that
differ in a single number are no cycle. The values of calls are never judged: a file may hold anything.
"""

from __future__ import annotations

import re

FEWEST_ROUNDS = 8
FEWEST_CHARACTERS = 1_500
FEWEST_CHARACTERS_OF_DATA = 6_000
LONGEST_CYCLE = 2_000
TAIL_CHARACTERS = FEWEST_ROUNDS * LONGEST_CYCLE + LONGEST_CYCLE
"""So much of the end of a text decides."""

_PROBE = 32
_WORD = re.compile(r"[^\W\d_]{2,}")
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)


def goes_in_circles(text: str) -> bool:
    """Whether `text` ends in a cycle. Its last `TAIL_CHARACTERS` are looked at (and all, for an open fence)."""
    period = _period(text)
    if period == 0:
        return False
    n_same = _n_periodic(text, period)
    cycle = text[-period:]
    is_data = not _WORD.search(cycle + cycle) or _is_table(cycle) or _is_fenced(text, cycle)
    fewest = FEWEST_CHARACTERS_OF_DATA if is_data else FEWEST_CHARACTERS
    return n_same >= max(fewest, FEWEST_ROUNDS * period)


def _period(text: str) -> int:
    """The shortest cycle that the text may end in; 0 where it is longer than looked for."""
    if len(text) < FEWEST_CHARACTERS:
        return 0
    end = len(text)
    probe = text[end - _PROBE :]
    at = text.rfind(probe, max(0, end - _PROBE - LONGEST_CYCLE), end - 1)
    return end - _PROBE - at if at >= 0 else 0


def _n_periodic(text: str, period: int) -> int:
    """How many characters at the end repeat with this period."""
    begin = max(0, len(text) - TAIL_CHARACTERS)
    tail = text[begin:]
    low, high = 0, len(tail) - period  # the longest suffix that is equal to the one a period before it
    while low < high:
        middle = (low + high + 1) // 2
        if tail[len(tail) - middle :] == tail[len(tail) - middle - period : len(tail) - period]:
            low = middle
        else:
            high = middle - 1
    return low + period


def _is_table(cycle: str) -> bool:
    lines = [line.strip() for line in (cycle + cycle).split("\n")[1:-1] if line.strip()]
    return bool(lines) and all(line.startswith("|") for line in lines)


def _is_fenced(text: str, cycle: str) -> bool:
    """Inside a fence that was opened and is no part of the cycle itself."""
    return len(_FENCE.findall(text)) % 2 == 1 and not _FENCE.search(cycle)
