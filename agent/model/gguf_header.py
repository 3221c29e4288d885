"""What a GGUF file says of itself, read without llama.cpp: so that a bad file is refused before a process starts.

Layout: magic, version, counts, metadata, tensor infos, then the tensors' data at the next aligned offset.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from agent.errors import ModelFileError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_KEPT_ITEMS = 1024  # longer lists (the vocabulary) are passed over
_MOST_ENTRIES = 1 << 20
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32, _U64 = _SCALARS[4], _SCALARS[10]

BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip
"""(values in a block, bytes of a block) of each `ggml_type`, from ggml's type traits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """One tensor. `shape` has the length of a row first, as GGUF has it; `offset` counts from the file's beginning."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int
    size_bytes: int

    @property
    def n_values(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


def tensor_bytes(kind: int, n_values: int) -> int:
    """The bytes of so many values, whole rows of them, in a `ggml_type`; 0 for a type that is not known."""
    per_block, block_bytes = BLOCKS.get(kind, (1, 0))
    return n_values // per_block * block_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """The header of one file. `metadata` leaves out lists of more than 1,024 items, but for their lengths.

    `matrix_bytes`: bytes of all matrices but the embedding of tokens, by their `ggml_type`.
    """

    path: str
    size_bytes: int
    tensor_bytes: int
    n_tensors: int
    metadata: Mapping[str, Any]
    lengths: Mapping[str, int]
    matrix_bytes: Mapping[int, int] = field(default_factory=dict)
    tensors: tuple[TensorInfo, ...] = ()

    @property
    def architecture(self) -> str:
        """`general.architecture`, such as "qwen35"."""
        return str(self.metadata.get("general.architecture", ""))

    def number(self, key: str, default: int = 0) -> int:
        """A whole number of the architecture, such as `block_count`; the largest where it is a list."""
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        if isinstance(value, list):
            value = max(value, default=default)
        return int(value) if isinstance(value, int | float) else default

    def text(self, key: str) -> str | None:
        """A text of the metadata by its whole key."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None


class _TruncatedError(Exception):
    """The header goes on beyond the end of the file."""


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0
        self.lengths: dict[str, int] = {}

    def number(self, kind: struct.Struct) -> Any:
        if self.at + kind.size > len(self.data):
            raise _TruncatedError
        (value,) = kind.unpack_from(self.data, self.at)
        self.at += kind.size
        return value

    def skip(self, n_bytes: int) -> None:
        if n_bytes > len(self.data) - self.at:
            raise _TruncatedError
        self.at += n_bytes

    def string(self) -> str:
        begin = self.at + 8
        self.skip(self.number(_U64))
        return self.data[begin : self.at].decode("utf-8", "replace")

    def value(self, key: str, kind: int) -> Any:
        """The value; None for what is not kept. Raises ValueError for an unknown type."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            raise ValueError(f"type {kind} of {key}")
        return self._array(key)

    def _array(self, key: str) -> list[Any] | None:
        kind, n = self.number(_U32), self.number(_U64)
        self.lengths[key] = n
        if n <= _KEPT_ITEMS:
            return [self.value(key, kind) for _ in range(n)]
        if kind in _SCALARS:
            self.skip(n * _SCALARS[kind].size)
        elif kind == _STRING:
            self._skip_strings(n)
        else:
            raise ValueError(f"a list of lists under {key}")
        return None

    def _skip_strings(self, n: int) -> None:
        data, at, end, unpack = self.data, self.at, len(self.data), _U64.unpack_from
        for _ in range(n):
            if at + 8 > end:
                raise _TruncatedError
            at += 8 + unpack(data, at)[0]
        if at > end:
            raise _TruncatedError
        self.at = at


def read_header(path: str | os.PathLike[str]) -> GgufHeader:
    """Read the header and check that all tensors lie within the file.

    Raises ModelFileError: no such file, no GGUF, a version that is not known, truncated.
    """
    name = os.fspath(path)
    with _explained(name), _opened(name) as (descriptor, size), _mapped(descriptor) as data:
        return _parse(name, size, data)


def read_partial_header(path: str | os.PathLike[str], size_bytes: int) -> GgufHeader | None:
    """Read the header of a file of which the rest is still to come; `size_bytes` is its size then.

    None where not even the header is there. Raises ModelFileError: no GGUF, or one that will be truncated.
    """
    name = os.fspath(path)
    with _explained(name), _opened(name) as (descriptor, _), _mapped(descriptor) as data:
        try:
            return _parse(name, size_bytes, data)
        except _TruncatedError:
            return None


@contextlib.contextmanager
def _opened(name: str) -> Iterator[tuple[int, int]]:
    """The descriptor and the size of what begins as a GGUF file does."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would wait for a writer
    except OSError as error:
        raise ModelFileError(
            f"the model file {name} cannot be opened: {error.strerror}",
            "Give the path of a GGUF file, or the name of a model that `frog-lsp model list` shows.",
        ) from error
    try:
        if os.path.isdir(name):
            raise ModelFileError(f"{name} is a folder, not a model file", "Give the path of a GGUF file in it.")
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ModelFileError(f"{name} is no ordinary file", "Give the path of a GGUF file.")
        _check_beginning(name, os.pread(descriptor, 256, 0))
        yield descriptor, os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _mapped(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except _TruncatedError:
        raise _truncated(name, os.path.getsize(name)) from None
    except (ValueError, OSError) as error:
        raise ModelFileError(f"{name} is not a GGUF file that can be read: {error}", _GET_AGAIN) from error


_GET_AGAIN = "Get the file again, for example with `frog-lsp model pull`."


def _truncated(name: str, size: int, needed: int | None = None) -> ModelFileError:
    of = "" if needed is None else f" of {needed:,}"
    return ModelFileError(f"{name} is truncated: it has {size:,}{of} bytes", _GET_AGAIN)


def _check_beginning(name: str, begin: bytes) -> None:
    if begin.startswith(_MAGIC):
        if len(begin) < 8:
            raise _TruncatedError
        version = _U32.unpack_from(begin, 4)[0]
        if version not in _VERSIONS:
            what = "is big-endian" if version >> 16 else f"has GGUF version {version}"
            raise ModelFileError(f"{name} {what}, which cannot be read here", "Use a GGUF file of version 3.")
        return
    kinds = {
        b"version https://git-lfs": "a Git LFS pointer, not the model itself",
        b"PK\x03\x04": "a zip archive (a PyTorch checkpoint?), not a GGUF file",
        b"<!DOCTYPE": "a web page, not a GGUF file",
        b"<html": "a web page, not a GGUF file",
        b"GGML": "an old GGML file, not a GGUF file",
        b"ggjt": "an old GGML file, not a GGUF file",
    }
    is_safetensors = begin[8:10] == b'{"'
    other = "empty" if not begin else "a safetensors file, not a GGUF file" if is_safetensors else "not a GGUF file"
    what = next((text for head, text in kinds.items() if begin.startswith(head)), other)
    hint = "Convert it with `frog-lsp model convert`." if "safetensors" in what else _GET_AGAIN
    raise ModelFileError(f"{name} is {what}", hint)


def _parse(name: str, size: int, data: mmap.mmap) -> GgufHeader:
    reader = _Reader(data)
    reader.at = 8
    n_tensors, n_entries = reader.number(_U64), reader.number(_U64)
    if max(n_tensors, n_entries) > _MOST_ENTRIES:
        raise ValueError("its counts are not plausible")
    metadata: dict[str, Any] = {}
    for _ in range(n_entries):
        key = reader.string()
        value = reader.value(key, reader.number(_U32))
        if value is not None:
            metadata[key] = value
    tensors = [_read_tensor(reader) for _ in range(n_tensors)]
    end = max((tensor.offset + tensor.size_bytes for tensor in tensors), default=0)
    matrix_bytes: dict[int, int] = {}
    for tensor in tensors:
        if len(tensor.shape) > 1 and not tensor.name.startswith("token_embd."):
            matrix_bytes[tensor.kind] = matrix_bytes.get(tensor.kind, 0) + tensor.size_bytes
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError("its alignment is not plausible")
    begin = -(-reader.at // alignment) * alignment
    if n_tensors and begin + end > size:
        raise _truncated(name, size, begin + end)
    return GgufHeader(
        path=name,
        size_bytes=size,
        tensor_bytes=size - begin if n_tensors else 0,
        n_tensors=n_tensors,
        metadata=metadata,
        lengths=reader.lengths,
        matrix_bytes=matrix_bytes,
        tensors=tuple(replace(tensor, offset=begin + tensor.offset) for tensor in tensors),
    )


def _read_tensor(reader: _Reader) -> TensorInfo:
    """The next tensor, its offset within the data."""
    name = reader.string()
    n_dimensions = reader.number(_U32)
    if n_dimensions > 8:
        raise ValueError("a tensor has too many dimensions")
    shape = tuple(reader.number(_U64) for _ in range(n_dimensions))
    kind, offset = reader.number(_U32), reader.number(_U64)
    return TensorInfo(name=name, shape=shape, kind=kind, offset=offset, size_bytes=tensor_bytes(kind, prod(shape)))
