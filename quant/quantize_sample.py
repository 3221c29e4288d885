"""What a type would cost a matrix: some of its rows quantized and read back by ggml itself.

The error is that of the matrix's output where its inputs are independent: the sum over columns of the importance of
the column times the squared differences of its weights, by the same sum over the weights themselves.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agent.model.gguf_header import BLOCKS, TensorInfo, read_header
from quant.quantize_types import KINDS

N_ROWS = 24
"""Rows of each matrix, evenly spread: the error of a type varies by some percent from row to row."""

Array = np.ndarray[Any, np.dtype[Any]]
_F32, _F16, _BF16 = KINDS["F32"], KINDS["F16"], KINDS["BF16"]


class _Traits(ctypes.Structure):
    """`ggml_type_traits` of ggml.h, as far as it is read."""

    _fields_ = [
        ("type_name", ctypes.c_char_p),
        ("blck_size", ctypes.c_int64),
        ("blck_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    ]


def sample(
    source: str, kinds: Mapping[str, Sequence[str]], means: Mapping[str, Array]
) -> Iterator[tuple[str, dict[str, float]]]:
    """For each matrix of `kinds`: its name, and the relative error of each of the types that are named for it."""
    header = read_header(source)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    ggml = _Ggml()
    with open(source, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for name, wanted in kinds.items():
            tensor = tensors[name]
            rows = _rows(ggml, tensor, data)
            importance = means.get(name)
            if importance is not None:
                importance = np.ascontiguousarray(importance[: tensor.shape[0]])
            yield name, {kind: ggml.error(KINDS[kind], rows, importance) for kind in wanted}


class _Ggml:
    def __init__(self) -> None:
        from llama_cpp._ggml import libggml

        self._lib: Any = libggml
        self._lib.ggml_get_type_traits.restype = ctypes.POINTER(_Traits)
        self._lib.ggml_quantize_chunk.restype = ctypes.c_size_t
        self._lib.ggml_quantize_chunk.argtypes = [
            ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p,
        ]  # fmt: skip

    def error(self, kind: int, rows: Array, importance: Array | None) -> float:
        """Noise by signal."""
        n_rows, width = rows.shape
        packed = ctypes.create_string_buffer(rows.size // BLOCKS[kind][0] * BLOCKS[kind][1])
        given = None if importance is None else importance.ctypes.data
        self._lib.ggml_quantize_chunk(kind, rows.ctypes.data, packed, 0, n_rows, width, given)
        made = self.to_float(kind, packed, rows.size).reshape(rows.shape)
        columns = np.ones(width) if importance is None else importance.astype(np.float64)
        signal = float((np.square(rows, dtype=np.float64) * columns).sum())
        noise = float((np.square(made - rows, dtype=np.float64) * columns).sum())
        return noise / signal if signal > 0 else 0.0

    def to_float(self, kind: int, packed: Any, n_values: int) -> Array:
        values = np.empty(n_values, dtype=np.float32)
        self._lib.ggml_get_type_traits(kind).contents.to_float(packed, values.ctypes.data, n_values)
        return values


def _rows(ggml: _Ggml, tensor: TensorInfo, data: mmap.mmap) -> Array:
    width = tensor.shape[0]
    n_rows = tensor.n_values // width
    row_bytes = tensor.size_bytes // n_rows
    picked = sorted({i * n_rows // N_ROWS for i in range(N_ROWS)})
    packed = b"".join(data[tensor.offset + i * row_bytes : tensor.offset + (i + 1) * row_bytes] for i in picked)
    if tensor.kind == _F32:
        values = np.frombuffer(packed, "<f4").astype(np.float32)
    elif tensor.kind == _F16:
        values = np.frombuffer(packed, "<f2").astype(np.float32)
    elif tensor.kind == _BF16:
        values = (np.frombuffer(packed, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        values = ggml.to_float(tensor.kind, ctypes.create_string_buffer(packed, len(packed)), len(picked) * width)
    return np.ascontiguousarray(values.reshape(len(picked), width))
