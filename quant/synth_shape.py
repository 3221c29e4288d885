"""The shapes of made models: the hybrid `qwen35` architecture at any scale, and the tensors that each has; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the metadata of a `qwen35` model says. `layers` leaves out the MTP layer; every fourth is attention.

    `rotary` of the `head_size` values of a head are rotated. The delta rule has `steps` value heads over `groups` key
    heads of `state` values each. `vocabulary` is the least number of tokens: there are always the bytes and the tags.
    """

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    rotary: int
    groups: int
    steps: int
    state: int
    vocabulary: int
    context: int
    interval: int = 4
    kernel: int = 4
    mtp: bool = False

    @property
    def rope_sections(self) -> list[int]:
        """The halves of the rotated values in sections; a pair in the fourth would never be rotated in text."""
        half = self.rotary // 2
        return [(half + 2) // 3, (half + 1) // 3, half // 3, 0]

    @property
    def metadata(self) -> dict[str, Any]:
        """The keys below `qwen35.`, as GGUF has them."""
        numbers: dict[str, Any] = {
            "block_count": self.layers + self.mtp,
            "context_length": self.context,
            "embedding_length": self.hidden,
            "feed_forward_length": self.feed_forward,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_size,
            "attention.value_length": self.head_size,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.dimension_count": self.rotary,
            "rope.dimension_sections": self.rope_sections,
            "rope.freq_base": 1e7,
            "ssm.conv_kernel": self.kernel,
            "ssm.state_size": self.state,
            "ssm.group_count": self.groups,
            "ssm.time_step_rank": self.steps,
            "ssm.inner_size": self.steps * self.state,
            "full_attention_interval": self.interval,
        }
        return numbers | ({"nextn_predict_layers": 1} if self.mtp else {})


SHAPES = {
    "tiny": Shape(
        layers=4, hidden=64, feed_forward=128, heads=4, kv_heads=2, head_size=16, rotary=8,
        groups=2, steps=4, state=16, vocabulary=0, context=4096,
    ),
    "medium": Shape(
        layers=8, hidden=512, feed_forward=1536, heads=8, kv_heads=2, head_size=64, rotary=16,
        groups=4, steps=8, state=64, vocabulary=8192, context=32_768,
    ),
    "0.8b": Shape(
        layers=24, hidden=1024, feed_forward=3584, heads=8, kv_heads=2, head_size=256, rotary=64,
        groups=16, steps=16, state=128, vocabulary=248_320, context=262_144,
    ),
    "4b": Shape(
        layers=32, hidden=2560, feed_forward=9216, heads=16, kv_heads=4, head_size=256, rotary=64,
        groups=16, steps=32, state=128, vocabulary=248_320, context=262_144,
    ),
}  # fmt: skip
"""`4b` is the whole shape of FrogNano-4B; `medium` is for measuring in seconds."""


def find_shape(name: str, *, mtp: bool = False) -> Shape:
    """A shape by its name. Raises KeyError."""
    return replace(SHAPES[name], mtp=mtp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor: `base` plus normal noise of `scale`. Rows first, as numpy has it.

    `exact` ones stay in f32: vectors, and the small matrices that decide what a state forgets. `decay` is the one
    tensor that holds -exp of its values.
    """

    name: str
    shape: tuple[int, ...]
    scale: float = 0.08
    base: float = 0.0
    exact: bool = False
    decay: bool = False


def tensors(shape: Shape, n_tokens: int) -> Iterator[Tensor]:
    """All tensors in the order of the file."""
    # The scales keep activations in bounds at every width: the noise of a sum grows with the root of its length.
    s = 0.64 / shape.hidden**0.5
    yield Tensor(name="token_embd.weight", shape=(n_tokens, shape.hidden), scale=0.5)
    yield _norm("output_norm", shape.hidden)
    for i in range(shape.layers):
        yield _norm(f"blk.{i}.attn_norm", shape.hidden)
        yield _norm(f"blk.{i}.post_attention_norm", shape.hidden)
        yield from _attention(i, shape, s) if (i + 1) % shape.interval == 0 else _recurrent(i, shape, 2.5 * s)
        yield from _feed_forward(i, shape, s)
    if shape.mtp:
        yield from _next_token_layer(shape.layers, shape, s)


def _norm(name: str, size: int) -> Tensor:
    return Tensor(name=f"{name}.weight", shape=(size,), scale=0.02, base=1.0, exact=True)


def _attention(i: int, shape: Shape, s: float) -> Iterator[Tensor]:
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    yield Tensor(name=f"blk.{i}.attn_q.weight", shape=(2 * queries, shape.hidden), scale=s)  # with the gates
    yield Tensor(name=f"blk.{i}.attn_k.weight", shape=(keys, shape.hidden), scale=s)
    yield Tensor(name=f"blk.{i}.attn_v.weight", shape=(keys, shape.hidden), scale=s)
    yield Tensor(name=f"blk.{i}.attn_output.weight", shape=(shape.hidden, queries), scale=s)
    yield _norm(f"blk.{i}.attn_q_norm", shape.head_size)
    yield _norm(f"blk.{i}.attn_k_norm", shape.head_size)


def _recurrent(i: int, shape: Shape, s: float) -> Iterator[Tensor]:
    keys, values = shape.groups * shape.state, shape.steps * shape.state
    yield Tensor(name=f"blk.{i}.attn_qkv.weight", shape=(2 * keys + values, shape.hidden), scale=s)
    yield Tensor(name=f"blk.{i}.attn_gate.weight", shape=(values, shape.hidden), scale=s)
    yield Tensor(name=f"blk.{i}.ssm_conv1d.weight", shape=(2 * keys + values, shape.kernel), scale=0.4, exact=True)
    yield Tensor(name=f"blk.{i}.ssm_dt.bias", shape=(shape.steps,), scale=0.1, exact=True)
    yield Tensor(name=f"blk.{i}.ssm_a", shape=(shape.steps,), scale=0.3, base=-2.0, exact=True, decay=True)
    yield Tensor(name=f"blk.{i}.ssm_beta.weight", shape=(shape.steps, shape.hidden), scale=s, exact=True)
    yield Tensor(name=f"blk.{i}.ssm_alpha.weight", shape=(shape.steps, shape.hidden), scale=s, exact=True)
    yield _norm(f"blk.{i}.ssm_norm", shape.state)
    yield Tensor(name=f"blk.{i}.ssm_out.weight", shape=(shape.hidden, values), scale=s)


def _feed_forward(i: int, shape: Shape, s: float) -> Iterator[Tensor]:
    yield Tensor(name=f"blk.{i}.ffn_gate.weight", shape=(shape.feed_forward, shape.hidden), scale=s)
    yield Tensor(name=f"blk.{i}.ffn_up.weight", shape=(shape.feed_forward, shape.hidden), scale=s)
    yield Tensor(name=f"blk.{i}.ffn_down.weight", shape=(shape.hidden, shape.feed_forward), scale=s)


def _next_token_layer(i: int, shape: Shape, s: float) -> Iterator[Tensor]:
    yield _norm(f"blk.{i}.attn_norm", shape.hidden)
    yield _norm(f"blk.{i}.post_attention_norm", shape.hidden)
    yield from _attention(i, shape, s)
    yield from _feed_forward(i, shape, s)
    yield Tensor(name=f"blk.{i}.nextn.eh_proj.weight", shape=(shape.hidden, 2 * shape.hidden), scale=s)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        yield _norm(f"blk.{i}.nextn.{name}", shape.hidden)
