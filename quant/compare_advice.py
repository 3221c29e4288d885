"""Which of two models to use: one sentence from the measurements, by rules that are written down here; pure.

The smaller file is the one to be argued for: it costs less memory and time. It is recommended where its tool calls,
repaired as in a run, are as good within a margin, the intervals included, and its probabilities are near.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quant.compare_metrics import Agreement, Estimate, difference

MARGIN = 0.10
"""Shares of turns that differ by less are as good."""

NEAR_KL = 0.05
"""Nats a token, of what the model says. Published builds of 4 bits and more lie below, of 3 bits above (0.02, 0.07)."""

FIT_SHARE = 0.5
"""A model of which fewer turns are complete calls is no use in a run."""

_DECIDING = {"all_arguments": 1, "parses": 1, "repeats": -1, "capped": -1}  # 1: more is better
_DOES = {
    "all_arguments": "are complete tool calls",
    "parses": "can be read",
    "repeats": "repeat themselves",
    "capped": "hit the cap",
}
_SAME_SIZE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One model. `shares` of `compare_turns.MEASURES`, under the call guard; empty where no turns were generated."""

    letter: str
    name: str
    size_bytes: int
    shares: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """`use` is "a", "b", or None where it should be neither."""

    use: str | None
    sentence: str


def advise(a: Candidate, b: Candidate, said: Agreement | None, n_prompts: int) -> Advice:
    """`said` compares what the model says, None where the vocabularies differ."""
    if said is None and not (a.shares and b.shares):
        return Advice(use=None, sentence="Nothing was measured, so neither is recommended.")
    is_smaller = a.size_bytes < b.size_bytes * (1 - _SAME_SIZE)
    small, large = (a, b) if is_smaller else (b, a)
    if small.shares and max(small.shares["all_arguments"].value, large.shares["all_arguments"].value) < FIT_SHARE:
        return Advice(
            use=None,
            sentence=f"Use neither: {_percent(a)} of the turns of A and {_percent(b)} of those of B are complete tool "
            "calls.",
        )
    chosen, why = _choose(small, large, said, n_prompts)
    return Advice(use=chosen.letter, sentence=f"Use {chosen.letter.upper()}, {chosen.name}: {why}.")


def _choose(small: Candidate, large: Candidate, said: Agreement | None, n_prompts: int) -> tuple[Candidate, str]:
    calls, measure = judge_calls(small.shares, large.shares)
    kl = None if said is None else said.kl.value if said.kl.high is None else said.kl.high
    is_near = kl is not None and kl <= NEAR_KL
    size, logits = _size(small, large), _logits(said)
    if said is not None and said.kl_max == 0.0:
        return small, f"both give every token the same probability{size}"
    if calls == "worse":
        return large, f"{_shares(measure, large, small)}, a difference beyond chance{logits}"
    if calls == "better":
        return small, f"{_shares(measure, small, large)}, a difference beyond chance{size}"
    if calls == "as good":
        alike = f"{_shares(measure, small, large)}, as good within {100 * MARGIN:.0f} points"
        if is_near or said is None:
            return small, f"{alike}{size}{logits}"
        return large, f"tool calls are as good, but in what it says the other is far from it{logits}"
    few = f"{n_prompts} prompts are too few to tell tool calls apart" if n_prompts else "no turns were generated"
    if is_near:
        return small, f"it says nearly the same{logits}{size}; {few}"
    return large, f"{few}, and the other is not shown to be as good{logits}"


def judge_calls(small: Mapping[str, Estimate], large: Mapping[str, Estimate]) -> tuple[str, str]:
    """`worse`, `better`, `as good` or `unsure`: the tool calls of the smaller model against those of the larger; and
    the measure that says so."""
    first = next(iter(_DECIDING))
    if not small or not large:
        return "unsure", first
    ranges: dict[str, tuple[float, float]] = {}
    for measure, sign in _DECIDING.items():
        d = difference(small[measure], large[measure])
        if d.low is None or d.high is None:
            return "unsure", measure
        ranges[measure] = (d.low, d.high) if sign > 0 else (-d.high, -d.low)
    for measure, (_, high) in ranges.items():
        if high < 0:
            return "worse", measure
    if ranges[first][0] > 0:
        return "better", first
    return "as good" if all(low >= -MARGIN for low, _ in ranges.values()) else "unsure", first


def _shares(measure: str, one: Candidate, other: Candidate) -> str:
    own, its = one.shares[measure].value, other.shares[measure].value
    return f"{100 * own:.0f} % of its turns {_DOES[measure]}, {100 * its:.0f} % of {other.letter.upper()}'s"


def _logits(said: Agreement | None) -> str:
    if said is None:
        return ""
    return (
        f" (KL {said.kl.value:.2g}, the same first choice for {100 * said.top1.value:.1f} % of the tokens they write)"
    )


def _percent(candidate: Candidate) -> str:
    share = candidate.shares.get("all_arguments")
    return "no" if share is None else f"{100 * share.value:.0f} %"


def _size(small: Candidate, large: Candidate) -> str:
    saved = 1 - small.size_bytes / large.size_bytes
    return f", in a file {100 * saved:.0f} % smaller" if saved > _SAME_SIZE else ""
