"""Importance matrices: the mean squared input of each matrix of a model, column by column.

Two file formats, both of llama.cpp's `llama-imatrix`, whose other tools read them too. GGUF, which is also written
here: `general.type` "imatrix", `imatrix.datasets`, `imatrix.chunk_count` and `imatrix.chunk_size`, and for each matrix
NAME the tensors `NAME.in_sum2` (sums of squares) and `NAME.counts` (rows that were summed), both f32. And the older
".dat", only read: counts, names and values in 32 bits, one after another.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agent.errors import ModelFileError, UsageError
from agent.model.gguf_header import GgufHeader, TensorInfo, read_header
from quant import gguf_writer
from quant.gguf_writer import Kind, Value

Array = np.ndarray[Any, np.dtype[Any]]

_SUMS, _COUNTS = ".in_sum2", ".counts"
_MOST_BYTES = 1 << 30  # a 4B model has 5 MB
_HINT = "Make one with `frog-lsp model calibrate`, or get the one that was made for this model."


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceMatrix:
    """`sums[name]`: the sums of squares, a row (or one an expert) of as many f64 as the matrix has columns.

    `counts[name]`: over how many rows each was summed. `n_chunks` pieces of at most `chunk_tokens` tokens were read.
    """

    sums: Mapping[str, Array]
    counts: Mapping[str, Array]
    datasets: tuple[str, ...] = ()
    n_chunks: int = 0
    chunk_tokens: int = 0

    def means(self) -> dict[str, Array]:
        """The mean squares as f32, flat; 1 where nothing was summed (an expert that was never asked)."""
        found = {}
        for name, sums in self.sums.items():
            rows = sums.reshape(len(self.counts[name]), -1)
            counts = self.counts[name].reshape(-1, 1)
            found[name] = np.where(counts > 0, rows / np.maximum(counts, 1), 1.0).astype(np.float32).ravel()
        return found


def read_imatrix(path: str | os.PathLike[str]) -> ImportanceMatrix:
    """Read either format. Raises UsageError for anything else, truncated files and values that are no numbers."""
    name = os.fspath(path)
    try:
        if os.path.isdir(name):
            raise UsageError(f"{name} is a folder, not an importance matrix", _HINT)
        if os.path.getsize(name) > _MOST_BYTES:
            raise UsageError(f"{name} is too large to be an importance matrix", _HINT)
        data = Path(name).read_bytes()
        found = _read_gguf(read_header(name), data) if data[:4] == b"GGUF" else _read_legacy(data)
    except ModelFileError as error:
        raise UsageError(error.message, _HINT) from error
    except OSError as error:
        raise UsageError(f"the importance matrix {name} cannot be read: {error.strerror or error}", _HINT) from error
    except (struct.error, ValueError) as error:
        raise UsageError(f"{name} is no importance matrix: {error}", _HINT) from error
    if not all(np.isfinite(values).all() and (values >= 0).all() for values in found.sums.values()):
        raise UsageError(f"{name} holds values that are no sums of squares", "Make it again.")
    return found


def check_fit(matrix: ImportanceMatrix, header: GgufHeader, path: str) -> list[str]:
    """The matrices of a model, but for embeddings and vectors, that have no entry.

    Raises UsageError where the importance matrix was made for another model: names that the model does not have, or
    other numbers of columns.
    """
    tensors = {tensor.name: tensor for tensor in header.tensors if len(tensor.shape) > 1}
    strangers = sorted(name for name in matrix.sums if name not in tensors)
    if strangers:
        raise UsageError(
            f"the importance matrix {path} is of another model: {header.path} has no {strangers[0]}"
            + (f" (nor {len(strangers) - 1} others)" if len(strangers) > 1 else ""),
            _HINT,
        )
    for name, sums in matrix.sums.items():
        if sums.size != _n_columns(tensors[name]):
            raise UsageError(
                f"the importance matrix {path} is of another model: {name} has {_n_columns(tensors[name]):,} columns "
                f"and its entry {sums.size:,}",
                _HINT,
            )
    return sorted(name for name in tensors if name not in matrix.sums and name.startswith("blk.") and _is_used(name))


def write_imatrix(path: Path, matrix: ImportanceMatrix) -> None:
    """Write the GGUF format; the same matrix gives the same bytes. It appears when it is whole. Raises OSError."""
    tensors: list[tuple[gguf_writer.TensorInfo, bytes]] = []
    for name in sorted(matrix.sums):
        sums, counts = matrix.sums[name], matrix.counts[name]
        for end, values, width in ((_SUMS, sums, sums.size // counts.size), (_COUNTS, counts, 1)):
            data, shape = values.astype("<f4").tobytes(), (counts.size, width)
            tensors.append((_info(name + end, shape, len(data)), data))
    metadata = {
        "general.type": Value.text("imatrix"),
        "imatrix.datasets": Value.list_of(Kind.TEXT, matrix.datasets),
        "imatrix.chunk_count": Value.u32(matrix.n_chunks),
        "imatrix.chunk_size": Value.u32(matrix.chunk_tokens),
    }
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "wb") as file:
            file.write(gguf_writer.header_bytes(metadata, [info for info, _ in tensors]))
            for _, data in tensors:
                file.write(data + bytes(gguf_writer.padding(len(data))))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _read_gguf(header: GgufHeader, data: bytes) -> ImportanceMatrix:
    tensors = {tensor.name: tensor for tensor in header.tensors}
    names = [name.removesuffix(_SUMS) for name in tensors if name.endswith(_SUMS)]
    if not names:
        kind = header.text("general.architecture")
        raise ValueError(f"it is a model ({kind})" if kind else "no tensor has its name on .in_sum2")
    if any(tensor.kind != gguf_writer.TensorKind.F32 for tensor in tensors.values()):
        raise ValueError("its values are not f32")
    sums, counts = {}, {}
    for name in names:
        if name + _COUNTS not in tensors:
            raise ValueError(f"{name} has no counts")
        sums[name], counts[name] = (_values(tensors[name + end], data) for end in (_SUMS, _COUNTS))
        if counts[name].size == 0 or sums[name].size % counts[name].size:
            raise ValueError(f"the counts of {name} do not fit its values")
    datasets = header.metadata.get("imatrix.datasets")
    return ImportanceMatrix(
        sums=sums,
        counts=counts,
        datasets=tuple(map(str, datasets)) if isinstance(datasets, list) else (),
        n_chunks=_number(header, "imatrix.chunk_count"),
        chunk_tokens=_number(header, "imatrix.chunk_size"),
    )


def _read_legacy(data: bytes) -> ImportanceMatrix:
    """The values are means times the number of calls, which stands before them."""
    sums, counts = {}, {}
    (n_entries,) = struct.unpack_from("<i", data)
    at = 4
    if not 0 < n_entries < 1 << 20:
        raise ValueError("it has neither the beginning of a GGUF file nor a number of entries")
    for _ in range(n_entries):
        (n_bytes,) = struct.unpack_from("<i", data, at)
        if not 0 < n_bytes < 256:
            raise ValueError("the length of a name is not plausible")
        name = data[at + 4 : at + 4 + n_bytes].decode("utf-8")
        n_calls, n_values = struct.unpack_from("<ii", data, at + 4 + n_bytes)
        at += 12 + n_bytes
        if n_values < 1 or at + 4 * n_values > len(data):
            raise ValueError("it is truncated")
        sums[name] = np.frombuffer(data, "<f4", n_values, at).astype(np.float64)
        counts[name] = np.array([max(1, n_calls)], dtype=np.float64)
        at += 4 * n_values
    n_chunks, datasets = 0, list[str]()
    if at + 8 <= len(data):
        n_chunks, n_bytes = struct.unpack_from("<ii", data, at)
        datasets += [data[at + 8 : at + 8 + n_bytes].decode("utf-8", "replace")] if n_bytes > 0 else []
    return ImportanceMatrix(sums=sums, counts=counts, datasets=tuple(datasets), n_chunks=n_chunks)


def _values(tensor: TensorInfo, data: bytes) -> Array:
    return np.frombuffer(data, "<f4", tensor.n_values, tensor.offset).astype(np.float64)


def _number(header: GgufHeader, key: str) -> int:
    value = header.metadata.get(key)
    return value if isinstance(value, int) else 0


def _n_columns(tensor: TensorInfo) -> int:
    """Columns, once for each expert of a matrix of three dimensions."""
    return tensor.shape[0] * (tensor.shape[2] if len(tensor.shape) > 2 else 1)


def _is_used(name: str) -> bool:
    """Whether it is multiplied with; a convolution is not."""
    return name.endswith(".weight") and "conv1d" not in name and "_norm" not in name


def _info(name: str, shape: tuple[int, int], n_bytes: int) -> gguf_writer.TensorInfo:
    return gguf_writer.TensorInfo(name=name, shape=shape, kind=gguf_writer.TensorKind.F32, n_bytes=n_bytes)
