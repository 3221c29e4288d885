"""What a machine needs for a value of a matrix and for a token of context, and the speed of a model from it; pure.

Reading a prompt and writing an answer are nearly all multiplications by the matrices of the model, each used once a
token, and attention over what is in the context. So a model takes the sum, over the types of its tensors, of their
values times the seconds of one value, and for attention the context times its queries times the seconds of one query
value over one token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.model.gguf_header import BLOCKS, GgufHeader
from agent.model.memory import CacheType, count_layers

F32 = 0  # ggml_type
_LEAST_SHARE = 0.03  # of the bytes: rarer types are taken to be as fast as the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds, on all threads together, where a token is one of many that are read (`read_s`) or is written."""

    read_s: float
    write_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What was measured. `values`: seconds of one value of a matrix, by its `ggml_type`, for one token.

    `attention`: seconds of one value of a query over one token of context, by the type of the cache. `busy_share`:
    how much of the processor other programs had meanwhile, from 0 to 1.
    """

    values: Mapping[int, Pace]
    attention: Mapping[CacheType, Pace]
    n_threads: int
    on_gpu: bool
    busy_share: float
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Tokens a second with an empty context, and with a full one."""

    read: float
    read_full: float
    write: float
    write_full: float


def expected_speed(header: GgufHeader, cache_type: CacheType, n_ctx: int, rates: Rates) -> Speed | None:
    """The speed of a model; None where none of its types was measured."""
    layers, head = matrix_values(header)
    known = {kind: pace for kind, pace in rates.values.items() if kind in layers or kind in head}
    if not known or cache_type not in rates.attention:
        return None
    read_s = _sum(layers, {kind: pace.read_s for kind, pace in known.items()})
    write_s = _sum(_added(layers, head), {kind: pace.write_s for kind, pace in known.items()})
    n_attention, _ = count_layers(header)
    n_heads = max(1, header.number("attention.head_count", 1))
    head_size = header.number("attention.key_length", header.number("embedding_length") // n_heads)
    queries = n_attention * n_heads * head_size
    attention = rates.attention[cache_type]
    return Speed(
        read=1 / read_s,
        read_full=1 / (read_s + n_ctx * queries * attention.read_s),
        write=1 / write_s,
        write_full=1 / (write_s + n_ctx * queries * attention.write_s),
    )


def matrix_values(header: GgufHeader) -> tuple[dict[int, float], dict[int, float]]:
    """Values by type: of the matrices that every token passes, and of the last one, which only a result passes.

    A layer that drafts is left out; the embedding of tokens is the last matrix where there is no other.
    """
    n_layers, n_drafting = header.number("block_count", 1), header.number("nextn_predict_layers")
    share = max(0, n_layers - n_drafting) / max(1, n_layers)
    sizes = {kind: _n_values(kind, n_bytes) for kind, n_bytes in header.matrix_bytes.items()}
    ends = {tensor.name: tensor for tensor in header.tensors if tensor.name in ("output.weight", "token_embd.weight")}
    last = ends.get("output.weight") or ends.get("token_embd.weight")
    head = {last.kind: float(last.n_values)} if last is not None else {}
    if last is not None and last.name == "output.weight" and last.kind in sizes:
        sizes[last.kind] -= last.n_values
    return {kind: share * n for kind, n in sizes.items()}, head


def main_kinds(header: GgufHeader) -> set[int]:
    """The types of tensors that decide the speed of a model."""
    layers, head = matrix_values(header)
    sizes = {kind: n * _bytes_per_value(kind) for kind, n in _added(layers, head).items()}
    total = sum(sizes.values()) or 1.0
    return {kind for kind, size in sizes.items() if size / total >= _LEAST_SHARE and kind != F32}


def _sum(sizes: Mapping[int, float], seconds: Mapping[int, float]) -> float:
    known = sum(n for kind, n in sizes.items() if kind in seconds)
    took = sum(n * seconds[kind] for kind, n in sizes.items() if kind in seconds)
    mean = took / known if known else max(seconds.values())
    return took + mean * (sum(sizes.values()) - known)


def _added(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    return {kind: one.get(kind, 0) + other.get(kind, 0) for kind in {*one, *other}}


def _n_values(kind: int, n_bytes: int) -> float:
    return n_bytes / _bytes_per_value(kind)


def _bytes_per_value(kind: int) -> float:
    per_block, block_bytes = BLOCKS.get(kind, (1, 1))
    return block_bytes / per_block
