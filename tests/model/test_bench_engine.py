"""The engine's benchmark measures: on the smallest model its counts are met, and a slowed engine misses its target."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quant.synth import write_model
from quant.synth_shape import find_shape
from tests.bench.table import Row
from tests.bench.targets import ENGINE, judge

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("require_model")]


def by_name(rows: Sequence[Row]) -> dict[str, Row]:
    return {row.row.partition("/")[2]: row for row in rows}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = replace(find_shape("tiny"), hidden=256, feed_forward=1024, context=16_384)
    return write_model(tmp_path_factory.mktemp("bench") / "m.gguf", shape)


@pytest.mark.slow
def test_a_slowed_engine_misses_its_targets(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.model.engine import Engine
    from tests.bench.engine import Size, loaded, speed

    size = Size(n_ctx=2048, n_prompt=256, n_decoded=16, rounds=1)
    decode = Engine._decode

    def slow(engine: Engine, tokens: Sequence[int], *more: Any) -> None:
        until = time.process_time() + 0.01 * len(tokens)
        while time.process_time() < until:
            pass
        decode(engine, tokens, *more)

    with loaded(path) as model:
        fast = by_name(speed("medium", model, size))
        monkeypatch.setattr(Engine, "_decode", slow)
        slowed = by_name(speed("medium", model, size))
    for name in ("prefill-over-bare", "decode-over-bare"):
        assert slowed[name].ok is False, slowed[name]
        assert slowed[name].value < 0.6 * fast[name].value


@pytest.mark.slow
async def test_the_counts_are_met_in_real_processes(path: Path, tmp_path: Path) -> None:
    from tests.bench.engine import Size, loaded
    from tests.bench.engine_processes import count_prefix, rows

    size = Size(n_ctx=16_384, n_turns=4, tokens_per_turn=8)
    with loaded(path) as model:
        n_prefix = count_prefix(model)
    found = by_name(await rows("medium", path, size, tmp_path, n_prefix))
    assert n_prefix > 300
    assert found["evaluated-over-least-30-turns"].value == 1
    assert found["prefix-tokens-in-run-2"].value == 0
    assert found["prefix-tokens-in-run-2"].ok is True
    wrong = judge("medium", "prefix-tokens-in-run-2", 1, "tokens")
    assert wrong.ok is False
    assert found["growth-of-12-runs"].ok is True, found["growth-of-12-runs"]


def test_what_cannot_be_measured_is_a_row_with_its_reason(tmp_path: Path) -> None:
    from tests.bench.rivals import SERVER, served
    from tests.bench.table import render, write_json

    rows = served(tmp_path, str(tmp_path / "none"))
    assert [row.value for row in rows] == [None, None] and all(SERVER in row.baseline for row in rows)
    assert [row.ok for row in rows] == [None, None]
    assert " -  " in render(rows)
    write_json(rows, tmp_path / "rows.json")
    assert json.loads((tmp_path / "rows.json").read_text())[0]["value"] is None


def test_every_target_is_judged_both_ways() -> None:
    for name, target in ENGINE.items():
        for model, bound in (("medium", target.bound), ("4b", target.of_4b)):
            if bound is None:
                assert judge(model, name, 0, "x").ok is None
                continue
            step = 0.001 if target.kind == "at most" else -0.001
            assert judge(model, name, bound, "x").ok is True
            assert judge(model, name, bound + step, "x").ok is False
    assert judge("medium", "no such row", 1, "x").ok is None
