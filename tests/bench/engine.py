"""What the engine costs over bare llama.cpp, and that nothing is read twice: on a made model of middle size.

Where the whole 4B was made once (`frog-lsp model synth 4b --form q4_k_m --vocabulary qwen`, some 20 minutes), it is
measured too. The targets are in `targets.py`.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from agent.model.chat_format import ChatFormat
from agent.model.engine import Engine
from agent.model.engine_chat import Conversation
from agent.model.engine_context import Context, LoadedModel, Tuning
from agent.model.engine_library import engine_build
from agent.model.machine import physical_cores
from agent.model.prefixes import PrefixStore
from agent.model.sampling import Sampling
from quant.synth import TEMPLATE, cached_path, make_cached
from tests.bench.table import Row, paired_medians
from tests.bench.targets import judge

ISSUE = "The tests fail: parse_date() takes 2024-02-30."
SOURCE = "\n".join(f"{n}. value_{n} = compute({n})" for n in range(1, 13))
SAMPLING = Sampling(temperature=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured: less of the large model, which takes seconds where the others take milliseconds."""

    n_ctx: int = 16_384
    n_turns: int = 30
    tokens_per_turn: int = 40
    n_prompt: int = 512
    n_decoded: int = 64
    rounds: int = 3
    n_threads: int = 1  # two that wait for each other on a busy machine would measure the machine


LARGE = Size(
    n_ctx=8192, n_turns=30, tokens_per_turn=2, n_prompt=256, n_decoded=24, rounds=2, n_threads=physical_cores()
)


def rows() -> list[Row]:
    """The rows of the medium model, and of the 4B where it was made."""
    found = measure("medium", make_cached("medium", "q4_k_m", n_threads=2), Size())
    whole = cached_path("4b", "q4_k_m", real=True)
    return [*found, *(measure("4b", whole, LARGE) if whole.exists() else [])]


def measure(name: str, path: Path, size: Size) -> list[Row]:
    """All rows of one model."""
    from tests.bench import engine_processes

    with tempfile.TemporaryDirectory(prefix="frog-bench-") as name_of_folder:
        folder = Path(name_of_folder)
        with loaded(path) as model:
            found = [*speed(name, model, size), *going_back(name, model, size, folder)]
            n_prefix = engine_processes.count_prefix(model)
        return [*found, *asyncio.run(engine_processes.rows(name, path, size, folder, n_prefix))]


@contextmanager
def loaded(path: Path) -> Iterator[LoadedModel]:
    """The weights in this process."""
    model = LoadedModel(str(path), n_gpu_layers=0, repack=True, on_progress=lambda _: True)
    try:
        yield model
    finally:
        model.close()


def speed(name: str, model: LoadedModel, size: Size) -> list[Row]:
    """How fast the engine is over llama_decode alone: prompts in turn, generation within one turn."""
    bare = Context(model, n_ctx=size.n_ctx, n_threads=size.n_threads, abort=threading.Event(), tuning=Tuning())
    engine = Engine(model, n_ctx=size.n_ctx, n_threads=size.n_threads)
    chat = Conversation(engine, ChatFormat(TEMPLATE, bos=model.vocab.bos, ends=model.vocab.ends), SAMPLING)
    tokens = some_tokens(model, size.n_prompt)

    def bare_prefill_s() -> float:
        bare.clear()
        return timed_s(lambda: decode_all(bare, tokens, bare.batch_tokens))

    def our_prefill_s() -> float:
        engine.rewind(tokens[:1])
        return timed_s(lambda: engine.read(tokens))

    prefill = paired_medians([bare_prefill_s, our_prefill_s], size.rounds)
    chat.begin("", [], ISSUE, 1)
    share, token_s = generation(engine, chat, size.n_decoded)
    chat.close()
    engine.close()
    bare.close()
    return [
        judge(name, "prefill-over-bare", prefill[0] / prefill[1], "x", "llama_decode alone, same batches"),
        judge(name, "decode-over-bare", share, "x", "llama_decode alone: its part of a turn's time"),
        judge(name, "prefill", size.n_prompt / prefill[1], "tokens/s", "of processor time"),
        judge(name, "decode", 1 / token_s, "tokens/s", "of processor time"),
    ]


def going_back(name: str, model: LoadedModel, size: Size, folder: Path) -> list[Row]:
    """What it costs to have a beginning again from disk, and to take a turn back."""
    facts = {"build": engine_build()}
    tokens = some_tokens(model, size.n_prompt + 1)
    times = {}
    for way in ("reading", "restoring"):
        store = PrefixStore(folder / "prefixes", facts)
        engine = Engine(model, n_ctx=size.n_ctx, n_threads=size.n_threads, prefixes=store)
        begun = time.perf_counter()  # with the disk
        n_there = engine.rewind(tokens, n_prefix=size.n_prompt)
        assert n_there == (0 if way == "reading" else size.n_prompt), n_there
        engine.read(tokens[n_there : size.n_prompt])
        times[way] = time.perf_counter() - begun
        engine.save(lasting=True)
        store.wait()
        if way == "reading":
            engine.close()
    engine.read(tokens[-1:])
    one_token_s = timed_s(lambda: engine.read(tokens[:1]))
    back_s = []
    for _ in range(5):
        engine.read(tokens[:8])
        back_s.append(timed_s(lambda: engine.rewind(tokens)))
        assert len(engine.ledger) == size.n_prompt
    engine.close()
    rollback_s = statistics.median(back_s)
    return [
        judge(
            name, "prefix-restore-over-reading", times["restoring"] / times["reading"], "x", f"{size.n_prompt} tokens"
        ),
        judge(name, "rollback-over-one-token", rollback_s / one_token_s, "x", "decoding one token"),
        judge(name, "rollback", rollback_s * 1e3, "ms"),
    ]


def some_tokens(model: LoadedModel, n_tokens: int) -> list[int]:
    """Tokens of source text, repeated."""
    tokens = model.vocab.tokenize(SOURCE)
    return (tokens * (n_tokens // len(tokens) + 1))[:n_tokens]


def decode_all(context: Context, tokens: list[int], step: int) -> None:
    """Decode behind what is there, in micro-batches, and nothing else."""
    begin = context.n_held
    for at in range(0, len(tokens), step):
        context.decode(tokens[at : at + step], begin + at)


def generation(engine: Engine, chat: Conversation, n_tokens: int) -> tuple[float, float]:
    """Of one turn, from the end of its prompt: the share of its time inside the decodes, and seconds a token."""
    begun = within = 0.0
    decode = engine._context.decode

    def on_prefill(done: int, total: int) -> None:
        nonlocal begun, within
        begun, within = time.process_time(), 0.0

    def decode_timed(tokens: Sequence[int], position: int) -> None:
        nonlocal within
        within += timed_s(lambda: decode(tokens, position))

    with mock.patch.object(engine._context, "decode", decode_timed):
        made = chat.generate(
            [], max_tokens=n_tokens, thought_tokens=None, on_text=lambda _: None, on_prefill=on_prefill
        )
    whole = time.process_time() - begun
    return within / whole, whole / made.usage.completion_tokens


def timed_s(action: Callable[[], object]) -> float:
    """Seconds of processor time of an action: what other processes do beside it does not count."""
    begun = time.process_time()
    action()
    return time.process_time() - begun
