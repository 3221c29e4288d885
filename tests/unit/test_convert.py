"""`model convert`: what it makes of a checkpoint, and what it refuses, in words and with nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from agent.errors import FrogError, ModelFileError, UsageError
from quant.convert import convert, plan_conversion
from quant.convert_card import read_card, size_label, title
from quant.convert_config import sections_for
from quant.convert_safetensors import INDEX, read_checkpoint
from quant.convert_values import exponential
from quant.synth import write_model
from quant.synth_checkpoint import write_checkpoint
from quant.synth_config import VisionShape
from quant.synth_shape import find_shape
from tests.frog import Frog

TINY = find_shape("tiny", mtp=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of two shards, with a part that sees."""
    folder = tmp_path_factory.mktemp("whole") / "Tiny-frog"
    return write_checkpoint(folder, TINY, n_shards=2, vision=VisionShape(), seed=1)


@pytest.fixture
def checkpoint(whole: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(whole, tmp_path / "Tiny-frog"))


def refusal(folder: Path, **options: Any) -> FrogError:
    """What is said of a checkpoint. Nothing but an error of ours may come."""
    with pytest.raises(FrogError) as caught:
        plan_conversion(folder, **options)
    assert caught.value.hint
    return caught.value


def change_json(path: Path, change: Callable[[Any], Any]) -> None:
    value = json.loads(path.read_text())
    path.write_text(json.dumps(change(value) or value))


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def change_header(path: Path, change: Callable[[Any], Any]) -> None:
    data = path.read_bytes()
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n])
    text = json.dumps(change(header) or header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + n :])


# --- what it makes --------------------------------------------------------------------------------------------


