"""What a person waits for when a proposal is applied: the edits of one document, and how they grow with its length."""

from __future__ import annotations

import statistics
import time
from functools import partial

from lsp_server.edits import text_edits
from tests.bench.table import Row, at_most, reported

N_EDITS = 100
ROUNDS = 7


def texts(n_lines: int) -> tuple[str, str]:
    """A module of `n_lines` lines, and the same with 100 of them changed, evenly spread."""
    lines = [f"    value_{number} = compute({number}, offset={number % 7})\n" for number in range(n_lines)]
    changed = list(lines)
    for at in range(0, n_lines, n_lines // N_EDITS):
        changed[at] = f"    value_{at} = None  # é𝄞\n"
    return "".join(lines), "".join(changed)


def edits_s(old: str, new: str) -> float:
    """Seconds to find the edits."""
    begun = time.perf_counter()
    made = text_edits(old, new, "utf-16")
    seconds = time.perf_counter() - begun
    assert len(made) == N_EDITS, len(made)
    return seconds


def median_s(n_lines: int) -> float:
    """The median of several rounds, after one to warm up."""
    measure = partial(edits_s, *texts(n_lines))
    measure()
    return statistics.median(measure() for _ in range(ROUNDS))


def rows() -> list[Row]:
    """100 changed lines in texts of three lengths."""
    seconds = {n_lines: median_s(n_lines) for n_lines in (1_000, 10_000, 100_000)}
    growth = (seconds[100_000] / 100_000) / (seconds[10_000] / 10_000)
    return [
        at_most("edits/100-in-10000-lines", seconds[10_000] * 1e3, "ms", 50),
        reported("edits/100-in-1000-lines", seconds[1_000] * 1e3, "ms"),
        reported("edits/100-in-100000-lines", seconds[100_000] * 1e3, "ms"),
        at_most("edits/growth", growth, "x", 2, "time a line, 100,000 lines against 10,000: 1 is linear"),
    ]
