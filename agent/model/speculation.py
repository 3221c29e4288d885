"""Which tokens may come next, and how many of them are worth a try; pure.

An edit repeats what was read: what followed the same tokens earlier in the conversation is a draft of what comes now.
A draft is decoded together with the token before it, and of it only stays what the sampler then picks by itself, so
drafts change the time that a turn takes and not its text. What Read shows has line numbers, and behind them other
tokens than the file has: it is looked up without them too, which makes a function that is written again from it 2.2
times as fast with the costs of a laptop, where 1.5 came of the numbered lines alone.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

TOKEN_BYTES = array("i").itemsize
SEPARATOR = -1
MOST_DRAFTED = 7
"""Tokens of one draft: each costs another recurrent state, 50 MiB of the 4B model."""

LOOK_BACK_TOKENS = 32_768
"""So far back a draft is looked for: a search takes less than a millisecond."""

MEASURED_SIZES = (1, 2, 4, 8)
"""Batches whose time is measured; between them it is taken to grow evenly."""

LEAST_GAIN = 1.1
"""A machine where the best draft, all of it right, is not so many times faster than single tokens drafts nothing."""

MTP_KIND = 0
MTP_COST = 0.2
"""Of a token that the next-token layer drafts: one layer of 32, and the output matrix, a sixth of the 4B's weights."""

_LINE_NUMBER = re.compile(r"^[0-9]+\. ", re.MULTILINE)
_PATTERNS = (16, 8, 4, 3)  # tokens that must be the same before a draft, the longest first
_PRIORS = {16: 0.9, 8: 0.8, 4: 0.6, 3: 0.5}  # the share that is right, before anything is known of a turn
_OTHER_PRIOR = 0.7
_LEARNING = 0.15
_FORGETTING = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Tokens that may follow, and a number for the kind of guess: here the length of the pattern that was found."""

    tokens: tuple[int, ...]
    kind: int


def pack(tokens: Sequence[int]) -> bytes:
    """Tokens as bytes, in which `look_up` searches at the speed of C."""
    return array("i", tokens).tobytes()


def look_up(packed: bytes | bytearray, token: int, n_most: int, sources: bytes | bytearray = b"") -> Draft | None:
    """What followed the last place in `packed` whose tokens are those at its end with `token` behind them.

    `sources` are other texts to look in, each between two `SEPARATOR`. Of the lengths of patterns the longest that is
    found counts. None where there is nothing.
    """
    n_tokens = len(packed) // TOKEN_BYTES
    begin = max(0, n_tokens - LOOK_BACK_TOKENS) * TOKEN_BYTES
    last = pack([token])
    for n in _PATTERNS:
        if n > n_tokens + 1 or n_most < 1:
            continue
        pattern = bytes(packed[(n_tokens - n + 1) * TOKEN_BYTES :]) + last
        start = _find(packed, pattern, begin)
        if start >= 0:
            found = (packed[start : start + n_most * TOKEN_BYTES] + last)[: n_most * TOKEN_BYTES]
            return Draft(tokens=tuple(array("i", bytes(found))), kind=n)
        start = _find(sources, pattern, 0)
        if start >= 0:
            behind = array("i", bytes(sources[start : start + n_most * TOKEN_BYTES]))
            tokens = tuple(behind[: behind.index(SEPARATOR)] if SEPARATOR in behind else behind)
            if tokens:
                return Draft(tokens=tokens, kind=n)
    return None


def _find(packed: bytes | bytearray, pattern: bytes, begin: int) -> int:
    """Where the last place with the pattern ends; -1 where there is none."""
    end = len(packed)
    while (at := packed.rfind(pattern, begin, end)) >= 0 and at % TOKEN_BYTES:
        end = at + len(pattern) - 1  # in the middle of tokens
    return at + len(pattern) if at >= 0 else -1


def without_line_numbers(observation: str) -> str:
    """What Read showed, as it is in the file: so is it repeated, and so are its tokens."""
    return _LINE_NUMBER.sub("", observation)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCosts:
    """What a batch takes, by its number of tokens, in times of one token."""

    by_size: Mapping[int, float]

    def cost(self, n_tokens: int) -> float:
        """The cost of a batch; between two sizes that are known on the line through them."""
        sizes = sorted(self.by_size)
        for low, high in pairwise(sizes):
            if low <= n_tokens <= high:
                share = (n_tokens - low) / (high - low)
                return self.by_size[low] + share * (self.by_size[high] - self.by_size[low])
        return self.by_size[sizes[-1]] * max(1.0, n_tokens / sizes[-1])

    def best(self, n_most: int) -> tuple[int, float]:
        """The draft, of at most `n_most` tokens, that gains most where all of it is right, and how many times."""
        n_best = max(range(1, n_most + 1), key=lambda n: (n + 1) / self.cost(n + 1))
        return n_best, (n_best + 1) / self.cost(n_best + 1)

    @property
    def pays(self) -> bool:
        """Whether drafts make anything faster here."""
        return self.best(MOST_DRAFTED)[1] >= LEAST_GAIN


ASSUMED_COSTS = BatchCosts(by_size={1: 1.0, 4: 1.6, 8: 3.4})
"""Of two cores of a laptop, where nothing was measured."""


def measure_costs(time_s: Callable[[int], float], budget_s: float) -> BatchCosts:
    """Time each size, the least of up to three rounds: as many as the budget has room for, at least one.

    `time_s` decodes a batch of so many tokens and gives the seconds. The first decode of all warms up.
    """
    left_s = budget_s - time_s(1)
    least: dict[int, float] = {}
    for _ in range(3):
        took_s = 0.0
        for size in MEASURED_SIZES:
            seconds = time_s(size)
            least[size] = min(seconds, least.get(size, seconds))
            took_s += seconds
        left_s -= took_s
        if left_s < took_s:
            break
    return BatchCosts(by_size={size: max(1.0, seconds / least[1]) for size, seconds in least.items()})


class DraftLength:
    """How long drafts are, by how many of their kind were right in this turn and by what a batch costs.

    Nothing in it depends on time, so that the same turn is drafted in the same way again.
    """

    def __init__(self, costs: BatchCosts) -> None:
        self._costs = costs
        self._right: dict[int, float] = {}

    def choose(self, kind: int, n_most: int, *, draft_cost: float = 0.0) -> int:
        """The number of tokens, 0 to `n_most`, by which a decode is expected to gain most.

        Each of them costs `draft_cost` to draft, in times of one token.
        """
        prior = _PRIORS.get(kind, _OTHER_PRIOR)
        right = self._right.get(kind, prior)
        n_best, best = 0, 1.0
        expected, share = 1.0, 1.0
        for n in range(1, n_most + 1):
            share *= right
            expected += share
            gain = expected / (self._costs.cost(n + 1) + n * draft_cost)
            if gain > best:
                n_best, best = n, gain
        if n_best == 0:  # not for ever: the text may become one that repeats
            self._right[kind] = right + _FORGETTING * (prior - right)
        return n_best

    def learn(self, kind: int, n_right: int, *, failed: bool) -> None:
        """So many tokens of a draft were right, and, where it `failed`, the next was not."""
        right = self._right.get(kind, _PRIORS.get(kind, _OTHER_PRIOR))
        for _ in range(n_right):
            right += _LEARNING * (1 - right)
        if failed:
            right -= _LEARNING * right
        self._right[kind] = right
