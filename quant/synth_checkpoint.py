"""Made checkpoints in the form of Hugging Face: safetensors, configuration and tokenizer, as Qwen3.5 has them.

The weights are those of `synth.write_model` for the same shape and seed: a checkpoint in F32 that is converted has the
very values of the GGUF in f32. What a converter does is undone here: norms lose their 1, `A_log` is the logarithm, the
value heads of the delta rule go from tiled to grouped.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from agent.errors import UsageError
from quant.synth import TEMPLATE, Progress, tensor_pieces
from quant.synth_config import CARD, VisionShape, generation_config, model_config, processor_config
from quant.synth_shape import Shape, Tensor, tensors
from quant.synth_tokenizer import tokenizer_config, tokenizer_json
from quant.synth_vocabulary import Vocabulary, byte_vocabulary

DTYPES = {"BF16": 2, "F16": 2, "F32": 4}
"""Bytes of one value by the names of safetensors."""

_ALWAYS_F32 = (".A_log", ".linear_attn.norm.weight")  # as in Qwen3.5's own files
_HEADER_ALIGNMENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A tensor as a checkpoint names and shapes it; `source` says where its values come from."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    source: Tensor

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * DTYPES[self.dtype]


def write_checkpoint(
    folder: Path,
    shape: Shape,
    *,
    vocabulary: Vocabulary | None = None,
    dtype: str = "BF16",
    n_shards: int = 1,
    vision: VisionShape | None = None,
    tied: bool = True,
    template: str | None = TEMPLATE,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Path:
    """Write a checkpoint into `folder`, which is made, and return it.

    `shape.mtp` adds `mtp.*`; `vision` adds `model.visual.*` and then the text model is below `model.language_model.`,
    as in the published checkpoints; without it, it is the text model alone (`Qwen3_5ForCausalLM`, below `model.`).
    `tied`: no `lm_head.weight`. `vocabulary` None is the 256 bytes and the tags; `synth_vocabulary.qwen_vocabulary()`
    is the real one. Two shards or more come with `model.safetensors.index.json`. `config.json` is written last.
    Raises UsageError where an argument cannot be, OSError.
    """
    if dtype not in DTYPES:
        raise UsageError(f"there is no dtype {dtype}", f"Choose one of {', '.join(DTYPES)}.")
    vocabulary = vocabulary or byte_vocabulary(shape.vocabulary)
    stored = list(_stored(shape, len(vocabulary.tokens), dtype, vision, tied))
    shards = _split(stored, n_shards)
    if len(shards) != n_shards:
        raise UsageError(f"{len(stored)} tensors cannot be split into {n_shards} files", "Ask for fewer.")
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(tensor.n_bytes for tensor in stored)
    done = 0
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = "model.safetensors"
        if n_shards > 1:
            name = f"model.safetensors-{number:05}-of-{n_shards:05}.safetensors"
        weight_map |= {tensor.name: name for tensor in shard}
        for n_bytes in _write_shard(folder / name, shard, shape, seed):
            done += n_bytes
            if on_progress is not None:
                on_progress(done, total)
    if n_shards > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        _write_json(folder / "model.safetensors.index.json", index)
    _write_json(folder / "tokenizer.json", tokenizer_json(vocabulary), None)
    _write_json(folder / "tokenizer_config.json", tokenizer_config(vocabulary))
    _write_json(folder / "generation_config.json", generation_config(vocabulary))
    if vision is not None:
        _write_json(folder / "preprocessor_config.json", processor_config())
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    (folder / "README.md").write_text(CARD, "utf-8")
    _write_json(folder / "config.json", model_config(shape, vocabulary, dtype=dtype, vision=vision, tied=tied))
    return folder


def _stored(shape: Shape, n_tokens: int, dtype: str, vision: VisionShape | None, tied: bool) -> Iterator[_Stored]:
    """All tensors in the order of their files: the text model, the layer that drafts, the vision part."""
    root = "model." if vision is None else "model.language_model."
    for tensor in tensors(shape, n_tokens):
        name = checkpoint_name(tensor.name, shape.layers, root)
        size = (tensor.shape[0], 1, tensor.shape[1]) if ".conv1d." in name else tensor.shape
        yield _Stored(name=name, shape=size, dtype=_dtype(name, dtype), source=tensor)
    if not tied:
        head = Tensor(name="output.weight", shape=(n_tokens, shape.hidden), scale=0.64 / shape.hidden**0.5)
        yield _Stored(name="lm_head.weight", shape=head.shape, dtype=dtype, source=head)
    for name, size in vision.tensors(shape.hidden) if vision else ():
        flat = Tensor(name=name, shape=(prod(size[:-1]), size[-1]), scale=0.02)
        yield _Stored(name=f"model.visual.{name}", shape=size, dtype=dtype, source=flat)


def _dtype(name: str, dtype: str) -> str:
    return "F32" if name.endswith(_ALWAYS_F32) else dtype


_GLOBAL = {"token_embd.weight": "embed_tokens.weight", "output_norm.weight": "norm.weight"}
_IN_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
    "attn_gate.weight": "linear_attn.in_proj_z.weight",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_a": "linear_attn.A_log",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_NEXT_TOKEN = {
    "nextn.eh_proj.weight": "fc.weight",
    "nextn.enorm.weight": "pre_fc_norm_embedding.weight",
    "nextn.hnorm.weight": "pre_fc_norm_hidden.weight",
    "nextn.shared_head_norm.weight": "norm.weight",
}


def checkpoint_name(name: str, n_layers: int, root: str = "model.") -> str:
    """The name in a checkpoint of a tensor of GGUF; the layer after the last is `mtp.`. Raises KeyError."""
    if name in _GLOBAL:
        return root + _GLOBAL[name]
    _, number, rest = name.split(".", 2)
    if int(number) < n_layers:
        return f"{root}layers.{number}.{_IN_LAYER[rest]}"
    return f"mtp.{_NEXT_TOKEN[rest]}" if rest in _NEXT_TOKEN else f"mtp.layers.0.{_IN_LAYER[rest]}"


def _split(stored: list[_Stored], n_shards: int) -> list[list[_Stored]]:
    """In order, into about equal bytes."""
    total = sum(tensor.n_bytes for tensor in stored)
    shards: list[list[_Stored]] = []
    before = 0
    for tensor in stored:
        if before * n_shards >= total * len(shards):
            shards.append([])
        shards[-1].append(tensor)
        before += tensor.n_bytes
    return shards


def _write_shard(path: Path, shard: list[_Stored], shape: Shape, seed: int) -> Iterator[int]:
    """Write one file; gives the bytes of each piece. Layout: length of the header (u64), header (JSON), data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in shard:
        end = at + tensor.n_bytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor in shard:
                for values in _values(tensor, shape, seed):
                    yield file.write(_encode(values, tensor.dtype))
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _values(tensor: _Stored, shape: Shape, seed: int) -> Iterator[Any]:
    """The values in f32 as a checkpoint holds them, in pieces where heads keep their order."""
    source = tensor.source
    pieces = tensor_pieces(source, seed, raw=source.decay)
    if (axis := _HEAD_AXES.get(source.name.partition(".")[2].partition(".")[2])) is not None:
        whole = np.concatenate(list(pieces)).reshape(source.shape)
        yield _grouped(whole, axis, shape)
        return
    takes_one = source.base == 1.0 and not source.name.endswith("ssm_norm.weight")  # (1 + weight) in the model's code
    for values in pieces:
        yield values - np.float32(1) if takes_one else values


