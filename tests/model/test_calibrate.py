"""`frog-lsp model calibrate`: what is measured is what numpy measures, in a format that others read."""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from agent.errors import UsageError
from agent.model.gguf_header import read_header
from agent.model.model_facts import read_facts
from quant.calibrate_text import cut_evenly, render_all
from quant.imatrix import ImportanceMatrix, check_fit, read_imatrix, write_imatrix
from tests.frog import Frog
from tests.model.quantized import make_imatrix, write_run, write_source


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_source(tmp_path_factory.mktemp("calibrate") / "m.gguf", form="f32", hidden=64)


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run.jsonl")


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.usefixtures("require_model")
def test_it_is_the_mean_of_the_squared_inputs(model_path: Path, run_path: Path, tmp_path: Path) -> None:
    """The first layer's input is the normalised embedding of each token, which numpy can compute."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: run `make setup`")
    from agent.model.engine_context import LoadedModel

    loaded = LoadedModel(str(model_path), n_gpu_layers=0, repack=False, on_progress=lambda _: True)
    (tokens,) = render_all([str(run_path)], read_facts(read_header(model_path)), loaded.vocab)
    loaded.close()
    assert len(tokens) > 256  # more than one batch

    weights = {item.name: item.data for item in gguf.GGUFReader(model_path).tensors}
    rows = weights["token_embd.weight"][list(tokens)].astype(np.float64)
    normal = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + 1e-6) * weights["blk.0.attn_norm.weight"]

    matrix = read_imatrix(make_imatrix(model_path, tmp_path / "im.gguf", run_path))
    means = matrix.means()
    for name in ("attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta"):
        assert matrix.counts[f"blk.0.{name}.weight"] == [len(tokens)]
        np.testing.assert_allclose(means[f"blk.0.{name}.weight"], (normal**2).mean(axis=0), rtol=1e-4)
    assert means["blk.0.ffn_down.weight"].shape == (64,)
    drafting = {f"blk.2.{name}.weight" for name in ("attn_q", "attn_k", "attn_v", "attn_output", "nextn.eh_proj")}
    drafting |= {f"blk.2.ffn_{name}.weight" for name in ("up", "gate", "down")}
    assert check_fit(matrix, read_header(model_path), "im.gguf") == sorted(drafting)
    assert matrix.datasets == ("run.jsonl",) and matrix.chunk_tokens == 256
    assert matrix.n_chunks == -(-len(tokens) // 256)

    again = make_imatrix(model_path, tmp_path / "again.gguf", run_path)
    assert again.read_bytes() == (tmp_path / "im.gguf").read_bytes()

    # the reader of llama.cpp's own Python package sees what llama-imatrix would have written
    reader = gguf.GGUFReader(again)
    assert reader.fields["general.type"].contents() == "imatrix"
    assert reader.fields["imatrix.datasets"].contents() == ["run.jsonl"]
    assert reader.fields["imatrix.chunk_count"].contents() == matrix.n_chunks
    shapes = {item.name: (list(map(int, item.shape)), item.tensor_type.name) for item in reader.tensors}
    assert shapes["blk.0.ffn_down.weight.in_sum2"] == ([64, 1], "F32")
    assert shapes["blk.0.ffn_down.weight.counts"] == ([1, 1], "F32")


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.usefixtures("require_model")
def test_the_command_and_an_interrupt(model_path: Path, tmp_path: Path) -> None:
    frog = Frog(tmp_path)
    done = frog("model", "calibrate", model_path, "im.gguf", "--tokens", "600", "--json")
    assert done.code == 0, done.err
    assert done.json["n_runs"] == 10 and done.json["n_tokens"] == 600 and done.json["n_matrices"] == 15
    assert "only drafts" in done.json["notes"][0] and done.err.splitlines()[-1] == "tokens: 600 of 600"
    process = frog.start("model", "calibrate", model_path, tmp_path / "none.gguf")
    begun = time.monotonic()
    while not (children := psutil.Process(process.pid).children()) or children[0].cpu_times().user < 0.5:
        assert time.monotonic() - begun < 60 and process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(20) == 130
    assert psutil.wait_procs(children, timeout=5)[1] == []
    assert sorted(path.name for path in tmp_path.glob("*.gguf*")) == ["im.gguf"]
    assert [*tmp_path.glob(".*.part")] == []
    process.communicate()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("MODEL", "MODEL"), "one file"),
        (("MODEL", "RUN"), "there already"),
        (("MODEL", "no/im.gguf"), "nothing can be written"),
        (("nowhere.gguf", "im.gguf"), "no model file"),
        (("RUN", "im.gguf"), "not a GGUF file"),
        (("MODEL", "im.gguf", "--trajectories", "recorded"), "there is no run"),
        (("MODEL", "im.gguf", "--trajectories", "nowhere"), "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    arguments: tuple[str, ...],
    words: str,
    model_path: Path,
    run_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    from lsp_server.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    given = [{"MODEL": str(model_path), "RUN": str(run_path)}.get(item, item) for item in arguments]
    code = main(["model", "calibrate", *given, "--json"])
    answer = json.loads(capsysbinary.readouterr().out)
    assert code != 0 and words in answer["error"]["message"] and answer["error"]["hint"]


# --- files ----------------------------------------------------------------------------------------


def some_matrix() -> ImportanceMatrix:
    return ImportanceMatrix(
        sums={"blk.0.a.weight": np.array([4.0, 8.0, 0.0]), "blk.1.b.weight": np.array([2.0, 6.0, 5.0, 5.0])},
        counts={"blk.0.a.weight": np.array([2.0]), "blk.1.b.weight": np.array([2.0, 0.0])},
        datasets=("my runs", "ü"),
        n_chunks=3,
        chunk_tokens=256,
    )


def test_both_formats_are_read(tmp_path: Path) -> None:
    path = tmp_path / "im.gguf"
    write_imatrix(path, some_matrix())
    found = read_imatrix(path)
    assert found.datasets == ("my runs", "ü") and (found.n_chunks, found.chunk_tokens) == (3, 256)
    means = {name: values.tolist() for name, values in found.means().items()}
    assert means == {"blk.0.a.weight": [2.0, 4.0, 0.0], "blk.1.b.weight": [1.0, 3.0, 1.0, 1.0]}
    name = b"blk.0.a.weight"
    entry = struct.pack("<i", len(name)) + name + struct.pack("<ii3f", 2, 3, 4.0, 8.0, 0.0)
    old = tmp_path / "im.dat"
    old.write_bytes(struct.pack("<i", 1) + entry + struct.pack("<ii", 7, 4) + b"text")
    found = read_imatrix(old)
    assert found.means()["blk.0.a.weight"].tolist() == [2.0, 4.0, 0.0]
    assert found.datasets == ("text",) and found.n_chunks == 7
    old.write_bytes(struct.pack("<i", 1) + entry)
    assert read_imatrix(old).n_chunks == 0


def test_files_that_are_none(tmp_path: Path, model_path: Path) -> None:
    good = tmp_path / "im.gguf"
    write_imatrix(good, some_matrix())
    data = good.read_bytes()
    bad = tmp_path / "bad.gguf"
    matrix = some_matrix()
    matrix.sums["blk.0.a.weight"][0] = np.nan  # type: ignore[index]
    write_imatrix(tmp_path / "nan.gguf", matrix)
    for content in (b"", b"abc", data[:-40], data[:60], struct.pack("<i", 9), struct.pack("<iii", 1, 4, 5) + b"x" * 20):
        bad.write_bytes(content)
        with pytest.raises(UsageError):
            read_imatrix(bad)
    for path in (tmp_path / "nan.gguf", model_path, tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError) as caught:
            read_imatrix(path)
        assert caught.value.hint


def test_a_matrix_of_another_model(model_path: Path) -> None:
    header = read_header(model_path)
    with pytest.raises(UsageError, match=r"of another model: .* has no blk\.0\.a\.weight \(nor 1 others\)"):
        check_fit(some_matrix(), header, "im.gguf")
    wrong: dict[str, Any] = {"blk.0.ffn_up.weight": np.zeros(32)}
    with pytest.raises(UsageError, match="has 64 columns and its entry 32"):
        check_fit(ImportanceMatrix(sums=wrong, counts={"blk.0.ffn_up.weight": np.ones(1)}), header, "im.gguf")


def test_texts_are_cut_alike() -> None:
    assert cut_evenly([10, 100, 50], 1000) == [10, 100, 50]
    assert cut_evenly([10, 100, 50], 90) == [10, 40, 40]
    assert cut_evenly([10, 100, 50], 91) == [10, 41, 40]
    assert cut_evenly([5, 5, 5], 2) == [0, 1, 1]
    assert cut_evenly([], 5) == []
