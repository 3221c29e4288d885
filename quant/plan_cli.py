"""The command `frog-lsp model plan`."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterable, Sequence

from agent.cli_parser import EXIT_OK, positive_int, print_json, say, write_stdout
from agent.defaults import load_defaults
from agent.model.machine import available_bytes, physical_cores, total_bytes
from agent.model.memory import GIB
from agent.types import JsonObject
from quant.catalog import CatalogEntry, load_catalog, load_shapes
from quant.plan import RESERVED_BYTES, Build, Machine, Row, describe_size, plan_rows
from quant.plan_advice import Recommendation, recommend
from quant.plan_builds import collect_builds
from quant.plan_rates import Rates, Speed, main_kinds
from quant.plan_speed import describe_method, find_rates

WHAT = "say what each build needs and how fast it would be on this machine, and which to take"
_MEANINGS = {
    "slower": "it fits without the copies that make the processor read faster.",
    "alone": "with little else open, and less context.",
}
_NAME_WIDTH = 25
_WIDTH = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `model plan`."""
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="names or files (default: the catalog, what is kept)"
    )
    parser.add_argument("--context", type=positive_int, metavar="TOKENS", help="default: that of a run, 131,072")
    parser.add_argument("--measure", action="store_true", help="measure the speed again")
    parser.add_argument("--no-speed", action="store_true", help="memory alone: nothing is measured")


def run(arguments: argparse.Namespace) -> int:
    """Print a table and a recommendation. Raises UsageError, ModelFileError."""
    n_ctx = arguments.context or load_defaults().limits.context_tokens
    builds = collect_builds(load_catalog(), load_shapes(), arguments.models)
    rates, why_not = None, "no speed was asked for"
    if not arguments.no_speed:
        rates, problem = find_rates(_kinds(builds), again=arguments.measure, on_note=_note)
        why_not = problem or ""
    machine = this_machine()
    rows = plan_rows(builds, n_ctx, machine, rates)
    advice = recommend(rows, machine)
    if arguments.json:
        print_json(plan_json(rows, machine, rates, why_not, advice, n_ctx))
    else:
        write_stdout(describe(rows, machine, rates, why_not, advice, n_ctx).encode())
    return EXIT_OK


def choose_build(catalog: Sequence[CatalogEntry], on_note: Callable[[str], None]) -> tuple[CatalogEntry | None, str]:
    """The entry that the plan recommends for a run on this machine, and why. Raises UsageError."""
    builds = collect_builds(catalog, load_shapes(), [entry.name for entry in catalog])
    rates, _ = find_rates(_kinds(builds), on_note=on_note)
    machine = this_machine()
    advice = recommend(plan_rows(builds, load_defaults().limits.context_tokens, machine, rates), machine)
    chosen = advice.build.name if advice.build is not None else None
    return next((entry for entry in catalog if entry.name == chosen), None), " ".join(advice.reasons)


def this_machine() -> Machine:
    """The machine as it is now."""
    return Machine(total_bytes=total_bytes(), available_bytes=available_bytes(), n_threads=physical_cores())


def _kinds(builds: Iterable[Build]) -> set[int]:
    return {kind for build in builds if build.header is not None for kind in main_kinds(build.header)}


def _note(text: str) -> None:
    say(f"{text}\n")


def plan_json(
    rows: Sequence[Row], machine: Machine, rates: Rates | None, why_not: str, advice: Recommendation, n_ctx: int
) -> JsonObject:
    """The object of `--json`; sizes in bytes, speeds in tokens a second."""
    return {
        "context": n_ctx,
        "machine": {
            "total_bytes": machine.total_bytes,
            "available_bytes": machine.available_bytes,
            "reserved_bytes": RESERVED_BYTES,
            "threads": machine.n_threads,
        },
        "speed": _rates_json(rates, why_not),
        "builds": [_row_json(row) for row in rows],
        "recommendation": {
            "name": advice.build.name if advice.build else None,
            "cache_type": advice.cache_type,
            "context": advice.n_ctx or None,
            "reasons": list(advice.reasons),
        },
        "error": None,
    }


def _rates_json(rates: Rates | None, why_not: str) -> JsonObject:
    if rates is None:
        return {"measured": False, "reason": why_not}
    return {
        "measured": True,
        "method": describe_method(rates),
        "threads": rates.n_threads,
        "gpu": rates.on_gpu,
        "busy_share": rates.busy_share,
        "date": rates.date,
    }


