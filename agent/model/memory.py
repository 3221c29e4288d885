"""The one estimator of what a model needs in memory, and the plan that fits: context, cache, batch, repacking; pure.

Numbers of llama.cpp 0.3.36, read from the sizes of its own buffers and from the resident memory of a worker with the
whole 4B shape; the tests compare again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent.errors import ContextTooLarge, ModelUnavailable
from agent.model.gguf_header import GgufHeader

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CacheType = Literal["f16", "q8_0"]

CHECKPOINT_BYTES = 160 * MIB
"""The budget of saved states in the worker: three of the 4B model's 50.25 MiB.

That are the ones that a conversation goes back to: behind the tools, behind the issue, before the last turn.
"""

MARKS = 3
"""States of a turn whose calls are repaired while they are written: two that are kept, and one in the making."""

SMALLEST_CONTEXT = 2048
ENOUGH_CONTEXT = 65_536
"""With 64 K and its own summaries FrogNano keeps its whole score: beyond it, a fast prefill is worth more."""

CONTEXT_STEP = 256
BATCH_TOKENS = 256
SMALL_BATCH_TOKENS = 64
_PROCESS_BYTES = 70 * MIB  # Python, llama.cpp and its graphs
_VOCABULARY_BYTES = 350  # of one token with its merge in llama.cpp's tables: 81 MiB for 248,320
_SPARE_SHARE = 0.05  # of the available memory stays free
_CACHE_BITS: dict[CacheType, float] = {"f16": 16.0, "q8_0": 8.5}
_Q8_BLOCK = 32  # values that share a scale: a head must be made of whole blocks
_INTERVAL = 4  # llama.cpp's own, where the file does not say it
_MASK_BYTES = 2  # f16: one value for each token of the context and each of the micro-batch
_REPACKED_TYPES = (2, 10, 12, 20)  # q4_0, q2_k, q4_k, iq4_nl: copied in another order for AVX2


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """What a model needs, in bytes, part by part.

    `weights_bytes` are mapped from the file; `repacked_bytes` are copies for the processor; `state_bytes` is the
    recurrent state with those kept for taking drafts back; `checkpoints_bytes` are copies of it to go back to, at most;
    `bytes_per_token` of the context are the attention cache and the mask; `compute_bytes` what one micro-batch needs
    beside; `process_bytes` are Python and llama.cpp.
    """

    weights_bytes: int
    repacked_bytes: int
    state_bytes: int
    checkpoints_bytes: int
    compute_bytes: int
    process_bytes: int
    kv_bytes_per_token: int
    mask_bytes_per_token: int

    @property
    def fixed_bytes(self) -> int:
        """Everything that does not grow with the context."""
        own = self.compute_bytes + self.process_bytes
        return self.weights_bytes + self.repacked_bytes + self.state_bytes + self.checkpoints_bytes + own

    @property
    def bytes_per_token(self) -> int:
        """What one more token of context costs."""
        return self.kv_bytes_per_token + self.mask_bytes_per_token

    def total_bytes(self, n_ctx: int) -> int:
        """The need with a context of `n_ctx` tokens."""
        return self.fixed_bytes + n_ctx * self.bytes_per_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What may be chosen beside the length of the context."""

    cache_type: CacheType = "f16"
    batch_tokens: int = BATCH_TOKENS
    repack: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPlan:
    """How a model is opened, what it then needs, and what a person should know of it."""

    n_ctx: int
    setup: Setup
    need: MemoryNeed
    notes: tuple[str, ...] = ()

    @property
    def note(self) -> str | None:
        """All notes as one text."""
        return " ".join(self.notes) or None


def estimate(header: GgufHeader, setup: Setup | None = None, *, n_rs_seq: int = 0, n_sequences: int = 1) -> MemoryNeed:
    """Estimate from the metadata. `n_rs_seq` states are kept for each sequence beside its own."""
    setup = setup or Setup()
    n_attention, n_recurrent = count_layers(header)
    state = n_recurrent * _state_bytes_per_layer(header)
    kv_bits = _CACHE_BITS[setup.cache_type]
    return MemoryNeed(
        weights_bytes=header.tensor_bytes,
        repacked_bytes=sum(header.matrix_bytes.get(kind, 0) for kind in _REPACKED_TYPES) if setup.repack else 0,
        state_bytes=state * n_sequences * (1 + n_rs_seq),
        checkpoints_bytes=min(CHECKPOINT_BYTES, 64 * state) + MARKS * state,
        compute_bytes=setup.batch_tokens * _compute_bytes_per_token(header),
        process_bytes=_PROCESS_BYTES + _VOCABULARY_BYTES * header.lengths.get("tokenizer.ggml.tokens", 0),
        kv_bytes_per_token=int(n_attention * _kv_values_per_layer(header) * kv_bits / 8),
        mask_bytes_per_token=setup.batch_tokens * _MASK_BYTES,
    )


