"""What `doctor` says of a model file: read from its header alone, so no engine is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent.model.admission import admit
from agent.model.batch_costs import last_measured
from agent.model.locate import locate
from agent.model.machine import available_bytes
from agent.model.memory import plan_context
from agent.model.speculation import MOST_DRAFTED
from agent.types import Limits, Speculation


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """Sentences about the file and about memory."""

    path: str
    file: str
    hint: str
    memory: str
    memory_hint: str
    memory_status: Literal["ok", "warning"]


def report_model(name_or_path: str | None, limits: Limits) -> ModelReport:
    """Look at the model that a run would take. Raises ModelUnavailable, ModelFileError, UsageError."""
    found = locate(name_or_path)
    header = admit(found.path)
    plan = plan_context(header, limits.context_tokens, available_bytes())
    need_bytes = plan.need.total_bytes(plan.n_ctx)
    kind = {
        "demonstration": "demonstration model, bundled",
        "catalog": "from the catalog",
        "file": "your own file",
    }[found.kind]
    return ModelReport(
        path=found.path,
        file=f"{found.name} ({kind}), {_size(header.size_bytes)}, {header.architecture}, chat template with tools.",
        hint="Replace it with `frog-lsp model pull`." if found.kind == "demonstration" else found.path,
        memory=f"About {_size(need_bytes)} with {plan.n_ctx:,} tokens of context; {_size(available_bytes())} are free.",
        memory_hint=plan.note or "",
        memory_status="warning" if plan.note and found.kind != "demonstration" else "ok",
    )


def report_drafts(path: str, speculation: Speculation) -> str:
    """Whether tokens are drafted with the model in `path`, and why, from what was measured when it was loaded."""
    if speculation is False:
        return "No tokens are drafted: model.speculation is false."
    what = "Text that repeats what was read is drafted"
    known = last_measured(path)
    if known is None:
        return f"{what} where that pays: it is measured when the model is loaded for the first time."
    n_drafted, gain = known.costs.best(MOST_DRAFTED)
    cost = f"{n_drafted + 1} tokens at once take as long as {known.costs.cost(n_drafted + 1):.1f} one by one"
    measured = f"{cost} (measured {known.day})"
    if known.costs.pays:
        return f"{what}, {n_drafted} tokens ahead, up to {gain:.1f} times as fast: {measured}."
    if speculation is True:
        return f"{what} because model.speculation is true, though it does not pay on this machine: {measured}."
    again = "" if known.is_final else " It is measured again with the next loads."
    return f"No tokens are drafted, since it does not pay on this machine: {measured}.{again}"


def _size(n_bytes: int) -> str:
    """Bytes as a person says them, in units of 1024."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} bytes"