_HEAD_AXES = {
    "attn_qkv.weight": 0, "attn_gate.weight": 0, "ssm_conv1d.weight": 0, "ssm_dt.bias": 0, "ssm_a": 0,
    "ssm_beta.weight": 0, "ssm_alpha.weight": 0, "ssm_out.weight": 1,
}  # fmt: skip
"""Along which axis the value heads of a tensor lie; those of queries and keys come before them."""


def _grouped(values: Any, axis: int, shape: Shape) -> Any:
    """Value heads from tiled (k0 k1 … k0 k1 …), as ggml repeats, to grouped by their key head (k0 k0 … k1 k1 …)."""
    per_key = shape.steps // shape.groups
    n_all = values.shape[axis]
    width = 1 if n_all == shape.steps else shape.state  # the gates have one value for each head
    n_values = shape.steps * width
    heads = np.arange(n_values).reshape(per_key, shape.groups, width).transpose(1, 0, 2).reshape(-1)
    first = n_all - n_values
    order = np.concatenate([np.arange(first), first + heads])
    return np.take(values, order, axis=axis)


def _encode(values: Any, dtype: str) -> bytes:
    if dtype == "F32":
        return bytes(values.astype("<f4").tobytes())
    if dtype == "F16":
        return bytes(values.astype("<f2").tobytes())
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to the nearest, ties to even
    return bytes(rounded.astype("<u2").tobytes())


def _write_json(path: Path, value: dict[str, Any], indent: int | None = 1) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=indent) + "\n", "utf-8")
