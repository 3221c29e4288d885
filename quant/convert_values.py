"""The values of one tensor on their way from a checkpoint to a GGUF, in pieces of at most 4 MiB.

What is only moved is moved as bytes. Sums and exponentials are computed in the type that the checkpoint has (BF16:
in F32), as llama.cpp's converter does, so that the same bytes come out.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, BinaryIO

import numpy as np

from agent.errors import ModelFileError
from quant.convert_layout import Change, Order, Slot
from quant.convert_safetensors import GET_AGAIN, VALUE_BYTES, StoredTensor
from quant.gguf_writer import TensorKind

PIECE_BYTES = 4 << 20
_CHECKED_VALUES = 1 << 17  # at once, so that they stay in the processor's cache
_NUMPY: dict[str, Any] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_INFINITE = {"F32": 0x7F80_0000, "F16": 0x7C00, "BF16": 0x7F80}  # the bits of an infinity; above it are no numbers
_SAME = {("F32", TensorKind.F32), ("F16", TensorKind.F16), ("BF16", TensorKind.BF16)}
DTYPES = tuple(_NUMPY)
_N_POWERS = 128
_STEP = np.float32(355 / (1 << 16))  # ln 2 / 128 in so few bits that its products are exact
_MOST_EXPONENT = 80.0  # beyond it lies what no checkpoint has


class Reader:
    """Reads one tensor. `is_finite` turns False where it holds, or becomes, an infinity or no number."""

    def __init__(self, file: BinaryIO, tensor: StoredTensor, slot: Slot, groups: int, steps: int) -> None:
        self._file = file
        self._tensor = tensor
        self._slot = slot
        self._groups = groups
        self._steps = steps
        self._buffer = bytearray(min(PIECE_BYTES, max(1, tensor.n_bytes)))
        self.is_finite = True

    def pieces(self, kind: TensorKind) -> Iterator[Any]:
        """The bytes of the tensor in the GGUF as `kind`, piece by piece; each is valid until the next is asked for."""
        moved = (self._tensor.dtype, kind) in _SAME and self._slot.change is Change.NONE
        for raw in self._columns() if self._slot.order is Order.COLUMNS else self._rows():
            if moved and self._has_numbers_only(raw):
                yield raw
                continue
            made = _encode(_changed(_decode(raw, self._tensor.dtype), self._slot.change), kind)
            self.is_finite &= _are_finite(made, kind)
            yield memoryview(made.view(np.uint8))

    def _rows(self) -> Iterator[Any]:
        """Bytes of rows, in the order in which they are written."""
        shape = self._tensor.shape
        row_bytes = prod(shape[1:]) * VALUE_BYTES[self._tensor.dtype]
        for begin, end in self._row_ranges():
            yield from self._read(begin * row_bytes, end * row_bytes)

    def _row_ranges(self) -> Iterator[tuple[int, int]]:
        n_rows, per_key = self._slot.shape[0], self._steps // self._groups
        if self._slot.order is Order.KEPT or per_key == 1:
            yield 0, n_rows
            return
        width = self._slot.head_width
        first = n_rows - self._steps * width  # those of queries and keys
        if first:
            yield 0, first
        for i in range(per_key):
            for key in range(self._groups):
                at = first + (key * per_key + i) * width
                yield at, at + width

    def _columns(self) -> Iterator[Any]:
        """Bytes of some rows at a time, within which the value heads have changed their places."""
        dtype = self._tensor.dtype
        n_rows, n_columns = self._slot.shape
        row_bytes = n_columns * VALUE_BYTES[dtype]
        n_at_once = max(1, PIECE_BYTES // row_bytes)
        heads = (-1, self._groups, self._steps // self._groups, self._slot.head_width)
        for begin in range(0, n_rows, n_at_once):
            end = min(begin + n_at_once, n_rows)
            rows = b"".join(bytes(piece) for piece in self._read(begin * row_bytes, end * row_bytes))
            values: Any = np.frombuffer(rows, _NUMPY[dtype]).reshape(heads)
            tiled: Any = np.ascontiguousarray(values.transpose(0, 2, 1, 3))
            yield memoryview(tiled.reshape(-1).view(np.uint8))

    def _read(self, begin: int, end: int) -> Iterator[memoryview]:
        """Raises ModelFileError where the file has become shorter meanwhile."""
        self._file.seek(self._tensor.offset + begin)
        for at in range(begin, end, len(self._buffer)):
            view = memoryview(self._buffer)[: end - at]
            if self._file.readinto(view) != len(view):  # type: ignore[attr-defined]
                raise ModelFileError(f"{self._tensor.path.name} became shorter while it was read", GET_AGAIN)
            yield view

    def _has_numbers_only(self, raw: Any) -> bool:
        bits: Any = np.frombuffer(raw, np.dtype(f"<u{VALUE_BYTES[self._tensor.dtype]}"))
        return _are_finite_bits(bits, _INFINITE[self._tensor.dtype])


def _are_finite(made: Any, kind: TensorKind) -> bool:
    return _are_finite_bits(made.view(f"<u{made.itemsize}"), _INFINITE[kind.name])


def _are_finite_bits(bits: Any, infinite: int) -> bool:
    """A number has not all bits of its exponent set; looked at in parts that stay in the processor's cache."""
    parts = (bits[at : at + _CHECKED_VALUES] for at in range(0, len(bits), _CHECKED_VALUES))
    return all((part & infinite).max() != infinite for part in parts)


def _decode(raw: Any, dtype: str) -> Any:
    values: Any = np.frombuffer(raw, _NUMPY[dtype])
    return (values.astype("<u4") << 16).view("<f4") if dtype == "BF16" else values


def _changed(values: Any, change: Change) -> Any:
    if change is Change.ADD_ONE:
        return values + values.dtype.type(1)
    if change is Change.NEGATIVE_EXP:
        return -exponential(values.astype(np.float32)).astype(values.dtype)
    return values


def exponential(values: Any) -> Any:
    """exp of values in F32, to the last bit as the vector library in torch's own builds for x86 gives it.

    It is not always the nearest number (one in a hundred is the one beside it), and the difference would be one of
    the GGUF. The steps were found by looking at some millions of its answers: 128 powers of two in two parts, two
    terms of the series, every step rounded to F32.
    """
    far = ~(np.abs(values) < _MOST_EXPONENT)
    near = np.where(far, np.float32(0), values)
    n = np.rint(near * np.float32(_N_POWERS / np.log(2)))
    rest = (near - n * _STEP) - n * np.float32(np.log(2) / _N_POWERS - float(_STEP))
    series = rest * rest * np.float32(0.5) + rest
    whole = np.floor(n / _N_POWERS)
    powers = np.exp2(np.arange(_N_POWERS) / _N_POWERS)
    high = powers.astype(np.float32)
    low = (powers - high).astype(np.float32)
    i = (n - _N_POWERS * whole).astype(np.intp)
    made = np.ldexp(high[i] + (high[i] * series + low[i]), whole.astype(np.int32))
    with np.errstate(over="ignore"):
        return np.where(far, np.exp(values), made)


def _encode(values: Any, kind: TensorKind) -> Any:
    """The values as one row of `kind`; BF16 as the numbers of its bits."""
    values = values.reshape(-1)
    if kind is TensorKind.BF16:
        bits = values.astype("<f4").view("<u4")
        no_number = (bits & 0x7FFF_FFFF) > 0x7F80_0000
        rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16  # to the nearest, ties to even
        return np.where(no_number, (bits >> 16) | 0x40, rounded).astype("<u2")  # no number stays none
    with np.errstate(over="ignore"):
        return values.astype(_NUMPY[kind.name])
