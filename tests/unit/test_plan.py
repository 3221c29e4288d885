"""`model plan`: memory, room and speed of each build, and which to take."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.model.gguf_header import read_header
from agent.model.memory import CacheType, Setup, estimate
from quant.catalog import load_catalog, load_shapes, user_catalog_path
from quant.plan import Build, Machine, Row, plan_rows
from quant.plan_advice import recommend
from quant.plan_builds import collect_builds, describe_entry
from quant.plan_cli import describe, plan_json
from quant.plan_measure import write_holes
from quant.plan_rates import Pace, Rates, expected_speed, main_kinds, matrix_values
from quant.plan_speed import describe_method, find_rates, read_rates, speed_path
from quant.synth_shape import find_shape
from tests.frog import Frog
from tests.gguf_files import make_gguf

GIB = 1 << 30
Q4, Q8, IQ4 = (f"FrogNano-4B-2609-{kind}" for kind in ("Q4_K_M", "Q8_0", "IQ4_XS"))
Q4_K, Q6_K, Q8_0 = 12, 14, 8
SLOW = Pace(read_s=1e-11, write_s=4e-11)
EVEN = Rates(
    values=dict.fromkeys((Q4_K, Q6_K, Q8_0, 13, 23, 30), SLOW),
    attention={"f16": Pace(read_s=1e-10, write_s=1e-9), "q8_0": Pace(read_s=3e-10, write_s=5e-10)},
    n_threads=2,
    on_gpu=False,
    busy_share=0.0,
    date="2026-01-02T03:04:05+00:00",
)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


def catalog_builds() -> list[Build]:
    return collect_builds(load_catalog(), load_shapes())


def machine(gib: float) -> Machine:
    return Machine(total_bytes=int(gib * GIB), available_bytes=int(gib * GIB * 0.75), n_threads=4)


def rows_of(gib: float, *, n_ctx: int = 131_072, rates: Rates | None = None) -> list[Row]:
    return plan_rows(catalog_builds(), n_ctx, machine(gib), rates)


def test_the_catalog_knows_the_bytes_of_its_builds() -> None:
    """Before a download: the mixes that llama.cpp's quantizer makes have nearly the published sizes."""
    shapes = load_shapes()
    for entry in load_catalog():
        header = describe_entry(entry, shapes[entry.source_model])
        assert header is not None
        layers, head = matrix_values(header)
        assert sum(layers.values()) == pytest.approx(3.59e9, rel=0.07), entry.name
        assert sum(head.values()) == 248_320 * 2560
        per_block = sum(header.matrix_bytes.values()) + header.tensors[0].size_bytes
        assert per_block == pytest.approx(entry.size_bytes, rel=0.02), entry.name


def test_a_users_own_catalog_says_its_shape() -> None:
    """Before a download; an entry without one, or with one that cannot be, is listed without figures."""
    bundled = json.loads((Path(__file__).parents[2] / "quant" / "catalog.json").read_text())
    (q8,) = [row for row in bundled["models"] if row["name"] == Q8]
    shapes = {"me/mine": bundled["shapes"][q8["source_model"]], "me/bad": {"n_tokens": "many"}}
    more = [{**q8, "name": name, "source_model": f"me/{name}"} for name in ("mine", "bad", "unknown")]
    user_catalog_path().parent.mkdir(parents=True)
    user_catalog_path().write_text(json.dumps({"shapes": shapes, "models": more}))
    rows = {row.build.name: row for row in rows_of(64)}
    assert rows["mine"].need_bytes == rows[Q8].need_bytes
    assert rows["bad"].need_bytes is rows["unknown"].need_bytes is None
    advice = recommend(rows_of(64), machine(64))
    assert "unknown" in describe(rows_of(64), machine(64), None, "", advice, 131_072)
    user_catalog_path().write_text('{"shapes": []}')
    with pytest.raises(UsageError, match="shapes"):
        load_shapes()


@pytest.mark.parametrize(
    ("cache_type", "n_ctx", "measured_gib"),
    [("f16", 8192, 4.6), ("f16", 131_072, 8.4), ("q8_0", 131_072, 6.5)],
)
def test_the_estimate_is_what_was_measured(cache_type: CacheType, n_ctx: int, measured_gib: float) -> None:
    """Resident memory of a worker with a random 4B in Q4_K_M, which holds no states to go back to."""
    (row,) = [row for row in rows_of(64, n_ctx=n_ctx) if row.build.name == Q4 and row.cache_type == cache_type]
    header = row.build.header
    assert header is not None and row.need_bytes is not None
    states = estimate(header, Setup(cache_type=cache_type)).checkpoints_bytes
    assert (row.need_bytes - states) / GIB == pytest.approx(measured_gib, rel=0.06)


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import agent.model.machine as place

    whole = place.total_bytes()
    monkeypatch.setattr(place, "_cgroup_folders", lambda controller="": [] if controller else [tmp_path])
    assert place.total_bytes() >= whole
    (tmp_path / "memory.max").write_text("max\n")
    assert place.total_bytes() >= whole
    (tmp_path / "memory.max").write_text(f"{2 * GIB}\n")
    assert place.total_bytes() == 2 * GIB


