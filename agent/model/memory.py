"""The one estimator of what a model needs in memory, and the context that fits.

The parts were measured with the 4B shape (Q4_K_M): 4.6 GiB resident with 8,192 tokens of context, 8.4 GiB with
131,072; see `MemoryNeed`.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.errors import ContextTooLarge, ModelUnavailable
from agent.model.gguf_header import GgufHeader

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CHECKPOINT_BYTES = 384 * MIB
"""The budget of saved states in the worker: seven of the 4B model's 50.25 MiB."""

SMALLEST_CONTEXT = 2048
ENOUGH_CONTEXT = 65_536
"""With 64 K and its own summaries FrogNano keeps its whole score: beyond it, a fast prefill is worth more."""

CONTEXT_STEP = 256
_OVERHEAD_BYTES = 300 * MIB  # Python, llama.cpp, compute buffers at micro-batches of 256: measured about 0.3 GiB
_REPACKED_SHARE = 0.64  # of the weights, when llama.cpp repacks 4-bit tensors for the processor: 1.6 of 2.5 GiB
_SPARE_SHARE = 0.05  # of the available memory stays free


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """What a model needs, in bytes.

    `weights_bytes` are mapped from the file; `repacked_bytes` are copies for the processor; `state_bytes` is the
    recurrent state of one conversation; `kv_bytes_per_token` the attention cache at f16.
    """

    weights_bytes: int
    repacked_bytes: int
    state_bytes: int
    checkpoints_bytes: int
    overhead_bytes: int
    kv_bytes_per_token: int

    @property
    def fixed_bytes(self) -> int:
        """Everything that does not grow with the context."""
        parts = (self.weights_bytes, self.repacked_bytes, self.state_bytes, self.checkpoints_bytes, self.overhead_bytes)
        return sum(parts)

    def total_bytes(self, n_ctx: int) -> int:
        """The need with a context of `n_ctx` tokens."""
        return self.fixed_bytes + n_ctx * self.kv_bytes_per_token


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPlan:
    """The context that a model is opened with, and what a person should know of it.

    `repack`: whether there is memory for llama.cpp to repack the weights, which makes reading a prompt faster.
    """

    n_ctx: int
    note: str | None = None
    repack: bool = True


def estimate(header: GgufHeader, *, kv_bits: float = 16.0) -> MemoryNeed:
    """Estimate from the metadata. `kv_bits` per value of the attention cache: 16 for f16, 8.5 for q8_0."""
    n_attention, n_recurrent = _layers(header)
    state = n_recurrent * _state_bytes_per_layer(header)
    small = header.tensor_bytes < 64 * MIB
    return MemoryNeed(
        weights_bytes=header.tensor_bytes,
        repacked_bytes=int(header.tensor_bytes * _REPACKED_SHARE),
        state_bytes=state,
        checkpoints_bytes=min(CHECKPOINT_BYTES, 64 * state),
        overhead_bytes=_OVERHEAD_BYTES // 3 if small else _OVERHEAD_BYTES,
        kv_bytes_per_token=int(n_attention * _kv_values_per_layer(header) * kv_bits / 8),
    )


def plan_context(header: GgufHeader, wanted: int, available_bytes: int, explicit: bool = False) -> ContextPlan:
    """Choose the context: the smallest of what is wanted, what the model was trained with, and what fits.

    Raises ContextTooLarge where it was asked for by hand (`explicit`) and does not fit, ModelUnavailable where not
    even 2,048 tokens fit.
    """
    need = estimate(header)
    trained = header.number("context_length") or wanted
    room = int(available_bytes * (1 - _SPARE_SHARE)) - need.fixed_bytes
    fits = _fitting(room, need)
    repack = fits >= min(wanted, trained, wanted if explicit else ENOUGH_CONTEXT)
    if not repack:
        fits = _fitting(room + need.repacked_bytes, need)
    if fits < min(SMALLEST_CONTEXT, trained, wanted):
        smallest = need.total_bytes(min(SMALLEST_CONTEXT, trained, wanted)) - need.repacked_bytes
        raise ModelUnavailable(
            f"the model needs about {smallest / GIB:.1f} GiB of memory and {available_bytes / GIB:.1f} GiB are free",
            "Close other programs, or use a smaller model: see `frog-lsp model list`.",
        )
    largest = min(trained, fits)
    if wanted <= largest:
        return ContextPlan(n_ctx=wanted, repack=repack)
    why = f"the model was trained with {trained:,}" if trained <= fits else "no more fits in memory now"
    if explicit:
        raise ContextTooLarge(
            f"a context of {wanted:,} tokens is too large: {why}", f"The largest is {largest}.", largest=largest
        )
    return ContextPlan(
        n_ctx=largest,
        note=f"The context was lowered from {wanted:,} to {largest:,} tokens: {why}.",
        repack=repack,
    )


def _fitting(room_bytes: int, need: MemoryNeed) -> int:
    return max(0, room_bytes) // max(1, need.kv_bytes_per_token) // CONTEXT_STEP * CONTEXT_STEP


def _layers(header: GgufHeader) -> tuple[int, int]:
    """The numbers of attention layers and of recurrent layers."""
    n_layers = header.number("block_count") - header.number("nextn_predict_layers")
    interval = header.number("full_attention_interval")
    if header.number("ssm.inner_size") == 0:
        return n_layers, 0
    n_attention = n_layers // interval if interval else 0
    return n_attention, n_layers - n_attention


def _kv_values_per_layer(header: GgufHeader) -> int:
    n_heads = header.number("attention.head_count", 1)
    n_kv_heads = header.number("attention.head_count_kv", n_heads)
    head_size = header.number("embedding_length") // max(1, n_heads)
    key, value = header.number("attention.key_length", head_size), header.number("attention.value_length", head_size)
    return n_kv_heads * (key + value)


def _state_bytes_per_layer(header: GgufHeader) -> int:
    """The convolution's and the delta rule's state of one layer, in f32."""
    inner, size = header.number("ssm.inner_size"), header.number("ssm.state_size")
    channels = inner + 2 * header.number("ssm.group_count") * size
    return 4 * (inner * size + max(0, header.number("ssm.conv_kernel") - 1) * channels)
