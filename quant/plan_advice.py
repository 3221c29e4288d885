"""Which build to take on a machine, and why; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.model.memory import ENOUGH_CONTEXT, GIB, CacheType
from quant.plan import RESERVED_BYTES, Build, Machine, Row

FAST_READ, FAST_WRITE = 150.0, 20.0
"""Tokens a second from which on a larger build is worth its time: a turn still takes well under a minute."""

_FIRST_TOKENS = 10_000
"""Some files and outputs that a run has read before it edits."""

_KEPT = f"{RESERVED_BYTES / GIB:.0f} GiB left to an editor, tests and the system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """`build` is None where no build fits, or none was asked about (no `reasons`); `n_ctx` is then 0."""

    build: Build | None = None
    cache_type: CacheType | None = None
    n_ctx: int = 0
    reasons: tuple[str, ...]


def recommend(rows: Sequence[Row], machine: Machine) -> Recommendation:
    """The build of the catalog's default model to take.

    The default, if 64 K of context fit beside an editor; a larger one where the machine is fast enough for it to be
    quick; the largest smaller one where the default does not fit; where none has 64 K, the one with the most.
    """
    default = next((row.build for row in rows if row.build.is_default), None)
    if default is None:
        return Recommendation(reasons=())
    family = [row for row in rows if row.build.source_model == default.source_model and row.build.serves]
    fitting = [row for row in family if _is_enough(row)]
    memory = f"{machine.total_bytes / GIB:.1f} GiB of memory"
    if not fitting:
        return _most_room(family, memory)
    row, why = _choose(fitting, default)
    reasons = [
        why,
        f"With {row.most_tokens:,} tokens of context and a cache in {row.cache_type} it fits in {memory}, {_KEPT}.",
    ]
    if row.cache_type == "q8_0":
        reasons.append("The cache in 8 bits has half the size, and a long prompt is read more slowly.")
    if row.speed is not None:
        minutes = _FIRST_TOKENS / row.speed.read / 60
        took = f"{minutes:.0f} minutes" if minutes >= 2 else f"{60 * minutes:.0f} seconds"
        reasons.append(
            f"It would read {row.speed.read:.0f} and write {row.speed.write:.0f} tokens a second at first: the first "
            f"{_FIRST_TOKENS:,} tokens of a run take {took}."
        )
    if row.build.is_here:
        reasons.append("It is here already.")
    return Recommendation(build=row.build, cache_type=row.cache_type, n_ctx=row.most_tokens, reasons=tuple(reasons))


def _choose(fitting: Sequence[Row], default: Build) -> tuple[Row, str]:
    quick = [row for row in fitting if row.build.size_bytes > default.size_bytes and _is_quick(row)]
    if quick:
        row = max(quick, key=lambda row: (row.build.size_bytes, *_order(row)))
        assert row.speed is not None
        return row, (
            f"This machine is fast enough for it: it reads about {row.speed.read:.0f} and writes about "
            f"{row.speed.write:.0f} tokens a second, and it is closer to the original than {default.name}."
        )
    of_default = [row for row in fitting if row.build is default]
    if of_default:
        why = "It is the build that lost least for its size; larger ones are slower by the bytes that they read."
        return max(of_default, key=_order), why
    smaller = [row for row in fitting if row.build.size_bytes < default.size_bytes] or list(fitting)
    largest = max(row.build.size_bytes for row in smaller)
    row = max((row for row in smaller if row.build.size_bytes == largest), key=_order)
    return row, f"{default.name} has no room for {ENOUGH_CONTEXT:,} tokens beside an editor."


def _most_room(family: Sequence[Row], memory: str) -> Recommendation:
    def order(row: Row) -> tuple[bool, int, int]:
        return row.room != "alone", row.most_tokens, -row.build.size_bytes

    best = max((row for row in family if row.most_tokens), key=order, default=None)
    if best is None:
        return Recommendation(
            reasons=(
                f"No build fits in {memory}.",
                "Use a server on another machine: `frog-lsp fix … --endpoint URL --endpoint-model NAME`.",
            )
        )
    if best.room == "alone":
        reasons = (
            f"In {memory} no build fits beside an editor and tests; with little else open this one has room for "
            f"{best.most_tokens:,} tokens of context.",
        )
    else:
        reasons = (
            f"In {memory}, {_KEPT}, no build has room for {ENOUGH_CONTEXT:,} tokens; this one has most, "
            f"{best.most_tokens:,}: the model writes summaries of its own more often.",
        )
    return Recommendation(build=best.build, cache_type=best.cache_type, n_ctx=best.most_tokens, reasons=reasons)


def _is_enough(row: Row) -> bool:
    """Whether a run has all the context that it asked for, or as much as keeps the model's whole score."""
    return row.room != "alone" and row.most_tokens >= min(row.n_ctx, ENOUGH_CONTEXT) > 0


def _is_quick(row: Row) -> bool:
    return row.speed is not None and row.speed.read >= FAST_READ and row.speed.write >= FAST_WRITE


def _order(row: Row) -> tuple[int, bool]:
    """More context first, then f16 before q8_0."""
    return row.most_tokens, row.cache_type == "f16"
