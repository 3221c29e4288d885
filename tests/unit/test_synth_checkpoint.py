"""Made checkpoints: the weights of the made GGUF as Hugging Face stores them, and the files that go with them."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.errors import UsageError
from quant.synth import write_model
from quant.synth_checkpoint import _stored, checkpoint_name, write_checkpoint
from quant.synth_config import FULL_VISION, VisionShape
from quant.synth_shape import find_shape
from quant.synth_vocabulary import byte_vocabulary
from tests.frog import Frog

ODD = replace(find_shape("tiny", mtp=True), groups=3, steps=6, heads=3, kv_heads=1)


def read_tensors(folder: Path) -> dict[str, Any]:
    """Every tensor of every file of a checkpoint, in f32, and with what shape it is stored."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        assert (8 + length) % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}
        assert max(info["data_offsets"][1] for info in header.values()) == len(data) - 8 - length
        for name, info in header.items():
            begin, end = (8 + length + at for at in info["data_offsets"])
            raw = data[begin:end]
            if info["dtype"] == "BF16":
                values = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
            else:
                values = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[info["dtype"]])
            found[name] = values.reshape(info["shape"])
    return found


def read_gguf(path: Path) -> dict[str, Any]:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: run `make setup`")
    return {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


def test_it_holds_the_weights_of_the_made_model(tmp_path: Path) -> None:
    made = read_gguf(write_model(tmp_path / "m.gguf", ODD, seed=3))
    stored = read_tensors(write_checkpoint(tmp_path / "c", ODD, dtype="F32", seed=3))
    assert len(made) == len(stored)
    for name, values in made.items():
        mine = stored[checkpoint_name(name, ODD.layers)]
        if name.endswith("norm.weight") and not name.endswith("ssm_norm.weight"):
            mine = mine + np.float32(1)
        elif name.endswith("ssm_a"):
            mine = -np.exp(mine)
        if "conv1d" in name:
            assert mine.shape[1] == 1
            mine = mine[:, 0]
        assert np.array_equal(np.sort(mine, axis=None), np.sort(values, axis=None)), name
        if ".attn_qkv." not in name and ".attn_gate." not in name and ".ssm_" not in name:
            continue
        n_keys, per_key = ODD.groups, ODD.steps // ODD.groups
        for k in range(n_keys):  # each value head by hand: grouped by its key head here, tiled there
            for j in range(per_key):
                grouped, tiled = _head(name, mine, k * per_key + j), _head(name, values, j * n_keys + k)
                assert np.array_equal(grouped, tiled), (name, k, j)


def _head(name: str, values: Any, i: int) -> Any:
    if name.endswith("ssm_out.weight"):
        return values[:, i * ODD.state : (i + 1) * ODD.state]
    if name.endswith(("ssm_a", "ssm_dt.bias", "ssm_beta.weight", "ssm_alpha.weight")):
        return values[i]
    if name.endswith("ssm_norm.weight"):
        return values
    first = values.shape[0] - ODD.steps * ODD.state
    return values[first + i * ODD.state : first + (i + 1) * ODD.state]


def test_two_shards_with_all_parts(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, ODD, n_shards=2, vision=VisionShape(), tied=False)
    names = [f"model.safetensors-0000{i}-of-00002.safetensors" for i in (1, 2)]
    sizes = [(folder / name).stat().st_size for name in names]
    assert max(sizes) < 1.6 * min(sizes)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    tensors = read_tensors(folder)
    assert set(index["weight_map"]) == set(tensors) and set(index["weight_map"].values()) == set(names)
    roots = {name.split(".")[0] + "." + name.split(".")[1] for name in tensors}
    assert roots >= {"model.language_model", "model.visual", "lm_head.weight", "mtp.layers", "mtp.fc", "mtp.norm"}
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["Qwen3_5ForConditionalGeneration"]
    text = config["text_config"]
    assert (text["linear_num_key_heads"], text["linear_num_value_heads"], text["mtp_num_hidden_layers"]) == (3, 6, 1)
    assert text["rope_parameters"]["mrope_section"] == ODD.rope_sections[:3]
    alone = write_checkpoint(tmp_path / "alone", replace(ODD, mtp=False))
    assert not any(name.startswith(("mtp.", "model.visual.")) for name in read_tensors(alone))
    assert not (alone / "model.safetensors.index.json").exists()
    assert json.loads((alone / "config.json").read_text())["architectures"] == ["Qwen3_5ForCausalLM"]


def test_the_whole_shape_is_the_published_checkpoint() -> None:
    stored = list(_stored(find_shape("4b", mtp=True), 248_320, "BF16", FULL_VISION, tied=True))
    assert len(stored) == 738
    assert sum(tensor.n_bytes for tensor in stored) / 1e9 == pytest.approx(9.32, abs=0.01)


def test_values_are_rounded_to_the_nearest(tmp_path: Path) -> None:
    exact = read_tensors(write_checkpoint(tmp_path / "f32", ODD, dtype="F32"))
    for dtype, step in (("BF16", 2**-8), ("F16", 2**-11)):
        for name, values in read_tensors(write_checkpoint(tmp_path / dtype, ODD, dtype=dtype)).items():
            error = np.abs(values - exact[name])
            assert np.all(error <= np.abs(exact[name]) * step + 2**-25), name
            if name.endswith((".A_log", "linear_attn.norm.weight")):
                assert not error.any()


def test_the_tokenizer_file_has_the_tokens(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, ODD)
    made = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = byte_vocabulary(0)
    added = {token["content"]: token["id"] for token in made["added_tokens"]}
    assert {**made["model"]["vocab"], **added} == {text: i for i, text in enumerate(vocabulary.tokens)}
    assert [token["content"] for token in made["added_tokens"] if token["special"]] == list(vocabulary.tokens[256:259])


@pytest.mark.parametrize(("dtype", "n_shards"), [("Q8_0", 1), ("BF16", 1000)])
def test_what_cannot_be_is_said(tmp_path: Path, dtype: str, n_shards: int) -> None:
    with pytest.raises(UsageError):
        write_checkpoint(tmp_path / "c", ODD, dtype=dtype, n_shards=n_shards)


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    frog = Frog(tmp_path)
    made = frog(
        "model", "synth", "tiny", tmp_path / "c", "--checkpoint", "--shards", "2", "--mtp", "--vision", "--json"
    )
    assert made.code == 0, made.err
    assert json.loads((tmp_path / "c" / "config.json").read_text())["dtype"] == "bfloat16"
    assert made.json["size_bytes"] == sum(path.stat().st_size for path in (tmp_path / "c").iterdir())
    for arguments in (["tiny", tmp_path / "c"], ["tiny"], ["tiny", tmp_path / "d", "--form", "q8_0"]):
        refused = frog("model", "synth", *arguments, "--checkpoint", "--json")
        assert refused.code == 2 and json.loads(refused.out)["error"]["hint"], arguments
    assert frog("model", "synth", "tiny", tmp_path / "m.gguf", "--shards", "2").code == 2
