"""The header of a GGUF file (version 3) as bytes: metadata, and where each tensor lies; pure.

Layout: magic, version, counts, metadata, tensor infos, then the data of each tensor at an offset that is aligned.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

ALIGNMENT = 32
"""Of the data of each tensor; readers assume it where `general.alignment` is not given."""

_MAGIC, _VERSION = b"GGUF", 3
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class Kind(IntEnum):
    """Types of metadata, by their numbers in the file."""

    U32 = 4
    I32 = 5
    F32 = 6
    BOOL = 7
    TEXT = 8
    LIST = 9


class TensorKind(IntEnum):
    """Types of tensors that are written here, by their numbers in the file (`ggml_type`)."""

    F32 = 0
    F16 = 1
    BF16 = 30


_SCALARS = {
    Kind.U32: _U32,
    Kind.I32: struct.Struct("<i"),
    Kind.F32: struct.Struct("<f"),
    Kind.BOOL: struct.Struct("<?"),
}


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the metadata; `items` is the type of what a list holds."""

    kind: Kind
    value: Any
    items: Kind | None = None

    @classmethod
    def u32(cls, value: int) -> Value:
        """A whole number, not negative."""
        return cls(Kind.U32, value)

    @classmethod
    def i32(cls, value: int) -> Value:
        """A whole number."""
        return cls(Kind.I32, value)

    @classmethod
    def f32(cls, value: float) -> Value:
        """A number, rounded to single precision."""
        return cls(Kind.F32, value)

    @classmethod
    def boolean(cls, value: bool) -> Value:
        """True or false."""
        return cls(Kind.BOOL, value)

    @classmethod
    def text(cls, value: str) -> Value:
        """A text, written as UTF-8."""
        return cls(Kind.TEXT, value)

    @classmethod
    def list_of(cls, items: Kind, values: Sequence[Any]) -> Value:
        """Values of one type."""
        return cls(Kind.LIST, values, items)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """A tensor, its shape with rows first, and the bytes of its data."""

    name: str
    shape: tuple[int, ...]
    kind: TensorKind
    n_bytes: int


def header_bytes(metadata: Mapping[str, Value], tensors: Sequence[TensorInfo]) -> bytes:
    """All that stands before the data of the first tensor, up to where it begins."""
    parts = [_MAGIC, _U32.pack(_VERSION), _U64.pack(len(tensors)), _U64.pack(len(metadata))]
    for key, value in metadata.items():
        parts += [_text(key), _U32.pack(value.kind), _encode(value)]
    offset = 0
    for tensor in tensors:
        parts += [_text(tensor.name), _U32.pack(len(tensor.shape))]
        parts += [_U64.pack(n) for n in reversed(tensor.shape)]
        parts += [_U32.pack(tensor.kind), _U64.pack(offset)]
        offset += tensor.n_bytes + padding(tensor.n_bytes)
    head = b"".join(parts)
    return head + bytes(padding(len(head)))


def padding(n_bytes: int) -> int:
    """How many bytes follow `n_bytes` so that the next tensor is aligned."""
    return -n_bytes % ALIGNMENT


def _encode(value: Value) -> bytes:
    if value.kind != Kind.LIST:
        return _text(value.value) if value.kind == Kind.TEXT else _SCALARS[value.kind].pack(value.value)
    assert value.items is not None
    head = _U32.pack(value.items) + _U64.pack(len(value.value))
    if value.items == Kind.TEXT:
        return head + b"".join(map(_text, value.value))
    each = _SCALARS[value.items].format
    return head + struct.pack(f"<{len(value.value)}{each.removeprefix('<')}", *value.value)


def _text(value: str) -> bytes:
    data = value.encode("utf-8")
    return _U64.pack(len(data)) + data
