"""Rows of the engine in real worker processes: what a run evaluates, what the next process need not, and memory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import psutil

from agent.model.chat_format import ChatFormat
from agent.model.client import WorkerModel, WorkerOptions
from agent.model.engine_context import LoadedModel
from agent.model.gguf_header import read_header
from agent.model.keeper import WorkerKeeper
from agent.model.locate import ModelFile
from agent.model.memory import MIB, estimate
from agent.tools.schemas import TOOLS
from agent.types import Limits, Observation, Speculation, Turn, Usage
from quant.synth import TEMPLATE
from tests.bench.table import Row
from tests.bench.targets import judge

if TYPE_CHECKING:
    from tests.bench.engine import Size

SYSTEM = "You fix an issue in a project. Look at the files, change what is wrong, and run the tests. " * 4
SOURCE = "\n".join(f"{n}. value_{n} = compute({n})" for n in range(1, 9))
N_RUNS = 12


def count_prefix(model: LoadedModel) -> int:
    """Tokens of the system prompt and the tools."""
    chat = ChatFormat(TEMPLATE, bos=model.vocab.bos, ends=model.vocab.ends)
    return len(model.vocab.tokenize_parts(chat.prefix(SYSTEM, TOOLS, "x").system))


async def rows(name: str, path: Path, size: Size, folder: Path, n_prefix: int) -> list[Row]:
    """The rows of one model; `n_prefix` tokens are those of `count_prefix`."""
    with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder / "cache")}):
        return [
            *await evaluated(name, path, size),
            await second_process(name, path, size, n_prefix, folder / "empty"),
            *await memory(name, path, size),
        ]


@asynccontextmanager
async def opened(
    path: Path, size: Size, keeper: WorkerKeeper | None = None, *, speculation: Speculation = "auto"
) -> AsyncIterator[WorkerModel]:
    """A conversation that has begun; the seed is fixed."""
    file = ModelFile(path=str(path), name=path.stem, kind="file")
    options = WorkerOptions(n_threads=size.n_threads, speculation=speculation)
    model = WorkerModel(file, seed=1, options=options, keeper=keeper)
    try:
        await model.open(Limits(context_tokens=size.n_ctx, tokens_per_turn=size.tokens_per_turn))
        await model.begin(SYSTEM, TOOLS, "The tests fail.")
        yield model
    finally:
        await model.close()


async def turn(model: WorkerModel, number: int) -> Turn:
    """One turn; all but the first answer an observation."""
    seen = [Observation(tool="Read", text=f"source_{number}.py\n{SOURCE}")] if number else []
    return await model.generate(seen, lambda _: None, lambda *_: None)


async def evaluated(name: str, path: Path, size: Size) -> list[Row]:
    """Tokens decoded in a run over the tokens of its conversation: each once is the least possible."""
    total = Usage()
    async with opened(path, size) as model:
        for number in range(size.n_turns):
            made = await turn(model, number)
            total += made.usage
    decoded = (total.evaluated_tokens or 0) + (total.redecoded_tokens or 0)
    least = made.context_tokens - 1  # the last token was sampled, not decoded
    return [
        judge(name, "evaluated-over-least-30-turns", decoded / least, "x", f"{size.n_turns} turns, {least:,} tokens"),
        judge(name, "redecoded", float(total.redecoded_tokens or 0), "tokens"),
    ]


async def second_process(name: str, path: Path, size: Size, n_prefix: int, cache: Path) -> Row:
    """Tokens of the prefix that a second process decodes; the first one left its state on disk."""
    read = []
    with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(cache)}):
        for _ in range(2):
            async with opened(path, size) as model:
                usage = (await turn(model, 0)).usage
                read.append((usage.evaluated_tokens or 0) + (usage.redecoded_tokens or 0))
    again = n_prefix - (read[0] - read[1])
    return judge(name, "prefix-tokens-in-run-2", float(again), "tokens", f"of {n_prefix}, in a new process")


async def memory(name: str, path: Path, size: Size) -> list[Row]:
    """Resident memory of a worker against the estimate, and what twelve runs in one worker add.

    Without drafts: they keep more states only where these are to spare.
    """
    keeper, resident = WorkerKeeper(), []
    for _ in range(N_RUNS):
        async with opened(path, size, keeper, speculation=False) as model:
            for number in range(2):
                await turn(model, number)
            assert model._worker is not None
            resident.append(psutil.Process(model._worker.pid).memory_info().rss)
    await keeper.close()
    need = estimate(read_header(path))
    held = need.weights_bytes + need.repacked_bytes + size.n_ctx * need.kv_bytes_per_token + need.state_bytes
    expected = need.total_bytes(size.n_ctx)
    return [
        judge(name, "resident-over-estimate", resident[-1] / expected, "x", f"{expected / MIB:,.0f} MiB estimated"),
        judge(name, "resident-beside-parts", (resident[-1] - held) / MIB, "MiB", "weights, attention cache, state"),
        judge(name, "resident", resident[-1] / MIB, "MiB"),
        judge(name, "growth-of-12-runs", 100 * (resident[-1] / resident[1] - 1), "%", "after the second run"),
    ]