def test_a_checkpoint_in_f32_gives_the_very_values_that_synth_writes(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", TINY, dtype="F32", seed=7)
    convert(plan_conversion(folder, form="f32"), tmp_path / "made.gguf")
    write_model(tmp_path / "direct.gguf", TINY, seed=7)
    made, direct = (
        {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / name).tensors}
        for name in ("made.gguf", "direct.gguf")
    )
    assert made.keys() == direct.keys()
    for name, tensor in direct.items():
        assert made[name].shape.tolist() == tensor.shape.tolist()
        np.testing.assert_allclose(made[name].data, tensor.data, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.slow
def test_the_command_makes_it_and_says_what_it_left_out(whole: Path, tmp_path: Path) -> None:
    frog = Frog(tmp_path)
    out = tmp_path / "made.gguf"
    made = frog("model", "convert", whole, out)
    assert (made.code, made.out) == (0, f"{out}\n"), made.err
    assert "left out: the part that sees pictures, 33 tensors" in made.err
    assert "licence: mit in the header of its card, apache-2.0 in the text" in made.err
    assert "4 layers and 1 that drafts" in made.err and "100 %" in made.err
    again = frog("model", "convert", whole, out, "--json")
    assert again.code == 2 and "is there already" in again.json["error"]["message"]
    other = frog("model", "convert", whole, tmp_path / "f16.gguf", "--type", "f16", "--json")
    assert other.code == 0
    assert other.json == {
        "path": str(tmp_path / "f16.gguf"),
        "size_bytes": (tmp_path / "f16.gguf").stat().st_size,
        "type": "F16",
        "n_tensors": 70,
        "n_left_out": 33,
        "n_drafting_layers": 1,
        "licence": "mit in the header of its card, apache-2.0 in the text",
        "notes": [other.json["notes"][0]],
        "error": None,
    }
    assert sorted(path.name for path in tmp_path.glob("*.gguf*")) == ["f16.gguf", "made.gguf"]
    reader = gguf.GGUFReader(out)
    texts = {key: field.contents() for key, field in reader.fields.items()}
    assert texts["general.name"] == "Tiny Frog" and texts["general.license"] == "mit"
    assert texts["frog.source.licence"] == "mit in the header of its card, apache-2.0 in the text"
    assert texts["general.sampling.temp"] == pytest.approx(0.6) and texts["general.sampling.top_k"] == 20
    assert texts["tokenizer.ggml.pre"] == "qwen35" and texts["qwen35.nextn_predict_layers"] == 1
    assert not any("visual" in tensor.name for tensor in reader.tensors)


def test_a_drafting_layer_that_is_only_spoken_of_is_left_out(checkpoint: Path, tmp_path: Path) -> None:
    plain = write_checkpoint(tmp_path / "plain", replace(TINY, mtp=False), seed=1)
    change_json(plain / "config.json", lambda config: config | {"mtp_num_hidden_layers": 1})
    plan = plan_conversion(plain)
    assert plan.n_drafting == 0 and "no file holds it" in plan.notes[0]
    assert "qwen35.nextn_predict_layers" not in plan.metadata and plan.metadata["qwen35.block_count"].value == 4
    change_json(checkpoint / "config.json", lambda c: c["text_config"].update(mtp_num_hidden_layers=0))
    assert plan_conversion(checkpoint).n_drafting == 1  # the files know better


def test_values_that_are_no_numbers_are_said(checkpoint: Path, tmp_path: Path) -> None:
    tensor = next(t for t in read_checkpoint(checkpoint) if t.name.endswith("layers.0.mlp.up_proj.weight"))
    with open(tensor.path, "r+b") as file:
        file.seek(tensor.offset + 10)
        file.write(b"\x81\x7f")  # a signalling NaN in BF16
    made = convert(plan_conversion(checkpoint), tmp_path / "m.gguf")
    assert "1 tensors hold values that are no finite numbers, such as blk.0.ffn_up.weight" in made.notes[-1]
    written = next(t for t in gguf.GGUFReader(made.path).tensors if t.name == "blk.0.ffn_up.weight")
    assert written.data.tobytes()[10:12] == b"\xc1\x7f"  # as the oracle writes it: no number, and quiet


def test_exponentials_are_those_of_the_library_in_torch() -> None:
    """Six of its answers that are not the nearest number, and two that are."""
    wanted = {
        -6.695508003234863: 0x3AA21080,
        0.3275313973426819: 0x3FB19ADD,
        -1.5409817695617676: 0x3E5B4F92,
        -0.35505515336990356: 0x3F337D91,
        2.401146650314331: 0x413092BB,
        -6.700856685638428: 0x3AA1332F,
        -2.0: 0x3E0A9555,
        0.0: 0x3F800000,
    }
    made = exponential(np.array(list(wanted), dtype=np.float32))
    assert made.view(np.uint32).tolist() == list(wanted.values())
    far = np.array([np.nan, np.inf, -np.inf, 100, -200], dtype=np.float32)
    np.testing.assert_array_equal(exponential(far), np.array([np.nan, np.inf, 0, np.inf, 0], dtype=np.float32))


@pytest.mark.slow
def test_memory_stays_the_same_whatever_the_size(tmp_path: Path) -> None:
    """64 MiB above what the program itself takes, of a checkpoint of 135 MB: a tensor alone has 67."""
    shape = replace(TINY, hidden=512, vocabulary=65_536, feed_forward=8192)
    folder = write_checkpoint(tmp_path / "large", shape, n_shards=2, seed=2)
    size = sum(path.stat().st_size for path in shards(folder))
    assert size > 130e6
    # Not ru_maxrss: the kernel counts in it what the process had before it became this program, pytest's memory.
    code = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from quant.convert import convert, plan_conversion\n"
        "plan = plan_conversion(Path(sys.argv[1]))\n"
        "peak = lambda: re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]\n"
        "before = peak()\n"
        "convert(plan, Path(sys.argv[2]))\n"
        "print(before, peak())\n"
    )
    arguments = [sys.executable, "-c", code, str(folder), str(tmp_path / "m.gguf")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=100, check=True)
    before_kib, after_kib = map(int, done.stdout.split())
    assert after_kib - before_kib < 64 << 10
    assert after_kib < 256 << 10


def test_a_conversion_that_is_stopped_leaves_nothing(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.gguf"

    def stop(done: int, _total: int) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(plan_conversion(whole), out, on_progress=stop)
    assert list(tmp_path.iterdir()) == []
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".m.gguf.{dead.pid}.part").write_bytes(b"left by one that was killed")
    (tmp_path / f".m.gguf.{os.getppid()}.part").write_bytes(b"of one that works")
    convert(plan_conversion(whole), out)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".m.gguf.{os.getppid()}.part", "m.gguf"]