def test_a_row_counts_with_the_one_estimator() -> None:
    for row in rows_of(64):
        assert row.build.header is not None
        need = estimate(row.build.header, Setup(cache_type=row.cache_type))
        assert row.need_bytes == need.total_bytes(131_072)
        assert row.room == "yes" and row.most_tokens == 131_072


@pytest.mark.parametrize(
    ("gib", "name", "cache_type", "n_ctx", "reason"),
    [
        (4, None, None, 0, "No build fits in 4.0 GiB"),
        (5.5, IQ4, "q8_0", None, "with little else open"),
        (7, IQ4, "q8_0", None, "no build has room for 65,536"),
        (8, Q4, "q8_0", None, "lost least for its size"),
        (12, Q4, "q8_0", 131_072, "The cache in 8 bits"),
        (16, Q4, "f16", 131_072, "3 GiB left to an editor"),
        (64, Q4, "f16", 131_072, "slower by the bytes"),
    ],
)
def test_what_is_recommended(gib: float, name: str, cache_type: str, n_ctx: int | None, reason: str) -> None:
    advice = recommend(rows_of(gib), machine(gib))
    assert (advice.build and advice.build.name, advice.cache_type) == (name, cache_type)
    assert n_ctx is None or advice.n_ctx == n_ctx
    assert reason in " ".join(advice.reasons)


def test_a_fast_machine_gets_a_larger_build() -> None:
    fast = replace(EVEN, values=dict.fromkeys(EVEN.values, Pace(read_s=1e-13, write_s=3e-12)))
    advice = recommend(rows_of(64, rates=fast), machine(64))
    assert advice.build is not None and advice.build.name == Q8  # bf16 is for making others
    assert "fast enough" in advice.reasons[0]
    slow = recommend(rows_of(64, rates=EVEN), machine(64))
    assert slow.build is not None and slow.build.name == Q4
    tight = recommend(rows_of(9, rates=fast), machine(9))  # Q8_0 has no room there
    assert tight.build is not None and tight.build.name not in (Q8, Q4)


def test_speed_is_arithmetic() -> None:
    (build,) = [build for build in catalog_builds() if build.name == Q8]
    assert build.header is not None
    layers, head = matrix_values(build.header)
    n_layers, n_head, queries = sum(layers.values()), sum(head.values()), 8 * 16 * 256
    speed = expected_speed(build.header, "f16", 1000, EVEN)
    assert speed is not None
    assert speed.read == pytest.approx(1 / (n_layers * 1e-11))
    assert speed.write == pytest.approx(1 / ((n_layers + n_head) * 4e-11))
    assert 1 / speed.read_full - 1 / speed.read == pytest.approx(1000 * queries * 1e-10)
    assert 1 / speed.write_full - 1 / speed.write == pytest.approx(1000 * queries * 1e-9)
    assert expected_speed(build.header, "f16", 1000, replace(EVEN, values={Q4_K: SLOW})) is None
    assert main_kinds(build.header) == {Q8_0}


def test_types_that_were_not_measured_are_as_fast_as_the_rest() -> None:
    (build,) = [build for build in catalog_builds() if build.name == Q4]
    assert build.header is not None
    whole = expected_speed(build.header, "f16", 0, EVEN)
    part = expected_speed(build.header, "f16", 0, replace(EVEN, values={Q4_K: SLOW}))
    assert whole is not None and part is not None
    assert part.write == pytest.approx(whole.write) and part.read == pytest.approx(whole.read)


def test_the_gain_of_threads() -> None:
    said: dict[str, Any] = {
        "values": {"12": [4e-11, 8e-11]}, "attention": {"f16": [4e-10, 8e-10]}, "gain": [3.0, 1.5],
        "on_gpu": False, "busy_share": 0.1, "date": "2026-01-02",
    }  # fmt: skip
    assert read_rates(said, 4).values[12] == Pace(read_s=4e-11 / 3, write_s=8e-11 / 1.5)
    assert read_rates({**said, "gain": [9.0, 0.2]}, 4).values[12] == Pace(read_s=1e-11, write_s=8e-11)
    assert read_rates({**said, "busy_share": 0.9}, 4).values[12] == Pace(read_s=1e-11, write_s=2e-11)
    assert (
        read_rates(said, 1).values[12]
        == read_rates({**said, "on_gpu": True}, 4).values[12]
        == Pace(read_s=4e-11, write_s=8e-11)
    )
    assert "90" in describe_method(read_rates({**said, "busy_share": 0.9}, 4))


