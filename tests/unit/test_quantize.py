"""Types of quantization as a person gives them, what each tensor becomes, and the best mix under a size."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from agent.errors import FrogError, ModelFileError, UsageError
from agent.model.gguf_header import GgufHeader, TensorInfo, tensor_bytes
from quant.quantize import check_paths, check_room, manifest_path
from quant.quantize_auto import Candidate, TooSmallError, choose, weight_of
from quant.quantize_recipe import best_mix, check_source, file_bytes, match_keeps, need_importance, sampled_kinds
from quant.quantize_types import KINDS, Keep, Target, parse_keep, parse_target

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("Q4_K_M", Target("Q4_K_M")),
        (" q4_k ", Target("Q4_K_M")),
        ("bf16", Target("BF16")),
        ("auto:3.0GiB", Target(None, 3 * GIB)),
        ("AUTO:2800mb", Target(None, 2_800_000_000)),
        ("auto: 1.5 GB", Target(None, 1_500_000_000)),
        ("auto:123456", Target(None, 123_456)),
    ],
)
def test_types(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Q4_K_X", "Did you mean Q4_K_"),
        ("q4km", "Did you mean Q4_K_M?"),
        ("", "The types: F32"),
        ("auto", "auto:3.0GiB"),
        ("auto:", "auto:3.0GiB"),
        ("auto:big", "auto:3.0GiB"),
        ("auto:3TB", "auto:3.0GiB"),
        ("auto:-3GB", "auto:3.0GiB"),
    ],
)
def test_types_that_are_none(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert words in caught.value.hint


def test_keeps() -> None:
    assert parse_keep("ffn_(up|down)=q6_k") == Keep("ffn_(up|down)", "Q6_K")
    assert parse_keep("a=b=F32") == Keep("a=b", "F32")
    for text in ("ffn", "=Q8_0", "(=Q8_0", "ffn=Q4_K_M", "ffn="):
        with pytest.raises(UsageError) as caught:
            parse_keep(text)
        assert caught.value.hint, text


# --- recipes --------------------------------------------------------------------------------------


def tensor(name: str, *shape: int, kind: str = "BF16") -> TensorInfo:
    n_values = 1
    for n in shape:
        n_values *= n
    number = KINDS[kind]
    return TensorInfo(name=name, shape=shape, kind=number, offset=0, size_bytes=tensor_bytes(number, n_values))


def header(*tensors: TensorInfo, **metadata: object) -> GgufHeader:
    n_bytes = sum(item.size_bytes for item in tensors)
    known = {
        "general.architecture": "qwen35",
        "qwen35.block_count": 3,
        "qwen35.nextn_predict_layers": 1,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.chat_template": "{{ tools }}",
    }
    return GgufHeader(
        path="m.gguf",
        size_bytes=1000 + n_bytes,
        tensor_bytes=n_bytes,
        n_tensors=len(tensors),
        metadata=known | metadata,
        lengths={},
        tensors=tensors,
    )


MODEL = header(
    tensor("token_embd.weight", 512, 1000),
    tensor("blk.0.ffn_up.weight", 512, 1024),
    tensor("blk.0.ffn_down.weight", 1024, 512),
    tensor("blk.0.ssm_alpha.weight", 512, 4),
    tensor("blk.0.attn_norm.weight", 512, kind="F32"),
    tensor("blk.1.odd.weight", 96, 512),
    tensor("blk.2.nextn.eh_proj.weight", 1024, 512),
)


def test_gates_are_kept_and_the_first_pattern_counts() -> None:
    assert match_keeps([], MODEL) == {"blk.0.ssm_alpha.weight": "F32"}
    keeps = [Keep("ffn_down", "Q8_0"), Keep("ffn", "Q6_K"), Keep("^blk.*alpha", "Q8_0")]
    assert match_keeps(keeps, MODEL) == {
        "blk.0.ffn_down.weight": "Q8_0",
        "blk.0.ffn_up.weight": "Q6_K",
        "blk.0.ssm_alpha.weight": "Q8_0",
    }
    gates_in_q8 = header(tensor("blk.0.ssm_beta.weight", 512, 32, kind="Q8_0"))
    assert match_keeps([], gates_in_q8) == {"blk.0.ssm_beta.weight": "Q8_0"}


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        (Keep("attention", "Q8_0"), "no tensor has"),
        (Keep("_norm", "Q8_0"), "only vectors have"),
        (Keep("odd", "Q6_K"), "needs a multiple of 256"),
    ],
)
def test_keeps_that_cannot_be(keep: Keep, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        match_keeps([keep], MODEL)


def test_sources_that_cannot_be() -> None:
    check_source(MODEL, requantize=False)
    quantized = header(tensor("a.weight", 256, 4, kind="Q4_K"), tensor("b.weight", 256, 4))
    with pytest.raises(UsageError, match="quantized already") as caught:
        check_source(quantized, requantize=False)
    assert "--allow-requantize" in caught.value.hint
    check_source(quantized, requantize=True)
    for metadata, words in (
        ({"general.type": "adapter"}, "adapter"),
        ({"general.type": "imatrix"}, "importance matrix"),
        ({"split.count": 3}, "part 1 of 3"),
        ({"tokenizer.chat_template": ""}, "base model"),
    ):
        with pytest.raises(ModelFileError, match=words):
            check_source(header(tensor("a.weight", 256, 4), **metadata), requantize=False)


def test_few_bits_need_importance_but_for_the_embeddings() -> None:
    kinds = {"token_embd.weight": "IQ2_S", "a": "IQ2_XS", "b": "Q2_K", "c": "Q4_K"}
    assert need_importance(kinds, "IQ2_XS") == ["a"]
    assert need_importance(kinds, "Q2_K_S") == ["a", "b"]


def test_paths_and_room(tmp_path: Path) -> None:
    source, target = tmp_path / "m.gguf", tmp_path / "q.gguf"
    source.write_text("x")
    (tmp_path / "link.gguf").symlink_to(source)
    check_paths(source, target)
    for other, words in (
        (source, "one file"),
        (tmp_path / "link.gguf", "one file"),
        (tmp_path / "no" / "q.gguf", "no folder"),
    ):
        with pytest.raises(UsageError, match=words):
            check_paths(source, other)
    manifest_path(target).write_text("{}")
    with pytest.raises(UsageError, match="there already"):
        check_paths(source, target)
    check_room(GIB, 2 * GIB, tmp_path)
    with pytest.raises(FrogError, match=r"1\.14 GB are needed in .* and 1\.07 GB are free"):
        check_room(GIB, GIB, tmp_path)


# --- the best mix ---------------------------------------------------------------------------------


def ladder(n_values: int, scale: float = 1.0) -> list[Candidate]:
    return [
        Candidate("Q2_K", n_values * 21 // 64, 0.1 * scale),
        Candidate("Q4_K", n_values * 9 // 16, 0.006 * scale),
        Candidate("Q8_0", n_values * 17 // 16, 0.00002 * scale),
        Candidate("BF16", n_values * 2, 0.0),
    ]


def noise(chosen: dict[str, Candidate], weights: dict[str, float]) -> float:
    return sum(weights[name] * item.error for name, item in chosen.items())


def test_it_is_near_the_best_of_all_mixes_and_never_above_the_size() -> None:
    r = random.Random(1)
    for _ in range(60):
        candidates = {f"t{i}": ladder(64 * r.randint(1, 200), r.uniform(0.2, 3)) for i in range(5)}
        weights = {name: r.choice((0.1, 1.0, 1.0, 8.0)) for name in candidates}
        smallest = sum(items[0].size_bytes for items in candidates.values())
        most = r.randint(smallest, 7 * smallest)
        chosen = choose(candidates, weights, most)
        assert sum(item.size_bytes for item in chosen.values()) <= most
        # What is left is less than one step: nothing that fits without that step has less noise.
        step = max(b.size_bytes - a.size_bytes for items in candidates.values() for a, b in itertools.pairwise(items))
        mixes = (dict(zip(candidates, mix, strict=True)) for mix in itertools.product(*candidates.values()))
        smaller = [mix for mix in mixes if sum(item.size_bytes for item in mix.values()) <= most - step]
        assert all(noise(chosen, weights) <= noise(mix, weights) + 1e-12 for mix in smaller)


def test_room_for_everything_changes_nothing_and_too_little_says_how_much() -> None:
    candidates = {"a": ladder(640), "b": ladder(6400)}
    weights = {"a": 1.0, "b": 1.0}
    assert {item.kind for item in choose(candidates, weights, 10**6).values()} == {"BF16"}
    with pytest.raises(TooSmallError) as caught:
        choose(candidates, weights, 2309)
    assert caught.value.smallest_bytes == 2310
    assert {item.kind for item in choose(candidates, weights, 2310).values()} == {"Q2_K"}


def test_small_matrices_and_the_logits_get_more_bits() -> None:
    candidates = {
        "token_embd.weight": ladder(6400),
        "blk.0.big.weight": ladder(6400),
        "blk.0.small.weight": ladder(640),
    }
    weights = {name: weight_of(name, 2, has_output=False) for name in candidates}
    assert weights == {"token_embd.weight": 4.0, "blk.0.big.weight": 1.0, "blk.0.small.weight": 1.0}
    chosen = choose(candidates, weights, 640 * 17 // 16 + 6400 * 9 // 16 + 6400 * 21 // 64)
    assert {name: item.kind for name, item in chosen.items()} == {
        "token_embd.weight": "Q4_K",
        "blk.0.big.weight": "Q2_K",
        "blk.0.small.weight": "Q8_0",
    }
    assert weight_of("token_embd.weight", 2, has_output=True) == 1.0
    assert weight_of("blk.2.nextn.eh_proj.weight", 2, has_output=True) == 0.1


def test_a_mix_of_a_model_has_the_size_that_was_asked_for() -> None:
    kept = match_keeps([], MODEL)
    kinds = sampled_kinds(MODEL, [t.name for t in MODEL.tensors if len(t.shape) > 1], kept)
    assert "blk.0.ssm_alpha.weight" not in kinds
    assert kinds["blk.1.odd.weight"] == ["IQ4_NL", "Q5_0", "Q8_0"]  # rows of 96
    errors = {
        name: {kind: 2.0 ** (-2 * 8 * tensor_bytes(KINDS[kind], 7680) / 7680) for kind in found}
        for name, found in kinds.items()
    }
    smallest = file_bytes(MODEL, kept | {name: found[0] for name, found in kinds.items()})
    for most in (smallest, smallest + 200_000, smallest + 10**6):
        mix = best_mix(MODEL, errors, kept, most)
        assert file_bytes(MODEL, kept | mix) <= most
    assert set(best_mix(MODEL, errors, kept, 10**8).values()) == {"BF16"}
    with pytest.raises(UsageError, match=f"the smallest mix of m.gguf has {smallest:,}"):
        best_mix(MODEL, errors, kept, smallest - 1)
