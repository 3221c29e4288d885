"""The estimate of memory against what a real worker has: small models whose cache is as large as a large one's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.model.client import WorkerModel, WorkerOptions
from agent.model.gguf_header import read_header
from agent.model.keeper import WorkerKeeper
from agent.model.locate import ModelFile
from agent.model.memory import MIB, Setup, estimate
from agent.types import CacheChoice, Limits
from quant.synth import write_model
from quant.synth_shape import find_shape

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("require_model")]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two attention layers with the heads of the 4B: 8 KiB of cache a token at 16 bits, 256 MiB for 32,768."""
    shape = replace(find_shape("tiny"), layers=8, heads=4, kv_heads=4, head_size=256, rotary=64, context=131_072)
    return write_model(tmp_path_factory.mktemp("memory") / "wide.gguf", shape)


@pytest.fixture
async def keeper() -> AsyncIterator[WorkerKeeper]:
    kept = WorkerKeeper()
    yield kept
    await kept.close()


async def resident_mib(path: Path, keeper: WorkerKeeper, n_ctx: int, **options: Any) -> float:
    """Of a worker after its first turn."""
    file = ModelFile(path=str(path), name=path.stem, kind="file")
    options = {"speculation": False, **options}
    model = WorkerModel(file, seed=1, context_is_explicit=True, options=WorkerOptions(**options), keeper=keeper)
    try:
        await model.open(Limits(context_tokens=n_ctx, tokens_per_turn=16))
        await model.begin("S", [], "word " * 200)
        await model.generate([], lambda _: None, lambda *_: None)
        assert model._worker is not None
        return psutil.Process(model._worker.pid).memory_info().rss / MIB
    finally:
        await model.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_ctx", "cache_type"),
    [(8192, "f16"), (32_768, "q8_0"), (131_072, "f16"), (131_072, "q8_0")],
)
async def test_a_worker_needs_what_was_estimated(
    path: Path, keeper: WorkerKeeper, n_ctx: int, cache_type: CacheChoice
) -> None:
    assert cache_type != "auto"
    resident = await resident_mib(path, keeper, n_ctx, cache_type=cache_type)
    need = estimate(read_header(path), Setup(cache_type=cache_type))
    n_unused = n_ctx - 1024  # the mask takes memory only as far as the context is filled
    expected = (need.total_bytes(n_ctx) - n_unused * need.mask_bytes_per_token) / MIB
    assert resident == pytest.approx(expected, rel=0.1)