def plan_context(
    header: GgufHeader,
    wanted: int,
    available_bytes: int,
    explicit: bool = False,
    *,
    cache_types: tuple[CacheType, ...] = ("f16", "q8_0"),
    batch_tokens: int | None = None,
    n_rs_seq: int = 0,
) -> ContextPlan:
    """Choose the context: the smallest of what is wanted, what the model was trained with, and what fits.

    Where memory is short, in this order: a cache of 8 bits, no repacking, small batches; all of them before the
    context falls below 64 K, or below what was asked for by hand (`explicit`). `cache_types` are those that may be
    taken; `batch_tokens` is a size that stays. Raises ContextTooLarge where a context by hand does not fit,
    ModelUnavailable where not even 2,048 tokens fit.
    """
    trained = header.number("context_length") or wanted
    goal = min(wanted, trained)
    enough = goal if explicit else min(goal, ENOUGH_CONTEXT)
    plans = [
        (setup, need, _fitting(available_bytes, need))
        for setup in _setups(header, cache_types, batch_tokens)
        for need in [estimate(header, setup, n_rs_seq=n_rs_seq)]
    ]
    setup, need, fits = next(
        (plan for plan in plans if plan[2] >= enough), max(reversed(plans), key=lambda plan: plan[2])
    )
    if fits < min(SMALLEST_CONTEXT, goal):
        smallest = need.total_bytes(min(SMALLEST_CONTEXT, goal))
        raise ModelUnavailable(
            f"the model needs about {smallest / GIB:.1f} GiB of memory and {available_bytes / GIB:.1f} GiB are free",
            "Close other programs, or use a smaller model: see `frog-lsp model list`.",
        )
    n_ctx = min(goal, fits)
    why = "no more fits in memory now" if fits < goal else f"the model was trained with {trained:,}"
    if n_ctx < wanted and explicit:
        raise ContextTooLarge(
            f"a context of {wanted:,} tokens is too large: {why}", f"The largest is {n_ctx}.", largest=n_ctx
        )
    notes = _notes(setup, estimate(header, n_rs_seq=n_rs_seq), n_ctx, cache_types, batch_tokens)
    if n_ctx < wanted:
        notes = (f"The context was lowered from {wanted:,} to {n_ctx:,} tokens: {why}.", *notes)
    return ContextPlan(n_ctx=n_ctx, setup=setup, need=need, notes=notes)


def mtp_bytes(header: GgufHeader, need: MemoryNeed, n_ctx: int) -> int:
    """What drafting with the layer for the token after the next needs beside all else, its weights excepted: they are
    counted with the others. 0 where the file has no such layer.

    It is one attention layer, in a context of its own.
    """
    n_layers, (n_attention, _) = header.number("nextn_predict_layers"), count_layers(header)
    if n_layers < 1 or n_attention < 1:
        return 0
    return n_layers * n_ctx * need.kv_bytes_per_token // n_attention + need.compute_bytes


def leaves_room(need_bytes: int, available_bytes: int) -> bool:
    """Whether so much fits, with the share of memory that stays free."""
    return need_bytes <= available_bytes * (1 - _SPARE_SHARE)


def _setups(header: GgufHeader, cache_types: tuple[CacheType, ...], batch_tokens: int | None) -> list[Setup]:
    """From the fastest to the smallest."""
    types = [kind for kind in cache_types if kind == "f16" or _fits_blocks(header)] or ["f16"]
    batch = batch_tokens or BATCH_TOKENS
    setups = [Setup(cache_type=kind, repack=repack, batch_tokens=batch) for repack in (True, False) for kind in types]
    smallest = Setup(cache_type=types[-1], repack=False, batch_tokens=SMALL_BATCH_TOKENS)
    return setups if batch_tokens else [*setups, smallest]


def _notes(
    setup: Setup, roomy: MemoryNeed, n_ctx: int, cache_types: tuple[CacheType, ...], batch_tokens: int | None
) -> tuple[str, ...]:
    notes = []
    if setup.cache_type not in cache_types:
        notes.append("The attention cache is kept in 16 bits: this model's heads do not fit a cache of 8.")
    if setup.cache_type != "f16" and "f16" in cache_types:
        notes.append(f"Memory is short: what {n_ctx:,} tokens need is kept in 8 bits instead of 16, at half the size.")
    if not setup.repack and roomy.repacked_bytes:
        spared = roomy.repacked_bytes / GIB
        notes.append(f"Memory is short: {spared:.1f} GiB of copies that speed up reading are left out.")
    if setup.batch_tokens < BATCH_TOKENS and batch_tokens is None:
        notes.append(f"Memory is short: prompts are read {setup.batch_tokens} tokens at a time, more slowly.")
    return tuple(notes)


def _fitting(available_bytes: int, need: MemoryNeed) -> int:
    room = int(available_bytes * (1 - _SPARE_SHARE)) - need.fixed_bytes
    return max(0, room) // max(1, need.bytes_per_token) // CONTEXT_STEP * CONTEXT_STEP


def _fits_blocks(header: GgufHeader) -> bool:
    return all(size % _Q8_BLOCK == 0 for size in _head_sizes(header))


def count_layers(header: GgufHeader) -> tuple[int, int]:
    """The numbers of attention layers and of recurrent layers."""
    n_layers = header.number("block_count") - header.number("nextn_predict_layers")
    interval = header.number("full_attention_interval", _INTERVAL)
    if header.number("ssm.inner_size") == 0:
        return n_layers, 0
    n_attention = n_layers // interval if interval else 0
    return n_attention, n_layers - n_attention


def _head_sizes(header: GgufHeader) -> tuple[int, int]:
    """The sizes of a key and of a value."""
    default = header.number("embedding_length") // max(1, header.number("attention.head_count", 1))
    return header.number("attention.key_length", default), header.number("attention.value_length", default)


def _kv_values_per_layer(header: GgufHeader) -> int:
    n_heads = header.number("attention.head_count", 1)
    return header.number("attention.head_count_kv", n_heads) * sum(_head_sizes(header))


def _state_bytes_per_layer(header: GgufHeader) -> int:
    """The convolution's and the delta rule's state of one layer, in f32."""
    inner, size = header.number("ssm.inner_size"), header.number("ssm.state_size")
    channels = inner + 2 * header.number("ssm.group_count") * size
    return 4 * (inner * size + max(0, header.number("ssm.conv_kernel") - 1) * channels)


def _compute_bytes_per_token(header: GgufHeader) -> int:
    """Of a micro-batch: three rows each of the feed-forward and the hidden width are alive at once, in f32."""
    return 4 * 3 * (header.number("feed_forward_length") + header.number("embedding_length"))
