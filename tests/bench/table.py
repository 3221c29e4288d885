"""Rows of the benchmark: what was measured, against what, and whether it met its target."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    `value` is in `unit`; "x" is a ratio to `baseline` measured in the same run. `target` is a bound
    in words, `ok` whether it was met (None: reported only). A `value` of None was not measured; `baseline` says why.
    """

    row: str
    value: float | None
    unit: str
    baseline: str
    target: str
    ok: bool | None


def at_most(row: str, value: float, unit: str, bound: float, baseline: str = "") -> Row:
    """A row that is met when `value` is not above `bound`."""
    return Row(row, round(value, 3), unit, baseline, f"<= {bound:g}", value <= bound)


def at_least(row: str, value: float, unit: str, bound: float, baseline: str = "") -> Row:
    """A row that is met when `value` is not below `bound`."""
    return Row(row, round(value, 3), unit, baseline, f">= {bound:g}", value >= bound)


def reported(row: str, value: float, unit: str, baseline: str = "") -> Row:
    """A row without a target."""
    return Row(row, round(value, 3), unit, baseline, "", None)


def left_out(row: str, why: str) -> Row:
    """A row that cannot be measured here."""
    return Row(row, None, "", f"left out: {why}", "", None)


def paired_medians(measures: Sequence[Callable[[], float]], rounds: int) -> list[float]:
    """Run the measures in turn, `rounds` times after one warm-up, and return the median of each.

    In turn, so that a machine that slows down slows all of them down.
    """
    values: list[list[float]] = [[] for _ in measures]
    for number in range(rounds + 1):
        for series, measure in zip(values, measures, strict=True):
            value = measure()
            if number:
                series.append(value)
    return [statistics.median(series) for series in values]


def write_json(rows: Sequence[Row], path: Path) -> None:
    """Write the rows, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n")
    os.replace(part, path)


def render(rows: Sequence[Row]) -> str:
    """The table as text, one line a row."""
    head = ("row", "value", "unit", "target", "met", "baseline")
    met = {True: "yes", False: "NO", None: ""}
    cells = [head] + [
        (r.row, "-" if r.value is None else f"{r.value:g}", r.unit, r.target, met[r.ok], r.baseline) for r in rows
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)
