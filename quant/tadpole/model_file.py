"""The model file: weights, sizes and vocabulary to a GGUF of architecture `qwen35`, and back without loss.

numpy and `gguf` only. `write(read(f))` gives the bytes of `f` again: a training can begin at the file in the
repository.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from quant.tadpole import prompt
from quant.tadpole.shape import Shape, sections

Array = np.ndarray[Any, np.dtype[Any]]

CONTEXT = 8192
FORMS = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}
END, PAD = "<|im_end|>", "<|endoftext|>"
_TRAINING = "frog.training"
_COMMON = {
    "norm": "attn_norm",
    "post_norm": "post_attention_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_FULL = {
    "mixer.q": "attn_q", "mixer.k": "attn_k", "mixer.v": "attn_v", "mixer.out": "attn_output",
    "mixer.q_norm": "attn_q_norm", "mixer.k_norm": "attn_k_norm",
}  # fmt: skip
_LINEAR = {
    "mixer.qkv": "attn_qkv", "mixer.gate": "attn_gate", "mixer.beta": "ssm_beta", "mixer.alpha": "ssm_alpha",
    "mixer.norm": "ssm_norm", "mixer.out": "ssm_out",
}  # fmt: skip


@dataclass(frozen=True)
class Vocabulary:
    """All tokens in the order of their ids, with their kinds (`gguf.TokenType`), and the merges of the BPE."""

    texts: list[str]
    kinds: list[int]
    merges: list[str]


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds; `weights` under the names of the network, in single precision, `a_log` in double."""

    weights: dict[str, Array]
    shape: Shape
    vocabulary: Vocabulary
    training: str | None = None  # how the weights came about, as JSON


def _names(shape: Shape) -> dict[str, str]:
    """The network's names of the weights, and those of llama.cpp, in the order of the file."""
    out = {"embed.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
    for i in range(shape.layers):
        full = i % 2 == 1
        for mine, theirs in (_COMMON | (_FULL if full else _LINEAR)).items():
            out[f"blocks.{i}.{mine}.weight"] = f"blk.{i}.{theirs}.weight"
        if not full:
            out[f"blocks.{i}.mixer.conv"] = f"blk.{i}.ssm_conv1d.weight"
            out[f"blocks.{i}.mixer.dt_bias"] = f"blk.{i}.ssm_dt.bias"
            out[f"blocks.{i}.mixer.a_log"] = f"blk.{i}.ssm_a"
    return out


def _write_shape(w: gguf.GGUFWriter, s: Shape) -> None:
    w.add_block_count(s.layers)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(s.hidden)
    w.add_feed_forward_length(s.feed_forward)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.kv_heads)
    w.add_key_length(s.head_size)
    w.add_value_length(s.head_size)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_dimension_count(s.rotary)
    w.add_rope_dimension_sections(sections(s.rotary))
    w.add_rope_freq_base(s.rope_base)
    w.add_ssm_conv_kernel(4)
    w.add_ssm_state_size(s.linear_size)
    w.add_ssm_group_count(s.linear_heads)
    w.add_ssm_time_step_rank(s.linear_heads)
    w.add_ssm_inner_size(s.linear_heads * s.linear_size)
    w.add_full_attention_interval(2)


def _read_shape(value: dict[str, Any]) -> Shape:
    def key(name: str) -> Any:
        return value[f"qwen35.{name}"]

    return Shape(
        len(value["tokenizer.ggml.tokens"]),
        hidden=key("embedding_length"),
        layers=key("block_count"),
        feed_forward=key("feed_forward_length"),
        heads=key("attention.head_count"),
        kv_heads=key("attention.head_count_kv"),
        head_size=key("attention.key_length"),
        linear_heads=key("ssm.group_count"),
        linear_size=key("ssm.state_size"),
        rotary=key("rope.dimension_count"),
        rope_base=key("rope.freq_base"),
    )


def _write_vocabulary(w: gguf.GGUFWriter, made: Vocabulary) -> None:
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen35")
    w.add_token_list(made.texts)
    w.add_token_types(made.kinds)
    w.add_token_merges(made.merges)
    w.add_eos_token_id(made.texts.index(END))
    w.add_eot_token_id(made.texts.index(END))
    w.add_pad_token_id(made.texts.index(PAD))
    w.add_add_bos_token(False)
    w.add_chat_template(prompt.TEMPLATE)


def _write_facts(w: gguf.GGUFWriter, training: str | None) -> None:
    w.add_name("tadpole")
    w.add_license("apache-2.0")
    w.add_description(
        "A tiny model trained from scratch that repairs a few kinds of one-line Python bugs, for demonstrations."
    )
    w.add_string("frog.kind", "demonstration")
    w.add_string("frog.system_prompt", prompt.SYSTEM_PROMPT)
    w.add_string("frog.tools", json.dumps(prompt.TOOLS, ensure_ascii=False))
    w.add_string("frog.sampling", json.dumps({"temperature": 0.0}))
    if training is not None:
        w.add_string(_TRAINING, training)


def write(model: ModelFile, out: Path, form: str = "f16") -> None:
    """Write a model file; matrices in the form, vectors and gates in single precision."""
    main, file_type = FORMS[form]
    w = gguf.GGUFWriter(str(out), "qwen35")
    _write_facts(w, model.training)
    w.add_file_type(file_type)
    _write_shape(w, model.shape)
    _write_vocabulary(w, model.vocabulary)
    for mine, name in _names(model.shape).items():
        data = model.weights[mine]
        if name.endswith("ssm_a"):  # in double precision, so that reading and writing again changes no bit
            data = -np.exp(data.astype(np.float64))
        data = np.ascontiguousarray(data, dtype=np.float32)
        keep = data.ndim == 1 or "conv1d" in name or "ssm_alpha" in name or "ssm_beta" in name
        kind = gguf.GGMLQuantizationType.F32 if keep else main
        w.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def read(path: Path) -> ModelFile:
    """Read a model file that `write` wrote. Raises KeyError where it is another kind of file."""
    reader = gguf.GGUFReader(str(path))
    value = {name: field.contents() for name, field in reader.fields.items()}
    shape = _read_shape(value)
    stored = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    weights: dict[str, Array] = {}
    for mine, name in _names(shape).items():
        data = np.array(stored[name])
        weights[mine] = np.log(-data.astype(np.float64)) if name.endswith("ssm_a") else data
    texts, kinds, merges = (value[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type", "merges"))
    return ModelFile(weights, shape, Vocabulary(texts, kinds, merges), value.get(_TRAINING))
