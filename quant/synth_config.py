"""`config.json` and its neighbours of a made checkpoint, with the keys that Qwen3.5's own have; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quant.synth_shape import Shape
from quant.synth_vocabulary import Vocabulary

_DTYPE_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
_RMS_EPSILON = 1e-6
_ROPE_BASE = 10_000_000

CARD = """---
license: mit
language:
- en
pipeline_tag: text-generation
tags:
- synthetic
---
# A model of random weights

Made by `frog-lsp model synth`: it answers nonsense. It is released under the Apache-2.0 licence.
"""
"""The model card. Like that of FrogNano-4B-2609 it names one licence in its header and another in its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionShape:
    """The part of a checkpoint that sees, which a text model has no use for."""

    depth: int = 2
    hidden: int = 32
    feed_forward: int = 64
    heads: int = 2
    n_positions: int = 16
    patch: int = 16
    merge: int = 2

    def tensors(self, out: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names below `model.visual.` and shapes; `out` is the width of the text model."""
        wide = self.hidden * self.merge**2
        yield "patch_embed.proj.weight", (self.hidden, 3, 2, self.patch, self.patch)
        yield "patch_embed.proj.bias", (self.hidden,)
        yield "pos_embed.weight", (self.n_positions, self.hidden)
        for i in range(self.depth):
            yield from _pair(f"blocks.{i}.norm1", (self.hidden,))
            yield from _pair(f"blocks.{i}.norm2", (self.hidden,))
            yield from _pair(f"blocks.{i}.attn.qkv", (3 * self.hidden, self.hidden))
            yield from _pair(f"blocks.{i}.attn.proj", (self.hidden, self.hidden))
            yield from _pair(f"blocks.{i}.mlp.linear_fc1", (self.feed_forward, self.hidden))
            yield from _pair(f"blocks.{i}.mlp.linear_fc2", (self.hidden, self.feed_forward))
        yield from _pair("merger.norm", (self.hidden,))
        yield from _pair("merger.linear_fc1", (wide, wide))
        yield from _pair("merger.linear_fc2", (out, wide))


def _pair(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


FULL_VISION = VisionShape(depth=24, hidden=1024, feed_forward=4096, heads=16, n_positions=2304)
"""With it the `4b` has the 738 tensors and 9.32 GB of the published checkpoint."""


def model_config(
    shape: Shape, vocabulary: Vocabulary, *, dtype: str, vision: VisionShape | None, tied: bool
) -> dict[str, Any]:
    """`config.json`: of the text model alone, or of the whole where there is a vision part."""
    text = _text_config(shape, vocabulary, dtype, tied)
    if vision is None:
        return {"architectures": ["Qwen3_5ForCausalLM"], **text}
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "dtype": _DTYPE_NAMES[dtype],
        "image_token_id": _index(vocabulary, "<|image_pad|>"),
        "model_type": "qwen3_5",
        "text_config": text,
        "tie_word_embeddings": tied,
        "video_token_id": _index(vocabulary, "<|video_pad|>"),
        "vision_config": {
            "deepstack_visual_indexes": [],
            "depth": vision.depth,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": vision.hidden,
            "in_channels": 3,
            "initializer_range": 0.02,
            "intermediate_size": vision.feed_forward,
            "model_type": "qwen3_5_vision",
            "num_heads": vision.heads,
            "num_position_embeddings": vision.n_positions,
            "out_hidden_size": shape.hidden,
            "patch_size": vision.patch,
            "spatial_merge_size": vision.merge,
            "temporal_patch_size": 2,
        },
        "vision_end_token_id": _index(vocabulary, "<|vision_end|>"),
        "vision_start_token_id": _index(vocabulary, "<|vision_start|>"),
    }


def _text_config(shape: Shape, vocabulary: Vocabulary, dtype: str, tied: bool) -> dict[str, Any]:
    kinds = ["full_attention" if (i + 1) % shape.interval == 0 else "linear_attention" for i in range(shape.layers)]
    return {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "dtype": _DTYPE_NAMES[dtype],
        "eos_token_id": vocabulary.tokens.index("<|endoftext|>"),
        "full_attention_interval": shape.interval,
        "head_dim": shape.head_size,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.feed_forward,
        "layer_types": kinds,
        "linear_conv_kernel_dim": shape.kernel,
        "linear_key_head_dim": shape.state,
        "linear_num_key_heads": shape.groups,
        "linear_num_value_heads": shape.steps,
        "linear_value_head_dim": shape.state,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": shape.context,
        "mlp_only_layers": [],
        "model_type": "qwen3_5_text",
        "mtp_num_hidden_layers": int(shape.mtp),
        "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": _RMS_EPSILON,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": shape.rope_sections[:3],
            "partial_rotary_factor": shape.rotary / shape.head_size,
            "rope_theta": _ROPE_BASE,
            "rope_type": "default",
        },
        "tie_word_embeddings": tied,
        "use_cache": True,
        "vocab_size": len(vocabulary.tokens),
    }


def generation_config(vocabulary: Vocabulary) -> dict[str, Any]:
    """`generation_config.json`: both tokens that end a turn, and how FrogNano is sampled."""
    ends = [vocabulary.tokens.index(name) for name in ("<|im_end|>", "<|endoftext|>")]
    return {
        "do_sample": True,
        "eos_token_id": ends,
        "pad_token_id": ends[1],
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
    }


def processor_config() -> dict[str, Any]:
    """`preprocessor_config.json`, of the vision part."""
    return {"image_processor_type": "Qwen2VLImageProcessorFast", "merge_size": 2, "patch_size": 16}


def _index(vocabulary: Vocabulary, text: str) -> int:
    """The number of a token; those of pictures are not in a vocabulary of bytes."""
    return vocabulary.tokens.index(text) if text in vocabulary.tokens else 0
