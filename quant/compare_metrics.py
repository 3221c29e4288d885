"""What two models' logits say of each other: KL divergence, top-1 agreement, perplexity; and intervals. Pure.

Log-softmax over the whole vocabulary in float64, some rows at a time. Natural logarithms: a divergence is in nats a
token. Tokens next to each other are not independent, so means are resampled in blocks of neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

Z_95 = 1.959963984540054
"""The normal quantile of a two-sided interval of 95 %."""

BLOCK_TOKENS = 64
N_RESAMPLES = 2000
_MOST_INDICES = 1 << 18  # of blocks, at a time
_SEED = 7  # of the resampling, so that a report is the same every time
_PIECE_BYTES = 2 << 20  # of one array of log-probabilities; a handful are alive at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its interval of 95 %; the bounds are None where there is too little to tell."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """One value for each token that was predicted, in order.

    `kl`: sum of p_A (ln p_A - ln p_B) over the vocabulary, nats; `same_top`: whether both hold the same token for the
    likeliest; `nll_a`, `nll_b`: -ln of the probability of the token that really came.
    """

    kl: Array
    same_top: Array
    nll_a: Array
    nll_b: Array

    def __len__(self) -> int:
        return len(self.kl)

    def select(self, mask: Array) -> TokenScores:
        """The tokens where `mask` is true."""
        return TokenScores(
            kl=self.kl[mask], same_top=self.same_top[mask], nll_a=self.nll_a[mask], nll_b=self.nll_b[mask]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How near B is to A over some tokens. `ratio` is the perplexity of B over that of A."""

    n_tokens: int
    kl: Estimate
    kl_median: float
    kl_p99: float
    kl_max: float
    top1: Estimate
    perplexity_a: float
    perplexity_b: float
    ratio: Estimate


def log_softmax(logits: Array) -> tuple[Array, Array]:
    """(logarithms of probabilities, probabilities), float64, along the last axis."""
    values = logits.astype(np.float64)
    values -= values.max(axis=-1, keepdims=True)
    weights = np.exp(values)
    total = weights.sum(axis=-1, keepdims=True)
    values -= np.log(total)
    weights /= total
    return values, weights


def score(logits_a: Array, logits_b: Array, targets: Sequence[int]) -> TokenScores:
    """Compare (n, vocabulary) logits; `targets` are the n tokens that came.

    Raises ValueError where a model gave something else than numbers.
    """
    n, n_vocabulary = logits_a.shape
    step = max(1, _PIECE_BYTES // (8 * n_vocabulary))
    scores = join(
        [
            _score_piece(logits_a[at : at + step], logits_b[at : at + step], targets[at : at + step])
            for at in range(0, n, step)
        ]
    )
    for name, values in (("A", scores.nll_a), ("B", scores.nll_b), ("A or B", scores.kl)):
        if not np.isfinite(values).all():
            raise ValueError(f"the logits of {name} are not all numbers")
    return scores


def _score_piece(logits_a: Array, logits_b: Array, targets: Sequence[int]) -> TokenScores:
    (p, weight), (q, _) = log_softmax(logits_a), log_softmax(logits_b)
    rows = np.arange(len(p))
    columns = np.asarray(targets, dtype=np.int64)
    nll_a, nll_b = -p[rows, columns], -q[rows, columns]
    same_top = p.argmax(axis=-1) == q.argmax(axis=-1)
    with np.errstate(invalid="ignore"):  # a token that A cannot say: 0 times infinity, which counts nothing
        np.subtract(p, q, out=q)
        np.multiply(weight, q, out=q)
    q[weight == 0] = 0.0
    return TokenScores(kl=np.maximum(q.sum(axis=-1), 0.0), same_top=same_top, nll_a=nll_a, nll_b=nll_b)


def join(parts: Sequence[TokenScores]) -> TokenScores:
    """The tokens of all parts, in order."""
    empty = np.zeros(0)
    return TokenScores(
        kl=np.concatenate([empty, *(part.kl for part in parts)]),
        same_top=np.concatenate([empty.astype(bool), *(part.same_top for part in parts)]),
        nll_a=np.concatenate([empty, *(part.nll_a for part in parts)]),
        nll_b=np.concatenate([empty, *(part.nll_b for part in parts)]),
    )


def agreement(parts: Sequence[TokenScores]) -> Agreement | None:
    """Sum up the tokens of several conversations; None where there are none."""
    whole = join(parts)
    n = len(whole)
    if n == 0:
        return None
    ratio = bootstrap([part.nll_b - part.nll_a for part in parts])
    return Agreement(
        n_tokens=n,
        kl=bootstrap([part.kl for part in parts]),
        kl_median=float(np.median(whole.kl)),
        kl_p99=float(np.quantile(whole.kl, 0.99)),
        kl_max=float(whole.kl.max()),
        top1=wilson(float(whole.same_top.mean()), n),
        perplexity_a=_exp(float(whole.nll_a.mean())),
        perplexity_b=_exp(float(whole.nll_b.mean())),
        ratio=Estimate(
            value=_exp(ratio.value),
            low=None if ratio.low is None else _exp(ratio.low),
            high=None if ratio.high is None else _exp(ratio.high),
        ),
    )


def bootstrap(parts: Sequence[Array]) -> Estimate:
    """The mean over all values, with the interval that resampling blocks of 64 neighbours gives (percentiles).

    No block reaches from one part (a conversation) into the next.
    """
    blocks = [part[at : at + BLOCK_TOKENS] for part in parts for at in range(0, len(part), BLOCK_TOKENS)]
    sums, sizes = np.array([block.sum() for block in blocks]), np.array([len(block) for block in blocks])
    value = float(sums.sum() / sizes.sum())
    if len(blocks) < 2:
        return Estimate(value=value, low=None, high=None)
    random = np.random.default_rng(_SEED)
    step = max(1, _MOST_INDICES // len(blocks))
    means = []
    for at in range(0, N_RESAMPLES, step):
        chosen = random.integers(0, len(blocks), (min(step, N_RESAMPLES - at), len(blocks)))
        means.append(sums[chosen].sum(axis=1) / sizes[chosen].sum(axis=1))
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Estimate(value=value, low=float(low), high=float(high))


def wilson(share: float, n: int) -> Estimate:
    """A share of `n` independent trials with Wilson's score interval."""
    if n == 0:
        return Estimate(value=share, low=None, high=None)
    square = Z_95**2 / n
    centre = (share + square / 2) / (1 + square)
    half = Z_95 / (1 + square) * math.sqrt(share * (1 - share) / n + square / (4 * n))
    return Estimate(value=share, low=max(0.0, centre - half), high=min(1.0, centre + half))


def difference(b: Estimate, a: Estimate) -> Estimate:
    """b - a of two shares, from their own intervals (Newcombe 1998, method 10)."""
    value = b.value - a.value
    if b.low is None or b.high is None or a.low is None or a.high is None:
        return Estimate(value=value, low=None, high=None)
    low = value - math.hypot(b.value - b.low, a.high - a.value)
    high = value + math.hypot(b.high - b.value, a.value - a.low)
    return Estimate(value=value, low=low, high=high)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # the largest that a double holds