def _row_json(row: Row) -> JsonObject:
    build, speed = row.build, row.speed
    return {
        "name": build.name,
        "installed": build.is_here,
        "size_bytes": build.size_bytes or None,
        "cache_type": row.cache_type,
        "context": row.n_ctx,
        "memory_bytes": row.need_bytes,
        "fits": row.room,
        "fits_now": row.fits_now,
        "largest_context": row.most_tokens,
        "read_tokens_per_s": _pair(speed, "read"),
        "write_tokens_per_s": _pair(speed, "write"),
        "problem": build.refusal or (None if build.header else "the catalog does not say its shape"),
    }


def _pair(speed: Speed | None, what: str) -> JsonObject | None:
    if speed is None:
        return None
    return {"empty": round(getattr(speed, what), 2), "full": round(getattr(speed, f"{what}_full"), 2)}


def describe(
    rows: Sequence[Row], machine: Machine, rates: Rates | None, why_not: str, advice: Recommendation, n_ctx: int
) -> str:
    """The plan for a person, in 80 columns."""
    lines = [
        f"This machine: {describe_size(machine.total_bytes)} of memory, {describe_size(machine.available_bytes)} free "
        f"now, {machine.n_threads} threads.",
        f"With {n_ctx:,} tokens of context, beside an editor, tests and the system ({RESERVED_BYTES / GIB:.0f} GiB):",
        "",
        f"  {'build':<{_NAME_WIDTH}} {'cache':<5} {'memory':>8}  {'fits':<10} {'reads':>11} {'writes':>11}",
    ]
    last = None
    for row in rows:
        lines.append(_line(row, is_first=row.build is not last, is_chosen=_is_chosen(row, advice)))
        last = row.build
    problems = {row.build.name: row.build.refusal for row in rows if row.build.refusal}
    notes = [f"{name} cannot serve: {why}." for name, why in problems.items()]
    unknown = sorted({row.build.name for row in rows if row.build.header is None and not row.build.refusal})
    notes += [f"The catalog does not say the shape of {', '.join(unknown)}."] if unknown else []
    if rates is None:
        notes.append(f"{why_not[:1].upper()}{why_not[1:]}.")
    else:
        notes.append(
            "Cache: of attention, in 16 or 8 bits. Reads and writes: tokens a second with an empty context → with a "
            "full one. " + describe_method(rates)
        )
    for word, meaning in _MEANINGS.items():
        if any(row.room == word for row in rows):
            notes.append(f"{word}: {meaning}")
    if any(row.build.is_here for row in rows):
        notes.append("+ is here already.")
    lines += ["", *(_wrap(note) for note in notes)]
    if advice.reasons:
        lines += ["", *_advice(advice)]
    return "\n".join(lines) + "\n"


def _line(row: Row, *, is_first: bool, is_chosen: bool) -> str:
    build = row.build
    mark = "*" if is_chosen else " "
    here = " +" if build.is_here else ""
    room = _NAME_WIDTH - len(here)
    name = build.name if len(build.name) <= room else build.name[: room - 1] + "…"
    name = f"{name}{here}" if is_first else ""
    memory = describe_size(row.need_bytes) if row.need_bytes is not None else "?"
    if build.header is None:
        return f"{mark} {name:<{_NAME_WIDTH}} {row.cache_type:<5} {memory:>8}  {'no' if build.refusal else '?'}"
    fits = f"to {row.most_tokens:,}" if row.room == "less" else row.room
    speeds = ""
    if row.speed is not None:
        speed = row.speed
        speeds = f"{_arrow(speed.read, speed.read_full):>11} {_arrow(speed.write, speed.write_full):>11}"
    return f"{mark} {name:<{_NAME_WIDTH}} {row.cache_type:<5} {memory:>8}  {fits:<10} {speeds}".rstrip()


def _arrow(empty: float, full: float) -> str:
    return f"{_number(empty)} → {_number(full)}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _is_chosen(row: Row, advice: Recommendation) -> bool:
    return row.build is advice.build and row.cache_type == advice.cache_type


def _advice(advice: Recommendation) -> list[str]:
    reasons = " ".join(advice.reasons)
    if advice.build is None:
        return [_wrap(f"Recommended: none. {reasons}")]
    how = "use" if advice.build.is_here else "pull"
    return [
        _wrap(f"Recommended: {advice.build.name}. {reasons}"),
        f"  frog-lsp model {how} {advice.build.name}",
    ]


def _wrap(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