# --- what it refuses ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_full_disk_is_said_before_and_while_writing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_conversion(whole)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match=r"MB are needed in .* and 0\.0 MB are free"):
            convert(plan, tmp_path / "m.gguf")
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from quant.convert import convert, plan_conversion\n"
        "plan = plan_conversion(Path(sys.argv[1]))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    convert(plan, Path(sys.argv[2]))\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    arguments = [sys.executable, "-c", code, str(whole), str(tmp_path / "m.gguf")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith(f"UsageError {tmp_path / 'm.gguf'} cannot be written: File too large")
    assert list(tmp_path.iterdir()) == []


def test_where_it_may_not_write(whole: Path, tmp_path: Path) -> None:
    plan = plan_conversion(whole)
    with pytest.raises(UsageError, match="is a folder"):
        convert(plan, tmp_path)
    with pytest.raises(UsageError, match="there is no folder"):
        convert(plan, tmp_path / "no" / "m.gguf")


def test_what_is_no_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    assert "is not there" in refusal(tmp_path / "no").message
    assert "is a file" in refusal(checkpoint / "config.json").message
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path / "empty").message.endswith("holds no model.safetensors")
    for name, what in (("adapter_model.safetensors", "a LoRA"), ("m.gguf", "a GGUF"), ("pytorch_model.bin", "pickles")):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_bytes(b"x")
        assert what in refusal(folder).message
    (checkpoint / "config.json").unlink()
    assert "config.json" in refusal(checkpoint).message


def test_missing_shards_are_named(checkpoint: Path, whole: Path) -> None:
    second = shards(checkpoint)[1]
    second.unlink()
    assert f"1 of the 2 files of weights is missing: {second.name}" in refusal(checkpoint).message
    (checkpoint / INDEX).unlink()  # the names of the files tell, too
    assert second.name in refusal(checkpoint).message
    shutil.copy(whole / second.name, second)
    assert len(plan_conversion(checkpoint).items) == 70


INDEXES = {
    "a path": (lambda i: i["weight_map"].update(x="../x.safetensors"), "no safetensors file beside it"),
    "no map": (lambda i: i.pop("weight_map") and None, "has no `weight_map`"),
    "more": (
        lambda i: i["weight_map"].update(x=next(iter(i["weight_map"].values()))),
        "that are in no file, such as x",
    ),
    "less": (lambda i: i["weight_map"].pop("mtp.norm.weight") and None, "are not in model.safetensors.index.json"),
}


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_that_lies(checkpoint: Path, name: str) -> None:
    change, what = INDEXES[name]
    change_json(checkpoint / INDEX, change)
    assert what in refusal(checkpoint).message


NORM = "model.language_model.layers.0.input_layernorm.weight"
HEADERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "outside": (lambda h: h[NORM].update(data_offsets=[1 << 40, (1 << 40) + 128]), "does not follow"),
    "overlap": (lambda h: h[NORM].update(data_offsets=[0, 128]), "overlaps the one before it"),
    "backwards": (lambda h: h[NORM].update(data_offsets=[128, 0]), "has no plausible place"),
    "negative": (lambda h: h[NORM].update(data_offsets=[-128, 0]), "has no plausible place"),
    "size": (lambda h: h[NORM].update(shape=[63]), "has 128 bytes, not 126"),
    "huge": (lambda h: h[NORM].update(shape=[1 << 62, 1 << 62]), "bytes, not"),
    "words": (lambda h: h[NORM].update(shape=["64"]), "has no plausible shape"),
    "truth": (lambda h: h[NORM].update(shape=[True]), "has no plausible shape"),
    "type": (lambda h: h[NORM].update(dtype="Q4"), "has an unknown type 'Q4'"),
    "nothing": (lambda h: h.update({NORM: 5}), "is not described"),
    "a list": (lambda h: [1], "is not a JSON object"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_hostile_header(checkpoint: Path, name: str) -> None:
    change, what = HEADERS[name]
    change_header(shards(checkpoint)[0], change)
    error = refusal(checkpoint)
    assert what in error.message and isinstance(error, ModelFileError)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is truncated: it has 0 bytes"),
        (b"\x00" * 7, "is truncated: it has 7 bytes"),
        (struct.pack("<Q", 1 << 62) + b"{}", "is no safetensors file"),
        (struct.pack("<Q", 500) + b"{}", "is truncated in its header"),
        (struct.pack("<Q", 4) + b"{]]}", "cannot be read"),
        (struct.pack("<Q", 200_000) + b"[" * 200_000, "cannot be read"),
        (struct.pack("<Q", 20) + b'{"a":{},"a":{}}     ', "'a' is there twice"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
    ],
    ids=["empty", "short", "long-header", "cut-header", "no-json", "deep", "twice", "lfs"],
)
def test_a_file_that_is_none(checkpoint: Path, data: bytes, what: str) -> None:
    shards(checkpoint)[0].write_bytes(data)
    assert what in refusal(checkpoint).message


