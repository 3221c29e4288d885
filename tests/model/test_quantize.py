"""`frog-lsp model quantize` with the real llama.cpp: every type, kept tensors, importance, interrupts, memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from agent.model.gguf_header import read_header
from quant.quantize import MANIFEST_FORMAT, Options, Outcome, manifest_path, quantize
from quant.quantize_types import FILE_TYPES, KIND_NAMES, PLAIN_FILE_TYPES, Target
from quant.synth import write_model
from quant.synth_shape import find_shape
from tests.frog import Frog
from tests.model.quantized import make_imatrix, write_run, write_source

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("require_model")]

MIB = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quantize")


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    return write_source(folder / "m.gguf")


@pytest.fixture(scope="module")
def imatrix(source: Path, folder: Path) -> Path:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: run `make setup`")
    return make_imatrix(source, folder / "im.gguf", write_run(folder / "run.jsonl"))


def kinds_of(path: Path) -> dict[str, str]:
    return {tensor.name: KIND_NAMES[tensor.kind] for tensor in read_header(path).tensors}


def quantize_all(options: Sequence[Options]) -> list[Outcome]:
    """In one worker, as the command does it in one of its own."""
    from agent.model.worker_process import WorkerProcess
    from quant.quantize_worker import COMMAND

    async def run() -> list[Outcome]:
        worker = await WorkerProcess.start(COMMAND)
        try:
            return [await quantize(item, lambda _what, _done, _total: None, worker) for item in options]
        finally:
            await worker.close()

    return asyncio.run(run())


def generate(path: Path) -> list[int]:
    """Eight greedy tokens. Every logit must be a number."""
    import ctypes
    import threading

    from agent.model.engine_context import Context, LoadedModel, Tuning
    from agent.model.engine_library import load_library

    lib = load_library()
    model = LoadedModel(str(path), n_gpu_layers=0, repack=False, on_progress=lambda _: True)
    context = Context(model, n_ctx=256, n_threads=1, abort=threading.Event(), tuning=Tuning())
    try:
        tokens = model.vocab.tokenize("def add(a, b):")
        n_read, made = 0, []
        for _ in range(8):
            context.decode(tokens[n_read:], n_read)
            n_read = len(tokens)
            pointer = lib.llama_get_logits_ith(context.raw, ctypes.c_int32(-1))
            logits = np.ctypeslib.as_array(pointer, shape=(model.vocab.n_tokens,))
            assert np.isfinite(logits).all(), path.name
            made.append(int(logits.argmax()))
            tokens.append(made[-1])
        return made
    finally:
        context.close()
        model.close()


@pytest.mark.slow
@pytest.mark.timeout(400)  # llama.cpp makes tables for the types below three bits
def test_every_type_loads_and_generates(source: Path, imatrix: Path, tmp_path: Path) -> None:
    options = [
        Options(source=source, target=tmp_path / f"{name}.gguf", wanted=Target(name), imatrix=imatrix)
        for name in FILE_TYPES
    ]
    sizes: dict[str, int] = {}
    for name, outcome in zip(FILE_TYPES, quantize_all(options), strict=True):
        path = tmp_path / f"{name}.gguf"
        header = read_header(path)
        assert header.metadata["general.file_type"] == FILE_TYPES[name], name
        assert outcome.size_bytes == path.stat().st_size and len(generate(path)) == 8
        sizes[name] = outcome.size_bytes
        kinds = kinds_of(path)
        gates = {kind for tensor, kind in kinds.items() if "ssm_alpha" in tensor or "ssm_beta" in tensor}
        norms = {kind for tensor, kind in kinds.items() if "norm" in tensor}
        assert gates == {name if name in PLAIN_FILE_TYPES else "F32"} and norms == {"F32"}, name
        path.unlink()
    assert sizes["F32"] > sizes["BF16"] > sizes["Q8_0"] > sizes["Q6_K"] > sizes["Q5_K_M"] > sizes["Q4_K_M"]
    assert sizes["Q4_K_M"] > sizes["Q3_K_M"] > sizes["Q2_K"]
    assert sizes["IQ2_M"] > sizes["IQ2_S"] > sizes["IQ2_XS"] > sizes["IQ2_XXS"]  # a half of it only drafts: Q4_K
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{name}.gguf.manifest.json" for name in FILE_TYPES
    )


@pytest.mark.slow
def test_the_command_keeps_what_it_is_told_to(source: Path, imatrix: Path, tmp_path: Path) -> None:
    frog = Frog(tmp_path)
    target = tmp_path / "q.gguf"
    keeps = ("--keep", "ffn_down=Q6_K", "--keep", "token_embd=Q8_0", "--keep", "ssm_beta=Q8_0")
    done = frog("model", "quantize", source, target, "--type", "q4_k_s", *keeps, "--imatrix", imatrix, "--json")
    assert done.code == 0, done.err
    kinds = kinds_of(target)
    assert {kind for name, kind in kinds.items() if "ffn_down" in name} == {"Q6_K"}
    assert kinds["token_embd.weight"] == kinds["blk.0.ssm_beta.weight"] == "Q8_0"
    assert kinds["blk.0.ssm_alpha.weight"] == kinds["blk.2.nextn.enorm.weight"] == "F32"
    assert kinds["blk.1.attn_q.weight"] == "Q4_K"
    answer = done.json
    counts: dict[str, int] = {}
    for kind in kinds.values():
        counts[kind] = counts.get(kind, 0) + 1
    assert answer["path"] == str(target) and answer["tensor_types"] == counts
    assert answer["size_bytes"] == target.stat().st_size and answer["source_bytes"] == source.stat().st_size
    assert "only drafts" in answer["notes"][0]
    assert done.err.splitlines()[-1].startswith("quantizing: 100 %")

    manifest = json.loads(manifest_path(target).read_text())
    shas = [
        subprocess.run(["sha256sum", path], capture_output=True, check=True).stdout[:64] for path in (source, target)
    ]
    assert manifest["format"] == MANIFEST_FORMAT and manifest["format_version"] == 1
    assert [manifest[name]["sha256"].encode() for name in ("source", "output")] == shas
    recipe = manifest["recipe"]
    assert recipe["type"] == "Q4_K_S" and recipe["keep"][0] == ["ffn_down", "Q6_K"]
    assert recipe["imatrix"]["file"] == "im.gguf" and recipe["imatrix"]["datasets"] == ["run.jsonl"]
    assert manifest["versions"]["llama-cpp-python"] == "0.3.36"
    metadata = read_header(target).metadata
    assert metadata["quantize.imatrix.file"] == "im.gguf" and metadata["quantize.imatrix.dataset"] == "run.jsonl"
    assert metadata["quantize.imatrix.entries_count"] == 15

    plain = tmp_path / "plain.gguf"
    assert frog("model", "quantize", source, plain, "--type", "q4_k_s", *keeps).code == 0
    data = {path: path.read_bytes()[-read_header(path).tensor_bytes :] for path in (plain, target)}
    assert kinds_of(plain) == kinds and data[plain] != data[target]


@pytest.mark.slow
def test_the_best_mix_under_a_size(source: Path, imatrix: Path, tmp_path: Path) -> None:
    sizes = (480_000, 700_000, 1_200_000, 50_000_000)
    options = [
        Options(
            source=source,
            target=tmp_path / f"{size}.gguf",
            wanted=Target(None, size),
            imatrix=imatrix if size == 700_000 else None,
        )
        for size in sizes
    ]
    bits = []
    for size, outcome in zip(sizes, quantize_all(options), strict=True):
        path = tmp_path / f"{size}.gguf"
        assert size - 40_000 < path.stat().st_size <= size or size == sizes[-1]
        bits.append(outcome.bits_per_weight)
        assert kinds_of(path)["blk.0.ssm_alpha.weight"] == "F32" and len(generate(path)) == 8
    assert bits == sorted(bits)
    matrices = {kind for name, kind in kinds_of(tmp_path / "50000000.gguf").items() if name.endswith("ffn_up.weight")}
    assert matrices == {"BF16"}
    recipe = json.loads((tmp_path / "700000.gguf.manifest.json").read_text())["recipe"]
    assert recipe["type"] is None and recipe["most_bytes"] == 700_000
    assert recipe["tensors"]["token_embd.weight"] == kinds_of(tmp_path / "700000.gguf")["token_embd.weight"]


@pytest.mark.slow
def test_what_is_wrong_is_said_and_leaves_nothing(
    source: Path,
    imatrix: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    from lsp_server.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.gguf").write_text("no model")
    (tmp_path / "cut.gguf").write_bytes(source.read_bytes()[:-5000])
    damaged = bytearray(source.read_bytes())
    at = read_header(source).tensors[-1].offset
    damaged[at : at + 4] = b"\xff\x7f\xff\x7f"  # not a number
    (tmp_path / "damaged.gguf").write_bytes(damaged)
    write_source(tmp_path / "other.gguf", hidden=512)
    write_source(tmp_path / "q8.gguf", form="q8_0")
    (tmp_path / "there.gguf").write_text("")
    before = sorted(tmp_path.iterdir())
    m, im = str(source), str(imatrix)
    for arguments, words, code in (
        ((m, "o.gguf", "--type", "Q4_K_X"), "there is no type", 2),
        ((m, "o.gguf", "--type", "Q4_K_M", "--keep", "nothing=Q8_0"), "no tensor has", 2),
        ((m, "o.gguf", "--type", "BF16", "--keep", "ffn=Q8_0"), "--keep does not go with", 2),
        ((m, "o.gguf", "--type", "IQ2_XS"), "needs an importance matrix", 2),
        ((m, "o.gguf", "--type", "auto:5XB"), "names no size", 2),
        ((m, "o.gguf", "--type", "auto:100kB"), "the smallest mix of", 2),
        ((m, m, "--type", "Q8_0"), "one file", 2),
        ((m, "there.gguf", "--type", "Q8_0"), "there already", 2),
        ((m, "no/o.gguf", "--type", "Q8_0"), "there is no folder", 2),
        (("none.gguf", "o.gguf", "--type", "Q8_0"), "there is no model file", 1),
        (("text.gguf", "o.gguf", "--type", "Q8_0"), "not a GGUF file", 1),
        (("cut.gguf", "o.gguf", "--type", "Q8_0"), "truncated", 1),
        (("damaged.gguf", "o.gguf", "--type", "Q4_K_M"), "has invalid data", 1),
        (("q8.gguf", "o.gguf", "--type", "Q4_K_M"), "quantized already", 2),
        ((im, "o.gguf", "--type", "Q4_K_M"), "is an importance matrix", 1),
        (("other.gguf", "o.gguf", "--type", "Q4_K_M", "--imatrix", im), "of another model", 2),
        ((m, "o.gguf", "--type", "Q4_K_M", "--imatrix", m), "no importance matrix", 2),
    ):
        found = main(["model", "quantize", *arguments, "--json"])
        answer = json.loads(capsysbinary.readouterr().out)
        assert words in answer["error"]["message"] and answer["error"]["hint"], (arguments, answer)
        assert found == code, (arguments, answer)
    assert sorted(tmp_path.iterdir()) == before
    assert main(["model", "quantize", "q8.gguf", "o.gguf", "--type", "Q4_K_M", "--allow-requantize"]) == 0
    assert kinds_of(tmp_path / "o.gguf")["blk.1.attn_k.weight"] == "Q4_K"
    assert kinds_of(tmp_path / "o.gguf")["blk.0.ssm_alpha.weight"] == "F32"


@pytest.fixture(scope="module")
def large(folder: Path) -> Path:
    """170 MiB, most of it one tensor: seconds of work for the slow types."""
    shape = replace(find_shape("tiny"), hidden=1024, feed_forward=2048, vocabulary=60_000)
    return write_model(folder / "large.gguf", shape, form="bf16")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["interrupt", "abort"])
def test_an_end_in_the_middle_leaves_nothing(how: str, large: Path, tmp_path: Path) -> None:
    frog = Frog(tmp_path)
    process = frog.start("model", "quantize", large, tmp_path / "q.gguf", "--type", "IQ3_S", "--threads", "1")
    part = tmp_path / ".q.gguf.part"
    begun = time.monotonic()
    while not part.exists() or part.stat().st_size == 0:
        assert time.monotonic() - begun < 60 and process.poll() is None
        time.sleep(0.02)
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 1
    if how == "interrupt":
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) == 130
    else:  # as an assertion of llama.cpp ends it
        os.kill(workers[0].pid, signal.SIGABRT)
        assert process.wait(20) == 1
        assert b"was ended by SIGABRT" in process.stderr.read()  # type: ignore[union-attr]
    process.communicate()
    assert psutil.wait_procs(workers, timeout=5)[1] == []
    assert [path for path in tmp_path.iterdir() if "q.gguf" in path.name] == []


_PEAK = """
import sys
from quant.quantize_library import Quantizer, Request
quantizer = Quantizer(None)
request = Request(source=sys.argv[1], file_type=15, overrides=(), requantize=False, n_threads=2)
quantizer.quantize(request, sys.argv[2], lambda name: None)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_memory_is_bounded(large: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PEAK, large, tmp_path / "q.gguf"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    largest = max(tensor.size_bytes for tensor in read_header(large).tensors)
    assert int(done.stdout) * 1024 <= 2 * largest + 1024 * MIB
    assert int(done.stdout) * 1024 <= largest + 600 * MIB  # what is read, 256 MiB of buffers, and the process
