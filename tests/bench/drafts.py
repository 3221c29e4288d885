"""What drafts are worth: a turn that writes a function of 60 lines again, with one change, from what Read showed.

The text is forced, since a made model says nothing of sense: at each token the real chain of samplers runs, and what it
picks is not taken. All else is as in a run: the prompt, the drafts, the batches, what is taken back. A model that says
the same by itself is as fast. The second text is a function that was not read, where drafts can only cost.
"""

from __future__ import annotations

import argparse
import inspect
import textwrap
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.model.chat_format import ChatFormat
from agent.model.engine import Engine
from agent.model.engine_chat import Conversation
from agent.model.engine_context import Context, LoadedModel, Tuning
from agent.model.engine_sampling import Sampler
from agent.model.sampling import Sampling
from agent.model.speculation import LEAST_GAIN, MOST_DRAFTED, BatchCosts, measure_costs
from agent.tools.schemas import TOOLS
from agent.types import Observation
from quant.synth import TEMPLATE, cached_path, make_cached
from tests.bench.engine import LARGE, Size, loaded
from tests.bench.table import Row
from tests.bench.targets import judge

N_LINES = 60
BUDGET_S = 3.0
_CLASS = argparse.ArgumentParser


def rows() -> list[Row]:
    """The rows of the medium model, and of the 4B where it was made."""
    with loaded(make_cached("medium", "q4_k_m", n_threads=2)) as model:
        found = [*measure("medium", model, Size(), is_copy=True), *measure("medium", model, Size(), is_copy=False)]
    whole = cached_path("4b", "q4_k_m", real=True)
    if whole.exists():
        with loaded(whole) as model:
            found += measure("4b", model, LARGE, is_copy=True)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one turn took: seconds of processor time, decodes, and its drafts."""

    seconds: float
    n_decodes: int
    n_drafted: int
    n_accepted: int
    n_tokens: int


def measure(name: str, model: LoadedModel, size: Size, *, is_copy: bool) -> list[Row]:
    """The same turn without drafts and with those that pay on this machine."""
    costs = measured(model, size)
    n_drafted, gain = costs.best(MOST_DRAFTED)
    if gain < LEAST_GAIN:
        n_drafted = 0
    plain, drafted = (turn(model, size, n, costs, is_copy=is_copy) for n in (0, n_drafted))
    row = "prompt-lookup" if is_copy else "prompt-lookup-of-new-text"
    what = f"without; {drafted.n_tokens} tokens, drafts of {n_drafted}"
    counts = f"{drafted.n_accepted} of {drafted.n_drafted} drafted tokens right, {plain.n_decodes} decodes without"
    batch = f"a batch of {1 + n_drafted}, one token is 1"
    return [
        judge(name, row, plain.seconds / drafted.seconds, "x", what),
        judge(name, f"{row}-decodes", drafted.n_decodes, "decodes", counts),
        *([judge(name, "batch-over-one-token", costs.cost(1 + n_drafted), "x", batch)] if is_copy else []),
    ]


def measured(model: LoadedModel, size: Size) -> BatchCosts:
    """What batches cost, as a worker measures it."""
    tuning = Tuning(n_rs_seq=MOST_DRAFTED)
    context = Context(model, n_ctx=256, n_threads=size.n_threads, abort=threading.Event(), tuning=tuning)
    try:
        return measure_costs(context.time_batch, BUDGET_S)
    finally:
        context.close()


def turn(model: LoadedModel, size: Size, n_drafted: int, costs: BatchCosts, *, is_copy: bool) -> Spent:
    """One turn that answers a Read."""
    tuning = Tuning(n_rs_seq=n_drafted)
    engine = Engine(model, n_ctx=8192, n_threads=size.n_threads, tuning=tuning, costs=costs if n_drafted else None)
    chat = Conversation(engine, ChatFormat(TEMPLATE, bos=model.vocab.bos, ends=model.vocab.ends), Sampling())
    chat.begin("Fix it.", TOOLS[:1], "The parser is wrong.", 1)
    lines = textwrap.dedent(inspect.getsource(_CLASS.parse_known_intermixed_args)).splitlines()[:N_LINES]
    shown = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
    again = [*lines[:30], f"{lines[30]}  # changed", *lines[31:]]
    other = textwrap.dedent(inspect.getsource(_CLASS.format_help)).splitlines()[:N_LINES]
    call = "<tool_call>\n<function=Write>\n<parameter=file_path>\na.py\n</parameter>\n<parameter=content>\n"
    text = f"One line.\n</think>\n\n{call}" + "\n".join(again if is_copy else other)
    text += "\n</parameter>\n</function>\n</tool_call>"
    tokens = model.vocab.tokenize(text)
    forced = Forced(chat._sampler, [*tokens, model.vocab.tokenize("<|im_end|>")[0]])
    chat._sampler = forced  # type: ignore[assignment]
    begun, before = 0.0, 0

    def on_prefill(done: int, total: int) -> None:
        nonlocal begun, before
        begun, before = time.process_time(), engine.n_decodes

    chat.generate(
        [Observation(tool="Read", text=f"a.py\n{shown}")],
        max_tokens=8000,
        thought_tokens=None,
        on_text=lambda _: None,
        on_prefill=on_prefill,
    )
    seconds = time.process_time() - begun
    assert engine.ledger.tokens[-len(tokens) :] == tokens, "the turn is not what was forced"
    spent = Spent(
        seconds=seconds,
        n_decodes=engine.n_decodes - before,
        n_drafted=engine.drafted_tokens,
        n_accepted=engine.accepted_tokens,
        n_tokens=len(tokens),
    )
    chat.close()
    engine.close()
    return spent


class Forced:
    """Samples, and then says what it is told."""

    def __init__(self, sampler: Sampler | None, tokens: Sequence[int]) -> None:
        assert sampler is not None
        self._sampler = sampler
        self._tokens = list(tokens)

    def sample(self, context: Any, row: int = -1) -> int:
        """The next token that was given."""
        self._sampler.sample(context, row)
        return self._tokens.pop(0)

    def close(self) -> None:
        """Free the samplers."""
        self._sampler.close()