def test_a_file_that_is_cut_or_too_long(checkpoint: Path, tmp_path: Path) -> None:
    path = shards(checkpoint)[0]
    size = path.stat().st_size
    with open(path, "ab") as file:
        file.write(b"x")
    assert "1 bytes more than its header describes" in refusal(checkpoint).message
    os.truncate(path, size)
    plan = plan_conversion(checkpoint)
    os.truncate(path, size - 1)
    assert f"is truncated: it has {size - 1:,} of {size:,} bytes" in refusal(checkpoint).message
    with pytest.raises(ModelFileError, match="became shorter while it was read"):
        convert(plan, tmp_path / "m.gguf")
    assert not list(tmp_path.glob(".*part"))


def text_config(**keys: Any) -> Callable[[Any], Any]:
    def change(config: Any) -> None:
        for key, value in keys.items():
            config["text_config"].pop(key, None)
            if value is not None:
                config["text_config"][key] = value

    return change


def rope(**keys: Any) -> Callable[[Any], Any]:
    return lambda config: config["text_config"]["rope_parameters"].update(keys)


CONFIGS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "moe": (lambda c: c.update(architectures=["Qwen3_5MoeForCausalLM"]), "a mixture of experts"),
    "other": (lambda c: c.update(architectures=["LlamaForCausalLM"]), "cannot be converted here (LlamaForCausalLM)"),
    "unnamed": (lambda c: {"hidden_size": 1}, "(not named)"),
    "quantized": (lambda c: c.update(quantization_config={"quant_method": "fp8"}), "quantized already"),
    "sections": (rope(mrope_section=[24, 20, 20]), "would leave some of its 4 rotated pairs unrotated"),
    "first": (rope(mrope_section=[4, 0, 0]), "answer wrongly without a word"),
    "scaled": (rope(rope_type="dynamic", factor=2.0), "scaled in a way that is not known here (dynamic)"),
    "no size": (text_config(hidden_size=None), "config.json has no hidden_size"),
    "negative": (text_config(num_attention_heads=-4), "the num_attention_heads of config.json is not plausible"),
    "words": (text_config(head_dim="16"), "the head_dim of config.json is not plausible"),
    "huge": (text_config(num_hidden_layers=1 << 40), "the num_hidden_layers of config.json is not plausible"),
    "layers": (text_config(num_hidden_layers=5), "4 layer_types and 5 layers"),
    "kinds": (text_config(layer_types=["sliding"] * 4), "the layer_types of config.json is not plausible"),
    "heads": (text_config(linear_num_value_heads=5), "is no multiple of linear_num_key_heads"),
    "value heads": (text_config(linear_value_head_dim=32), "of one size"),
    "shape": (text_config(intermediate_size=127), "has the shape [128, 64], and by config.json [127, 64]"),
    "vocabulary": (text_config(vocab_size=260), "has the shape [266, 64], and by config.json [260, 64]"),
    "drafting": (text_config(mtp_num_hidden_layers=2), "1 layers that draft (mtp.layers) and config.json speaks of 2"),
    "untied": (text_config(tie_word_embeddings=False), "1 tensors are in no file, such as lm_head.weight"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_that_cannot_be(checkpoint: Path, name: str) -> None:
    change, what = CONFIGS[name]
    change_json(checkpoint / "config.json", change)
    assert what in refusal(checkpoint).message


def test_only_one_split_of_the_rotated_pairs_is_computed_right() -> None:
    assert sections_for(32) == (11, 11, 10)  # of the 4B
    for half in range(1, 200):
        sections = sections_for(half)
        # the graph gives pair i to section i % 3 while i < 3 * its size, else to the fourth, which stays unrotated
        assert all(i < 3 * sections[i % 3] for i in range(half)) and sum(sections) == half


TOKENIZERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "kind": (lambda t: t["model"].update(type="Unigram"), "is no byte-pair encoding"),
    "split": (lambda t: t["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex=r"\w+"), "in an unknown way"),
    "more": (lambda t: t.update(post_processor={"type": "TemplateProcessing"}), "adds tokens by itself"),
    "lower": (lambda t: t.update(normalizer={"type": "Lowercase"}), "changes a text before it reads it"),
    "merges": (lambda t: t["model"].update(merges=["a b c"]), "is damaged: the merge 'a b c'"),
    "numbers": (lambda t: t["model"]["vocab"].update(a="1"), "is damaged: its vocabulary"),
    "beyond": (lambda t: t["model"]["vocab"].update(new=999), "is beyond the 266 of config.json"),
    "twice": (lambda t: t["model"]["vocab"].update(new=0), "is damaged: token 0 is"),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_tokenizer_that_llama_cpp_would_not_follow(checkpoint: Path, name: str) -> None:
    change, what = TOKENIZERS[name]
    change_json(checkpoint / "tokenizer.json", change)
    assert what in refusal(checkpoint).message


def test_what_could_not_serve(checkpoint: Path, tmp_path: Path) -> None:
    template = checkpoint / "chat_template.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert "tool" in refusal(checkpoint).message
    template.write_text("{% for i in range(10 ** 9) %}{% for j in range(10 ** 9) %}{% endfor %}{% endfor %}")
    assert "chat template" in refusal(checkpoint).message
    template.unlink()
    assert "no chat template: it is a base model" in refusal(checkpoint).message
    (checkpoint / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in refusal(checkpoint).message


def test_tensors_that_do_not_belong(checkpoint: Path) -> None:
    path = shards(checkpoint)[0]

    def rename(name: str) -> Callable[[Any], Any]:
        return lambda header: {name if key == NORM else key: value for key, value in header.items()}

    (checkpoint / INDEX).unlink()
    change_header(path, rename("model.layers.0.mlp.experts.0.up.weight"))
    assert "not of this architecture, such as model.layers.0.mlp.experts" in refusal(checkpoint).message
    change_header(path, lambda h: {NORM if "experts" in k else k: v for k, v in h.items()})
    change_header(path, lambda h: h[NORM].update(dtype="I16"))
    assert "is in I16: the weights are quantized already" in refusal(checkpoint).message


# --- its card -------------------------------------------------------------------------------------------------


def test_names_and_sizes() -> None:
    assert [title(name) for name in ("FrogNano-4B-2609", "tiny-frog", "qwen v2 4b")] == [
        "FrogNano 4B 2609",
        "Tiny Frog",
        "Qwen v2 4b",
    ]
    assert [size_label(n) for n in (4_338_000_000, 12_345_678, 250_000, 999)] == ["4.3B", "12M", "250K", "1.0K"]


@pytest.mark.parametrize("content", ["---\nlicense: [mit\n---\nx", "---\n- a\n---\n", "---\nnever: ended\n", "\xff"])
def test_a_card_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "README.md").write_bytes(content.encode("latin-1"))
    assert read_card(tmp_path).licence == "not named"


def test_a_revision_that_was_downloaded_is_kept(checkpoint: Path) -> None:
    note = checkpoint / ".cache/huggingface/download/config.json.metadata"
    note.parent.mkdir(parents=True)
    note.write_text(f"{'ab' * 20}\netag\n1.0\n")
    (checkpoint / "README.md").write_text("---\nlicense: apache-2.0\nbase_model: Qwen/Qwen3.5-4B\n---\n")
    plan = plan_conversion(checkpoint)
    assert plan.licence == "apache-2.0"
    assert plan.metadata["frog.source.revision"].value == "ab" * 20
    assert plan.metadata["general.base_model.0.name"].value == "Qwen3.5 4B"
