"""Divergence, agreement and intervals, against values worked out by hand or by another formula."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quant.compare_metrics import (
    BLOCK_TOKENS,
    Estimate,
    TokenScores,
    agreement,
    bootstrap,
    difference,
    join,
    score,
    wilson,
)


def test_scores_of_two_small_distributions() -> None:
    a = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]], dtype=np.float32)) + 3  # logits have no fixed level
    b = np.log(np.array([[0.25, 0.5, 0.25], [0.2, 0.6, 0.2]], dtype=np.float32)) - 7
    scores = score(a, b, [0, 2])
    kl = [0.5 * math.log(2) - 0.25 * math.log(2), 2 * 0.1 * math.log(0.5) + 0.8 * math.log(0.8 / 0.6)]
    assert scores.kl == pytest.approx(kl, abs=1e-6)
    assert scores.same_top.tolist() == [False, True]
    assert scores.nll_a == pytest.approx([-math.log(0.5), -math.log(0.1)], abs=1e-6)
    assert scores.nll_b == pytest.approx([-math.log(0.25), -math.log(0.2)], abs=1e-6)


def test_a_large_vocabulary_in_pieces_is_the_same_as_at_once_and_exact_for_a_copy() -> None:
    random = np.random.default_rng(3)
    a = random.standard_normal((9, 150_000), dtype=np.float32) * 20
    b = a + random.standard_normal(a.shape, dtype=np.float32)
    p, q = (
        values.astype(np.float64) - np.logaddexp.reduce(values.astype(np.float64), axis=1)[:, None] for values in (a, b)
    )
    scores = score(a, b, range(9))
    assert scores.kl == pytest.approx((np.exp(p) * (p - q)).sum(axis=1), rel=1e-9)
    same = score(a, a.copy(), range(9))
    assert same.kl.max() == 0.0 and same.same_top.all() and (same.nll_a == same.nll_b).all()


def test_what_a_cannot_say_counts_nothing_and_what_is_no_number_is_refused() -> None:
    a, b = np.zeros((1, 3), dtype=np.float32), np.zeros((1, 3), dtype=np.float32)
    a[0, 2] = -np.inf
    scores = score(a, b, [0])
    assert scores.kl == pytest.approx([math.log(3) - math.log(2)])
    with pytest.raises(ValueError, match="of A or B"):
        score(b, a, [0])
    a[0, 0] = np.nan
    with pytest.raises(ValueError, match="of B are not all numbers"):
        score(b, a, [0])


def scores_of(kl: list[float], nll_a: list[float], nll_b: list[float], same: list[bool]) -> TokenScores:
    return TokenScores(
        kl=np.array(kl), same_top=np.array(same, dtype=bool), nll_a=np.array(nll_a), nll_b=np.array(nll_b)
    )


def test_the_sums() -> None:
    parts = [scores_of([0.0, 1.0], [1.0, 3.0], [2.0, 3.0], [True, False]), scores_of([2.0], [2.0], [3.0], [True])]
    found = agreement(parts)
    assert found is not None
    assert (found.n_tokens, found.kl.value, found.kl_median, found.kl_max) == (3, 1.0, 1.0, 2.0)
    assert found.perplexity_a == pytest.approx(math.exp(2.0))
    assert found.perplexity_b == pytest.approx(math.exp(8 / 3))
    assert found.ratio.value == pytest.approx(math.exp(2 / 3))
    assert found.top1 == wilson(2 / 3, 3)
    assert found.kl.low is not None and found.kl.high is not None
    assert 0.5 <= found.kl.low <= 1.0 <= found.kl.high <= 2.0
    assert agreement([]) is None
    assert len(join([])) == 0
    assert parts[0].select(np.array([False, True])).kl.tolist() == [1.0]


def test_resampling_covers_the_mean_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    n_covered = 0
    for _ in range(40):
        found = bootstrap([random.exponential(1.0, 40 * BLOCK_TOKENS)])
        assert found.low is not None and found.high is not None
        n_covered += found.low <= 1.0 <= found.high
    assert n_covered >= 33  # of 40; 38 expected


def test_neighbours_that_are_alike_widen_the_interval() -> None:
    random = np.random.default_rng(6)
    single = random.exponential(1.0, 64 * BLOCK_TOKENS)
    repeated = np.repeat(random.exponential(1.0, 64), BLOCK_TOKENS)
    narrow, wide = bootstrap([single]), bootstrap([repeated])
    assert narrow.low is not None and narrow.high is not None and wide.low is not None and wide.high is not None
    assert wide.high - wide.low > 4 * (narrow.high - narrow.low)
    assert bootstrap([np.ones(BLOCK_TOKENS)]) == Estimate(value=1.0, low=None, high=None)  # one block tells nothing


def test_intervals_of_shares() -> None:
    found = wilson(0.5, 10)  # the textbook's values
    assert (found.low, found.high) == (pytest.approx(0.2366, abs=1e-4), pytest.approx(0.7634, abs=1e-4))
    assert wilson(1.0, 40).low == pytest.approx(0.9124, abs=1e-4) and wilson(1.0, 40).high == 1.0
    assert wilson(0.0, 0) == Estimate(value=0.0, low=None, high=None)
    # Newcombe 1998, the example of 56/70 against 48/80: 0.0524 to 0.3339
    d = difference(wilson(56 / 70, 70), wilson(48 / 80, 80))
    assert (d.low, d.high) == (pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4))
