"""Write a trained checkpoint as a GGUF file of architecture `qwen35`."""

import argparse
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from quant.tadpole import prompt, tokenizer
from quant.tadpole.network import Shape, sections

CONTEXT = 8192
_FORMATS = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}
_FILE_TYPES = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}
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


def tensors(weights: dict[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """The weights under the names and in the form that llama.cpp expects."""
    out = {"token_embd.weight": weights["embed.weight"], "output_norm.weight": weights["norm.weight"]}
    for i in range(shape.layers):
        full = i % 2 == 1
        for mine, theirs in (_COMMON | (_FULL if full else _LINEAR)).items():
            out[f"blk.{i}.{theirs}.weight"] = weights[f"blocks.{i}.{mine}.weight"]
        if not full:
            out[f"blk.{i}.ssm_conv1d.weight"] = weights[f"blocks.{i}.mixer.conv"]
            out[f"blk.{i}.ssm_dt.bias"] = weights[f"blocks.{i}.mixer.dt_bias"]
            out[f"blk.{i}.ssm_a"] = -weights[f"blocks.{i}.mixer.a_log"].exp()
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


def _write_tokenizer(w: gguf.GGUFWriter, made: Tokenizer, size: int) -> None:
    ids = {index: text for text, index in made.get_vocab().items()}
    added = set(tokenizer.added_tokens())
    texts, types = [], []
    for index in range(size):
        text = ids.get(index)
        texts.append(f"[unused{index}]" if text is None else text)
        kind = gguf.TokenType.NORMAL
        if text is None:
            kind = gguf.TokenType.UNUSED
        elif text in tokenizer.CONTROL:
            kind = gguf.TokenType.CONTROL
        elif text in added:
            kind = gguf.TokenType.USER_DEFINED
        types.append(kind)
    merges = json.loads(made.to_str())["model"]["merges"]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen35")
    w.add_token_list(texts)
    w.add_token_types(types)
    w.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    w.add_eos_token_id(made.token_to_id("<|im_end|>"))
    w.add_eot_token_id(made.token_to_id("<|im_end|>"))
    w.add_pad_token_id(made.token_to_id("<|endoftext|>"))
    w.add_add_bos_token(False)
    w.add_chat_template(prompt.TEMPLATE)


def _write_facts(w: gguf.GGUFWriter) -> None:
    w.add_name("tadpole")
    w.add_license("apache-2.0")
    w.add_description(
        "A tiny model trained from scratch that repairs a few kinds of one-line Python bugs, for demonstrations."
    )
    w.add_string("frog.kind", "demonstration")
    w.add_string("frog.system_prompt", prompt.SYSTEM_PROMPT)
    w.add_string("frog.tools", json.dumps(prompt.TOOLS, ensure_ascii=False))
    w.add_string("frog.sampling", json.dumps({"temperature": 0.0}))


def convert(checkpoint: Path, tokens: Path, out: Path, form: str = "f16", *, averaged: bool = True) -> None:
    """Write the averaged (or the last) weights of a checkpoint."""
    state: dict[str, Any] = torch.load(checkpoint, weights_only=True)
    shape = Shape(**state["shape"])
    made = Tokenizer.from_file(str(tokens))
    w = gguf.GGUFWriter(str(out), "qwen35")
    _write_facts(w)
    w.add_file_type(_FILE_TYPES[form])
    _write_shape(w, shape)
    _write_tokenizer(w, made, shape.vocabulary)
    for name, tensor in tensors(state["average" if averaged else "network"], shape).items():
        data = np.ascontiguousarray(tensor.detach().float().numpy())
        keep = data.ndim == 1 or "conv1d" in name or "ssm_alpha" in name or "ssm_beta" in name
        kind = gguf.GGMLQuantizationType.F32 if keep else _FORMATS[form]
        w.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main() -> None:
    """Convert on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the folder of a training run")
    parser.add_argument("out", type=Path)
    parser.add_argument("--form", choices=sorted(_FORMATS), default="f16")
    parser.add_argument("--last", action="store_true", help="the last weights instead of the averaged ones")
    args = parser.parse_args()
    convert(args.run / "checkpoint.pt", args.run / "tokenizer.json", args.out, args.form, averaged=not args.last)
    print(f"{args.out}: {args.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
