"""The targets of the engine's rows, in one table: (the largest or the smallest value that is met)."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.table import Row, at_least, at_most, reported


@dataclass(frozen=True, slots=True)
class Target:
    """A bound from above or from below; `of_4b` holds for the whole model, None: there it is only reported."""

    kind: str
    bound: float
    of_4b: float | None


AT_MOST, AT_LEAST = "at most", "at least"
ENGINE: dict[str, Target] = {
    "decode-over-bare": Target(AT_LEAST, 0.9, 0.97),  # a token of the medium model takes some 4 ms
    "prefill-over-bare": Target(AT_LEAST, 0.93, 0.98),
    "evaluated-over-least-30-turns": Target(AT_MOST, 1.0, 1.0),
    "prefix-tokens-in-run-2": Target(AT_MOST, 0, 0),
    "prefix-restore-over-reading": Target(AT_MOST, 0.2, 0.05),
    "rollback-over-one-token": Target(AT_MOST, 4.0, 1.0),
    "rollback": Target(AT_MOST, 20, 20),  # ms
    "resident-over-estimate": Target(AT_MOST, 1.1, 1.1),
    "resident-beside-parts": Target(AT_MOST, 350, 350),  # MiB
    "prompt-lookup": Target(AT_LEAST, 0.95, 1.5),  # on one thread a batch of the medium model gains little
    "prompt-lookup-of-new-text": Target(AT_LEAST, 0.9, None),
    "growth-of-12-runs": Target(AT_MOST, 2.0, 2.0),  # percent, after the second
}


def judge(model: str, name: str, value: float, unit: str, baseline: str = "") -> Row:
    """The row of one value, met or not by the table; a name that the table does not have is only reported."""
    row, target = f"engine-{model}/{name}", ENGINE.get(name)
    bound = None if target is None else target.of_4b if model == "4b" else target.bound
    if target is None or bound is None:
        return reported(row, value, unit, baseline)
    return (at_most if target.kind == AT_MOST else at_least)(row, value, unit, bound, baseline)
