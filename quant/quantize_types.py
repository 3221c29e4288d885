"""The types of quantization: their names and numbers in llama.cpp, and how a person gives them; pure."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from agent.errors import UsageError

FILE_TYPES = {
    "F32": 0, "F16": 1, "BF16": 32, "Q8_0": 7, "Q6_K": 18, "Q5_K_M": 17, "Q5_K_S": 16, "Q5_1": 9, "Q5_0": 8,
    "Q4_K_M": 15, "Q4_K_S": 14, "IQ4_NL": 25, "IQ4_XS": 30, "Q4_1": 3, "Q4_0": 2, "Q3_K_L": 13, "Q3_K_M": 12,
    "Q3_K_S": 11, "IQ3_M": 27, "IQ3_S": 26, "IQ3_XS": 22, "IQ3_XXS": 23, "Q2_K": 10, "Q2_K_S": 21, "IQ2_M": 29,
    "IQ2_S": 28, "IQ2_XS": 20, "IQ2_XXS": 19,
}  # fmt: skip
"""Numbers of `llama_ftype`: a mix of tensor types under one name. The larger first.

Left out: one and two bits without a codebook, which no small model survives, and types for models made for them.
"""

ALIASES = {"Q5_K": "Q5_K_M", "Q4_K": "Q4_K_M", "Q3_K": "Q3_K_M", "FP32": "F32", "FP16": "F16"}
PLAIN_FILE_TYPES = ("F32", "F16", "BF16")
"""Not quantized at all; llama.cpp then takes no type for a tensor of its own."""

KINDS = {
    "F32": 0, "F16": 1, "BF16": 30, "Q8_0": 8, "Q6_K": 14, "Q5_K": 13, "Q5_1": 7, "Q5_0": 6, "Q4_K": 12, "IQ4_NL": 20,
    "IQ4_XS": 23, "Q4_1": 3, "Q4_0": 2, "Q3_K": 11, "IQ3_S": 21, "IQ3_XXS": 18, "Q2_K": 10, "IQ2_S": 22, "IQ2_XS": 17,
    "IQ2_XXS": 16,
}  # fmt: skip
"""Numbers of `ggml_type`, the types of single tensors."""

KIND_NAMES = {number: name for name, number in KINDS.items()}
PLAIN_KINDS = (KINDS["F32"], KINDS["F16"], KINDS["BF16"])
NEEDS_IMPORTANCE = ("IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS")
"""Types of tensors that llama.cpp refuses to make without an importance matrix."""

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 1000,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "M": 1 << 20,
    "G": 1 << 30,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Z]*)")


@dataclass(frozen=True, slots=True)
class Target:
    """What `--type` asks for: the name of a mix, or the most bytes that the file may have."""

    file_type: str | None
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """A type for the tensors in whose names a regular expression is found."""

    pattern: str
    kind: str


def parse_target(text: str) -> Target:
    """`Q4_K_M`, or `auto:3.0GiB`. Raises UsageError."""
    name = text.strip().upper()
    if name == "AUTO" or name.startswith("AUTO:"):
        return Target(None, _parse_size(name.removeprefix("AUTO").removeprefix(":")))
    name = ALIASES.get(name, name)
    if name not in FILE_TYPES:
        raise UsageError(f"there is no type {text}", f"{_suggest(name, FILE_TYPES)}The types: {', '.join(FILE_TYPES)}.")
    return Target(name)


def parse_keep(text: str) -> Keep:
    """`PATTERN=TYPE`. Raises UsageError."""
    pattern, equals, kind = text.rpartition("=")
    kind = kind.strip().upper()
    if not equals or not pattern:
        raise UsageError(f"--keep {text} is not PATTERN=TYPE", "For example: --keep ssm_alpha=Q8_0.")
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"--keep {text}: {pattern} is no regular expression: {error}",
            "For example: --keep 'blk\\.0\\.ffn_.*=Q6_K'.",
        ) from error
    if kind not in KINDS:
        raise UsageError(
            f"--keep {text}: a tensor cannot have the type {kind}", f"{_suggest(kind, KINDS)}Types: {', '.join(KINDS)}."
        )
    return Keep(pattern, kind)


def _parse_size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2] not in _UNITS:
        raise UsageError(
            f"auto:{text} names no size" if text else "auto needs the most bytes that the file may have",
            "For example: --type auto:3.0GiB, or auto:2800MB.",
        )
    return int(float(found[1]) * _UNITS[found[2]])


def _suggest(name: str, known: dict[str, int]) -> str:
    """The nearest name; a mix has its letter at the end where a type of one tensor has none."""
    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"Did you mean {near[0]}? " if near else ""
