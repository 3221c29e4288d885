"""Drafts of a model's own layer for the token after the next, on random weights: what they say is never right for a
reason, so what is tested is that the turns stay the same, and that the layer sees what it is made to see."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.model.batch_costs import costs_folder
from agent.model.client import WorkerModel, WorkerOptions
from agent.model.gguf_header import read_header
from agent.model.locate import ModelFile
from agent.model.memory import estimate, mtp_bytes
from agent.model.sampling import Sampling
from agent.model.speculation import BatchCosts
from agent.model.steering import Steering
from agent.tools.schemas import TOOLS
from agent.types import Limits, Turn
from quant import synth
from quant.synth_shape import find_shape

pytestmark = pytest.mark.model

FREE = BatchCosts(by_size={1: 1.0, 8: 1.0})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = replace(find_shape("tiny"), mtp=True)
    return synth.write_model(
        tmp_path_factory.mktemp("mtp") / "mtp.gguf", shape, texts={"frog.sampling": '{"temperature": 0.0}'}
    )


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[Any]:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: run `make setup`")
    from agent.model.engine_context import LoadedModel

    loaded = LoadedModel(str(path), n_gpu_layers=0, repack=True, on_progress=lambda _: True, load_mtp=True)
    assert loaded.has_mtp
    yield loaded
    loaded.close()


@pytest.fixture
def make_engine(model: Any) -> Iterator[Any]:
    from agent.model.engine import Engine
    from agent.model.engine_context import Tuning

    made: list[Any] = []

    def make(n_drafted: int = 3) -> Any:
        tuning = Tuning(n_rs_seq=n_drafted, micro_batch_tokens=64)
        made.append(Engine(model, n_ctx=1024, n_threads=1, tuning=tuning, costs=FREE if n_drafted else None))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def some_tokens(seed: int, n_tokens: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(256) for _ in range(n_tokens)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_turn_is_the_same_with_and_without(
    make_engine: Any, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    from agent.model import engine_mtp
    from agent.model.engine_sampling import Sampler
    from agent.model.engine_turn import generate_turn

    monkeypatch.setattr(engine_mtp, "ENOUGH_DRAFTED", 10_000)  # random weights are never right often
    turns = []
    for n_drafted in (0, 3):
        engine = make_engine(n_drafted)
        engine.read(some_tokens(0 if temperature == 0 else 2, 300))
        sampler = Sampler(Sampling(temperature=temperature), 2)
        made = generate_turn(engine, sampler, Steering({}, repairs=False), max_tokens=120)
        sampler.close()
        turns.append((made.tokens, made.finish, list(engine.ledger.tokens), engine.ledger.evaluated_tokens))
        assert engine.ledger.rejected_tokens == engine.drafted_tokens - engine.accepted_tokens
    assert turns[0] == turns[1]
    assert engine._mtp.raw and engine.drafted_tokens > 5


def test_the_layer_sees_what_it_would_see_in_one_reading(make_engine: Any) -> None:
    """After wrong drafts, tokens taken back, and a restored state, it drafts what a fresh one drafts."""
    engine = make_engine()
    text = some_tokens(5, 40)
    engine.read(text)
    engine.save()
    engine.begin_turn()
    for token in some_tokens(6, 30):
        engine.put(token, most_ahead=3)
    engine.end_turn()
    assert engine.ledger.rejected_tokens > 0
    said = list(engine.ledger.tokens)
    fresh = make_engine()
    fresh.read(said)
    n = len(said)
    for token in (1, 2, 3):
        assert engine._mtp.draft(token, n, 3) == fresh._mtp.draft(token, n, 3) != ()
    assert engine.rewind([*text, 9]) == len(text)
    assert engine._mtp.draft(9, len(text), 2) == ()  # the row of the last token is not there
    engine.read([9, 8])
    again = make_engine()
    again.read([*text, 9, 8])
    drafts = [one._mtp.draft(7, len(text) + 2, 2) for one in (engine, again)]
    assert all(len(draft) == 2 for draft in drafts)


def test_a_layer_that_is_seldom_right_is_left_alone(make_engine: Any) -> None:
    from agent.model.engine_mtp import ENOUGH_DRAFTED

    engine = make_engine()
    engine.read(some_tokens(7, 50))
    for seed in range(20):
        engine.begin_turn()
        for token in some_tokens(100 + seed, 10):
            engine.put(token, most_ahead=3)
        engine.end_turn()
    assert not engine._mtp.raw
    assert ENOUGH_DRAFTED <= engine.drafted_tokens < 2 * ENOUGH_DRAFTED
    before = engine.drafted_tokens
    engine.read(some_tokens(8, 20))
    engine.begin_turn()
    engine.put(5, most_ahead=3)
    assert engine.drafted_tokens == before


def test_a_failing_layer_ends_its_drafts_and_nothing_else(make_engine: Any) -> None:
    engine = make_engine()
    engine.read(some_tokens(9, 50))
    engine._mtp._lib.llama_memory_clear(engine._mtp._memory, True)
    assert engine._mtp._feed([10**9], engine._mtp._rows[:1], 50, with_output=True) is False
    assert not engine._mtp.raw
    engine.begin_turn()
    engine.put(5, most_ahead=3)
    assert len(engine.ledger) == 51


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_worker_uses_the_layer_and_says_the_same(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    header = read_header(path)
    need = estimate(header)
    assert mtp_bytes(header, need, 1000) == 1000 * need.kv_bytes_per_token + need.compute_bytes

    async def said(speculation: bool) -> Turn:
        file = ModelFile(path=str(path), name="mtp", kind="file")
        worker = WorkerModel(file, seed=1, options=WorkerOptions(speculation=speculation))
        try:
            await worker.open(Limits(context_tokens=1024, tokens_per_turn=60))
            await worker.begin("Fix.", TOOLS[:1], "It fails.")
            return await worker.generate([], lambda _: None, lambda *_: None)
        finally:
            await worker.close()

    plain, measured = (asyncio.run(said(speculation)) for speculation in (False, True))
    (kept,) = costs_folder().glob("*.json")
    free = {"costs": {str(size): cost for size, cost in FREE.by_size.items()}, "n_times": 1, "day": "2026-12-01"}
    kept.write_text(json.dumps(free))  # what was measured on a busy machine may say that no draft pays
    drafted = asyncio.run(said(True))
    assert plain.raw == measured.raw == drafted.raw
    assert plain.usage.draft_rejected_tokens == 0
    assert (drafted.usage.draft_rejected_tokens or 0) > 0
