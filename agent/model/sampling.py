"""The numbers of sampling: those of FrogNano's published evaluation, unless the model file has its own."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Temperature 0 is greedy. The repetition penalty is 1.0, which is none."""

    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 20
    min_p: float = 0.0


def read_sampling(text: str | None) -> Sampling:
    """The sampling that `frog.sampling` of a model file asks for (JSON); unknown or wrong values are passed over."""
    try:
        given = json.loads(text or "{}")
    except ValueError:
        return Sampling()
    default = Sampling()
    if not isinstance(given, dict):
        return default

    def number(key: str, otherwise: float) -> float:
        value = given.get(key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else otherwise

    return Sampling(
        temperature=float(number("temperature", default.temperature)),
        top_p=float(number("top_p", default.top_p)),
        top_k=int(number("top_k", default.top_k)),
        min_p=float(number("min_p", default.min_p)),
    )
