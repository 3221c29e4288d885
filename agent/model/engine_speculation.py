"""How long drafts may be with a model on this machine: measured when it is loaded for the first time, then kept."""

from __future__ import annotations

import threading
from dataclasses import replace

from agent.errors import ModelUnavailable
from agent.model.batch_costs import CostStore
from agent.model.engine_context import Context, DecodeError, LoadedModel, Tuning
from agent.model.speculation import LEAST_GAIN, BatchCosts, measure_costs

BUDGET_S = 0.6
_CONTEXT_TOKENS = 256


def tune_drafts(
    model: LoadedModel, tuning: Tuning, *, n_threads: int, is_forced: bool, store: CostStore, abort: threading.Event
) -> tuple[Tuning, BatchCosts | None]:
    """The tuning with the drafts that pay here, of at most `tuning.n_rs_seq` tokens, and what batches cost.

    Where they do not pay and are not forced there are none, no states are kept for them, and the costs are None; so
    it is where measuring is stopped or there is no memory for it.
    """
    if tuning.n_rs_seq < 1:
        return tuning, None
    known = store.load()
    if known is None or not known.is_final:
        try:
            known = store.store(_measure(model, tuning, n_threads, abort))
        except (DecodeError, ModelUnavailable):
            return replace(tuning, n_rs_seq=0), None
    n_drafted, gain = known.costs.best(tuning.n_rs_seq)
    if gain < LEAST_GAIN and not is_forced:
        return replace(tuning, n_rs_seq=0), None
    return replace(tuning, n_rs_seq=n_drafted), known.costs


def _measure(model: LoadedModel, tuning: Tuning, n_threads: int, abort: threading.Event) -> BatchCosts:
    """In a small context of its own: what a batch of some tokens costs more is hardly the attention."""
    context = Context(model, n_ctx=_CONTEXT_TOKENS, n_threads=n_threads, abort=abort, tuning=tuning)
    try:
        return measure_costs(context.time_batch, BUDGET_S)
    finally:
        context.close()