def test_the_table_fits_80_columns(tmp_path: Path) -> None:
    builds = [*catalog_builds(), Build(name="x" * 60, header=None, size_bytes=1, is_here=True, refusal="it is bad")]
    for gib in (4, 8, 64):
        for rates in (None, EVEN, replace(EVEN, busy_share=0.9)):
            rows = plan_rows(builds, 131_072, machine(gib), rates)
            advice = recommend(rows, machine(gib))
            text = describe(rows, machine(gib), rates, "llama-cpp-python is not installed", advice, 131_072)
            assert max(map(len, text.splitlines())) <= 80, text
            assert text.count("→") >= (28 if rates and gib > 8 else 0)
            assert json.dumps(plan_json(rows, machine(gib), rates, "", advice, 131_072))


def test_a_model_of_holes_takes_no_room(tmp_path: Path) -> None:
    path = write_holes(tmp_path / "m.gguf", replace(find_shape("4b"), layers=2, interval=2, vocabulary=0), Q4_K)
    header = read_header(path)
    assert header.size_bytes > 100 << 20
    assert path.stat().st_blocks * 512 < 1 << 20
    assert header.matrix_bytes[Q4_K] / header.tensor_bytes > 0.95


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.model
@pytest.mark.usefixtures("require_model")
def test_the_engine_is_measured_and_remembered(tmp_path: Path) -> None:
    notes: list[str] = []
    rates, problem = find_rates({Q8_0}, on_note=notes.append)
    assert problem is None and rates is not None and len(notes) == 1
    assert set(rates.values) == {Q8_0} and set(rates.attention) == {"f16", "q8_0"}
    for pace in (*rates.values.values(), *rates.attention.values()):
        assert 0 < pace.read_s < 1e-7 and 0 < pace.write_s < 1e-7
    assert rates.values[Q8_0].write_s > rates.values[Q8_0].read_s  # a matrix is fetched for one token alone
    begun = time.perf_counter()
    assert find_rates({Q8_0}, on_note=notes.append)[0] == rates
    assert time.perf_counter() - begun < 1 and len(notes) == 1
    assert not list(speed_path().parent.glob("measure-*"))
    kept = json.loads(speed_path().read_text())
    speed_path().write_text(json.dumps({**kept, "attention": 3}))
    rates, problem = find_rates({Q8_0})
    assert rates is None and "--measure" in (problem or "")


def test_no_engine_is_no_trouble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path / "none"))
    rates, problem = find_rates({Q8_0})
    assert rates is None and "not installed" in (problem or "")


@pytest.mark.model
@pytest.mark.usefixtures("require_model")
def test_an_engine_that_does_not_load_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "lib"
    library.mkdir()
    (library / "libllama.so").write_bytes(b"no library")
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(library))
    rates, problem = find_rates({Q8_0})
    assert rates is None and "the engine ended with exit code 1" in (problem or "")


@pytest.mark.slow
def test_the_command_without_an_engine(tmp_path: Path) -> None:
    frog = Frog(tmp_path)
    frog.env["LLAMA_CPP_LIB_PATH"] = str(tmp_path / "none")
    base = make_gguf(tmp_path / "base.gguf", template=None)
    made = frog("model", "plan", "--context", "8192", "--json")
    assert made.code == 0, made.err
    plan = made.json
    assert (plan["context"], plan["speed"]["measured"]) == (8192, False)
    assert {row["name"] for row in plan["builds"]} == {entry.name for entry in load_catalog()}
    assert len(plan["builds"]) == 2 * len(load_catalog())
    assert plan["recommendation"]["reasons"]
    shown = frog("model", "plan", base, Q4, "--no-speed")
    words = " ".join(shown.out.split())
    alone = frog("model", "plan", base, "--no-speed")
    assert alone.code == 0 and "Recommended" not in alone.out
    assert shown.code == 0 and "base cannot serve: " in words and "it is a base model" in words
    assert max(map(len, shown.out.splitlines())) <= 80
    assert frog("model", "plan", "/no/such.gguf", "--json").code == 1
    assert frog("model", "plan", "--context", "0", "--json").code == 2
