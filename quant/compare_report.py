"""A comparison as a table of 80 columns and as the object of `--json`; pure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from quant.compare import Comparison, Side
from quant.compare_metrics import Agreement, Estimate
from quant.compare_stability import Stability
from quant.compare_turns import MEASURES, Tally
from quant.sizes import size_text

WIDTH = 80
LABELS = {
    "parses": "can be read",
    "real_tool": "a real tool",
    "all_arguments": "all arguments",
    "repeats": "repeats itself",
    "capped": "hits the cap",
    "no_call": "no call",
}
_LABEL_WIDTH = 16
_COLUMN_WIDTH = 16


def report(found: Comparison, plot: str | None) -> str:
    """The table with the advice below it."""
    parts = [_models(found), _logits(found), _turns(found)]
    parts += [_wrap(f"Note: {note}") for note in found.notes]
    parts.append(_wrap(found.advice.sentence))
    if plot is not None:
        parts.append(f"Plot: {plot}")
    return "\n\n".join(filter(None, parts)) + "\n"


def _models(found: Comparison) -> str:
    lines = []
    for letter, side in (("A", found.a), ("B", found.b)):
        lines.append(f"{letter}  {shorten(side.file.name, 64):<64} {size_text(side.header.size_bytes):>12}")
    return "\n".join(lines)


def _logits(found: Comparison) -> str:
    runs = f"{found.n_conversations} conversation{'s' * (found.n_conversations != 1)}"
    if found.difference is not None:
        return _wrap(
            f"Logits are not compared: the vocabularies differ ({found.difference}), so a divergence would mean "
            f"nothing. What follows is about tool calls alone, over {runs}."
        )
    head = f"Probabilities, over {found.n_read_tokens:,} tokens of {runs}"
    columns = [("it writes", found.said), ("it reads", found.heard)]
    rows: list[tuple[str, list[str]]] = [
        ("tokens", [_of(item, lambda i: f"{i.n_tokens:,}") for _, item in columns]),
        ("KL of B to A, nats a token", [_of(item, lambda i: _range(i.kl, 5)) for _, item in columns]),
        ("  median", [_of(item, lambda i: _number(i.kl_median, 5)) for _, item in columns]),
        ("  99 of 100 are below", [_of(item, lambda i: _number(i.kl_p99, 5)) for _, item in columns]),
        ("same first choice", [_of(item, lambda i: _percent(i.top1, 1)) for _, item in columns]),
        ("perplexity of A", [_of(item, lambda i: _number(i.perplexity_a, 3)) for _, item in columns]),
        ("perplexity of B", [_of(item, lambda i: _number(i.perplexity_b, 3)) for _, item in columns]),
        ("  B over A", [_of(item, lambda i: _range(i.ratio, 3)) for _, item in columns]),
    ]
    lines = [head, f"{'':<28}" + "".join(f"{title:>26}" for title, _ in columns)]
    lines += [f"{label:<28}" + "".join(f"{value:>26}" for value in values) for label, values in rows]
    return "\n".join(lines)


def _turns(found: Comparison) -> str:
    if not found.n_prompts:
        return "No turns were generated."
    a, b = found.stability
    tallies = [("A, raw", a.raw), ("A, repaired", a.repaired), ("B, raw", b.raw), ("B, repaired", b.repaired)]
    n_seeds = len(found.seeds)
    lines = [
        f"Turns: {found.n_prompts} prompts x {n_seeds} seed{'s' * (n_seeds != 1)}, "
        f"at most {found.turn_tokens:,} tokens each",
        " " * _LABEL_WIDTH + "".join(f"{title:>{_COLUMN_WIDTH}}" for title, _ in tallies),
    ]
    for measure in MEASURES:
        values = "".join(f"{_percent(tally.share(measure), 0):>{_COLUMN_WIDTH}}" for _, tally in tallies)
        lines.append(f"{LABELS[measure]:<{_LABEL_WIDTH}}{values}")
    lines.append("In brackets: intervals of 95 %. Raw: without the repair of calls while they are")
    lines.append("written (model.repairCalls); repaired: with it, as runs have it.")
    return "\n".join(lines)


def comparison_json(found: Comparison, plot: str | None) -> dict[str, Any]:
    """The object of `--json`, but for `error`."""
    logits = None
    if found.difference is None:
        logits = {
            "n_tokens_read": found.n_read_tokens,
            "said": _agreement_json(found.said),
            "heard": _agreement_json(found.heard),
        }
    return {
        "a": _side_json(found.a),
        "b": _side_json(found.b),
        "n_conversations": found.n_conversations,
        "context_tokens": found.context_tokens,
        "vocabulary_difference": found.difference,
        "logits": logits,
        "stability": {
            "n_prompts": found.n_prompts,
            "seeds": list(found.seeds),
            "turn_tokens": found.turn_tokens,
            "a": _stability_json(found.stability[0]),
            "b": _stability_json(found.stability[1]),
        },
        "recommendation": {"use": found.advice.use, "sentence": found.advice.sentence},
        "plot": plot,
        "notes": list(found.notes),
    }


def _side_json(side: Side) -> dict[str, Any]:
    return {"name": side.file.name, "path": side.file.path, "size_bytes": side.header.size_bytes}


def _agreement_json(item: Agreement | None) -> dict[str, Any] | None:
    return None if item is None else asdict(item)


def _stability_json(stability: Stability) -> dict[str, Any]:
    return {
        "raw": _tally_json(stability.raw),
        "repaired": _tally_json(stability.repaired),
        "n_repaired_turns": stability.n_repaired_turns,
    }


def _tally_json(tally: Tally) -> dict[str, Any]:
    return {"n_turns": tally.n_turns, **{name: asdict(share) for name, share in tally.shares().items()}}


def _of(item: Agreement | None, show: Callable[[Agreement], str]) -> str:
    return "-" if item is None else show(item)


def _range(item: Estimate, digits: int) -> str:
    value = _number(item.value, digits)
    if item.low is None or item.high is None:
        return value
    return f"{value} ({_number(item.low, digits)}–{_number(item.high, digits)})"


def _number(value: float, digits: int) -> str:
    """At most eight characters, whatever comes."""
    if 0 < abs(value) < 10 ** (2 - digits):
        return f"{value:.1e}"
    return f"{value:.{digits}f}" if abs(value) < 10 else f"{value:.2f}" if abs(value) < 10_000 else f"{value:.2e}"


def _percent(item: Estimate, digits: int) -> str:
    value = f"{100 * item.value:.{digits}f} %"
    if item.low is None or item.high is None:
        return value
    return f"{value} ({100 * item.low:.{digits}f}–{100 * item.high:.{digits}f})"


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def shorten(text: str, most: int) -> str:
    """The end of a text that is too long."""
    return text if len(text) <= most else f"…{text[1 - most :]}"
