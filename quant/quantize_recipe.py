"""What each tensor of a model is to become: checks of the source, kept tensors, candidates for a mix; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from agent.errors import UsageError
from agent.model.admission import check_header
from agent.model.gguf_header import BLOCKS, GgufHeader, TensorInfo, tensor_bytes
from quant.quantize_auto import AUTO_KINDS, Candidate, TooSmallError, choose, weight_of
from quant.quantize_types import KIND_NAMES, KINDS, NEEDS_IMPORTANCE, PLAIN_KINDS, Keep

GATES = ("ssm_alpha.weight", "ssm_beta.weight")
"""The gates of the delta rule: 24 MiB of a 4B model that decide what a state forgets over a long text."""

WITHOUT_IMPORTANCE = "Q4_K"
"""For a tensor that has no entry in the importance matrix, where the type that was asked for needs one."""

METADATA_BYTES = 4096  # more than what is added to the metadata of the source
_ALIGNMENT = 32


def check_source(header: GgufHeader, *, requantize: bool) -> None:
    """Raises ModelFileError for what cannot serve or be quantized, UsageError for what is quantized already."""
    check_header(header)
    quantized = [tensor for tensor in header.tensors if tensor.kind not in PLAIN_KINDS]
    if quantized and not requantize:
        kinds = Counter(KIND_NAMES.get(tensor.kind, str(tensor.kind)) for tensor in quantized)
        raise UsageError(
            f"{header.path} is quantized already ({kinds.most_common(1)[0][0]}): quantizing it again adds loss to loss",
            "Use the BF16, F16 or F32 file, or say --allow-requantize.",
        )


def matrices(header: GgufHeader) -> list[TensorInfo]:
    """The tensors that can have a type of their own: vectors stay as they are."""
    return [tensor for tensor in header.tensors if len(tensor.shape) > 1]


def match_keeps(keeps: Sequence[Keep], header: GgufHeader) -> dict[str, str]:
    """The types of the tensors that are kept, by name; the first pattern that is found counts.

    Gates that no pattern names are kept too: in F32, or in Q8_0 where that is what the source has. Raises UsageError
    for a pattern that is found in no matrix, or that asks a tensor for a type that does not divide its rows.
    """
    found: dict[str, str] = {}
    own = matrices(header)
    for keep in keeps:
        matched = [tensor for tensor in own if re.search(keep.pattern, tensor.name)]
        if not matched:
            is_vector = any(re.search(keep.pattern, tensor.name) for tensor in header.tensors)
            raise UsageError(
                f"--keep {keep.pattern}={keep.kind}: {'only vectors have' if is_vector else 'no tensor has'} that in "
                "the name" + (", and those are never quantized" if is_vector else ""),
                f"Names are like {', '.join(_examples(own))}.",
            )
        for tensor in matched:
            if tensor.shape[0] % BLOCKS[KINDS[keep.kind]][0]:
                raise UsageError(
                    f"--keep {keep.pattern}={keep.kind}: a row of {tensor.name} has {tensor.shape[0]} values, and "
                    f"{keep.kind} needs a multiple of {BLOCKS[KINDS[keep.kind]][0]}",
                    "Choose Q8_0, which needs a multiple of 32, or F32.",
                )
            found.setdefault(tensor.name, keep.kind)
    for tensor in own:
        if tensor.name.endswith(GATES):
            found.setdefault(tensor.name, "Q8_0" if KIND_NAMES.get(tensor.kind) == "Q8_0" else "F32")
    return found


def need_importance(kinds: Mapping[str, str], file_type: str) -> list[str]:
    """The tensors whose types are only made with an importance matrix, as llama.cpp has it."""
    needed = {*NEEDS_IMPORTANCE, "Q2_K"} if file_type == "Q2_K_S" else set(NEEDS_IMPORTANCE)
    plain = ("token_embd.weight", "per_layer_token_embd.weight", "output.weight")
    return [name for name, kind in kinds.items() if kind in needed and name not in plain]


def file_bytes(header: GgufHeader, kinds: Mapping[str, str]) -> int:
    """The bytes of the file with these types, a few thousand more than it will have; others stay as they are."""
    metadata = header.size_bytes - header.tensor_bytes + METADATA_BYTES
    return metadata + sum(_padded(_bytes_as(tensor, kinds.get(tensor.name))) for tensor in header.tensors)


def sampled_kinds(header: GgufHeader, names: Iterable[str], kept: Mapping[str, str]) -> dict[str, list[str]]:
    """For each matrix that may be quantized: the types that are worth looking at, smaller than what it has."""
    tensors = {tensor.name: tensor for tensor in header.tensors}
    return {
        name: [
            kind
            for kind in AUTO_KINDS
            if tensors[name].shape[0] % BLOCKS[KINDS[kind]][0] == 0
            and tensor_bytes(KINDS[kind], tensors[name].n_values) < tensors[name].size_bytes
        ]
        for name in names
        if name not in kept
    }


def best_mix(
    header: GgufHeader, errors: Mapping[str, Mapping[str, float]], kept: Mapping[str, str], most_bytes: int
) -> dict[str, str]:
    """The types of all matrices in `errors` so that the file has `most_bytes` at most.

    Raises UsageError, which names the smallest size that is possible.
    """
    tensors = {tensor.name: tensor for tensor in header.tensors}
    free = most_bytes - file_bytes(header, kept) + sum(_padded(tensors[name].size_bytes) for name in errors)
    candidates = {
        name: [
            Candidate(KIND_NAMES[tensors[name].kind], _padded(tensors[name].size_bytes), 0.0),
            *(Candidate(kind, _padded(_bytes_as(tensors[name], kind)), error) for kind, error in found.items()),
        ]
        for name, found in errors.items()
    }
    n_layers = header.number("block_count") - header.number("nextn_predict_layers")
    weights = {name: weight_of(name, n_layers, "output.weight" in tensors) for name in errors}
    try:
        chosen = choose(candidates, weights, free)
    except TooSmallError as error:
        smallest = error.smallest_bytes - free + most_bytes
        raise UsageError(
            f"{most_bytes:,} bytes are too few: the smallest mix of {header.path} has {smallest:,} "
            f"({smallest / (1 << 30):.2f} GiB)",
            f"Ask for --type auto:{-(-smallest * 100 // (1 << 30)) / 100}GiB or more, or keep less.",
        ) from error
    return {name: item.kind for name, item in chosen.items()}


def main_kind(header: GgufHeader, kinds: Mapping[str, str]) -> str:
    """The type that most bytes of the source become."""
    tensors = {tensor.name: tensor for tensor in header.tensors}
    counts: Counter[str] = Counter()
    for name, kind in kinds.items():
        counts[kind] += tensors[name].n_values
    return counts.most_common(1)[0][0] if counts else "Q8_0"


def _examples(tensors: Sequence[TensorInfo]) -> list[str]:
    return list(dict.fromkeys(re.sub(r"blk\.\d+", "blk.0", tensor.name) for tensor in tensors))[:6]


def _bytes_as(tensor: TensorInfo, kind: str | None) -> int:
    return tensor.size_bytes if kind is None else tensor_bytes(KINDS[kind], tensor.n_values)


def _padded(n_bytes: int) -> int:
    return n_bytes + -n_bytes % _ALIGNMENT
