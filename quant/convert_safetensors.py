"""Safetensors files and the index that binds them. Their headers are foreign data, checked before anything is used.

Layout of a file: length of the header (u64, little-endian), header (JSON: name to dtype, shape and the first and last
byte in the data), data. The data of the tensors lie one behind the other and fill the file.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from agent.errors import ModelFileError, UsageError

INDEX = "model.safetensors.index.json"
GET_AGAIN = "Get the checkpoint again, all of its files."

VALUE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2,
    "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
}  # fmt: skip
"""Bytes of one value by the format's names of its types."""

_LENGTH = struct.Struct("<Q")
_MOST_HEADER_BYTES = 100_000_000  # the limit of the format's own reader
_MOST_DIMENSIONS = 8
_MOST_JSON_BYTES = 256 << 20
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<all>\d{5})\.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """Where the values of a tensor lie: `n_bytes` from `offset` (from the beginning of the file) in `path`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    n_bytes: int


def read_checkpoint(folder: Path) -> list[StoredTensor]:
    """All tensors of a checkpoint, file by file and in the order in which they lie there.

    Raises UsageError where `folder` holds no safetensors, ModelFileError for files that are missing or damaged.
    """
    weight_map = _read_index(folder)
    paths = _files_of(folder, sorted(set(weight_map.values()))) if weight_map else _files_without_index(folder)
    tensors: dict[str, StoredTensor] = {}
    for path in paths:
        for tensor in read_shard(path):
            if tensor.name in tensors:
                other = tensors[tensor.name].path.name
                raise ModelFileError(f"{tensor.name} is in {other} and in {path.name}", GET_AGAIN)
            tensors[tensor.name] = tensor
    if weight_map:
        _compare(weight_map, tensors)
    return list(tensors.values())


def read_shard(path: Path) -> list[StoredTensor]:
    """The tensors of one file, in the order of their bytes. Raises ModelFileError."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        begin = file.read(_LENGTH.size)
        if begin.startswith(b"version "):
            raise ModelFileError(
                f"{path.name} is a Git LFS pointer, not the file itself", "Get it with `git lfs pull`."
            )
        if len(begin) < _LENGTH.size:
            raise ModelFileError(f"{path.name} is truncated: it has {size} bytes", GET_AGAIN)
        (n_header,) = _LENGTH.unpack(begin)
        if n_header > _MOST_HEADER_BYTES:
            raise ModelFileError(
                f"{path.name} is no safetensors file: its header would have {n_header:,} bytes", GET_AGAIN
            )
        text = file.read(n_header)
    if len(text) < n_header:
        raise ModelFileError(f"{path.name} is truncated in its header: it has {size:,} bytes", GET_AGAIN)
    header = parse_object(text, path.name)
    header.pop("__metadata__", None)
    first = _LENGTH.size + n_header
    tensors = [_parse_entry(name, entry, path, first) for name, entry in header.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.n_bytes))
    _check_places(tensors, path, first, size)
    return tensors


def parse_object(text: bytes, name: str) -> dict[str, Any]:
    """A JSON object of a file `name`, in which no key comes twice. Raises ModelFileError."""
    try:
        value = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{name} cannot be read: {error}", GET_AGAIN) from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{name} cannot be read: it is not a JSON object", GET_AGAIN)
    return value


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ModelFileError, also where it is not there."""
    try:
        if path.stat().st_size > _MOST_JSON_BYTES:
            raise ModelFileError(f"{path.name} has {path.stat().st_size:,} bytes, which is not plausible", GET_AGAIN)
        return parse_object(path.read_bytes(), path.name)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}", GET_AGAIN) from error


def _without_doubles(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return value


def _parse_entry(name: str, entry: Any, path: Path, first: int) -> StoredTensor:
    def refuse(what: str) -> ModelFileError:
        return ModelFileError(f"the header of {path.name} is damaged: {name[:200]} {what}", GET_AGAIN)

    if not isinstance(entry, dict):
        raise refuse("is not described")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    place: Any = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in VALUE_BYTES:
        raise refuse(f"has an unknown type {str(dtype)[:40]!r}")
    if not _are_counts(shape) or len(shape) > _MOST_DIMENSIONS:
        raise refuse("has no plausible shape")
    if not _are_counts(place) or len(place) != 2 or place[0] > place[1]:
        raise refuse("has no plausible place")
    begin, end = place
    n_bytes = prod(shape) * VALUE_BYTES[dtype]
    if end - begin != n_bytes:
        raise refuse(f"of shape {shape} in {dtype} has {end - begin:,} bytes, not {n_bytes:,}")
    return StoredTensor(name=name, dtype=dtype, shape=tuple(shape), path=path, offset=first + begin, n_bytes=n_bytes)


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _check_places(tensors: Sequence[StoredTensor], path: Path, first: int, size: int) -> None:
    """The data fill the file, without holes and without a byte that belongs to two."""
    at = first
    for tensor in tensors:
        if tensor.offset != at:
            what = "overlaps the one before it" if tensor.offset < at else "does not follow the one before it"
            raise ModelFileError(f"the header of {path.name} is damaged: {tensor.name[:200]} {what}", GET_AGAIN)
        at += tensor.n_bytes
    if size < at:
        raise ModelFileError(f"{path.name} is truncated: it has {size:,} of {at:,} bytes", GET_AGAIN)
    if size > at:
        raise ModelFileError(f"{path.name} has {size - at:,} bytes more than its header describes", GET_AGAIN)


def _read_index(folder: Path) -> dict[str, str]:
    """Names of tensors to names of files; empty where there is no index."""
    if not folder.is_dir():
        is_file = folder.is_file()
        raise UsageError(
            f"{folder} is {'a file' if is_file else 'not there'}",
            "Give the folder of a checkpoint: config.json, tokenizer.json and its safetensors.",
        )
    path = folder / INDEX
    if not path.is_file():
        return {}
    weight_map = read_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(f"{INDEX} has no `weight_map`", GET_AGAIN)
    for file in weight_map.values():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise ModelFileError(
                f"{INDEX} names {str(file)[:200]!r}, which is no safetensors file beside it", GET_AGAIN
            )
    return weight_map


def _files_of(folder: Path, names: Sequence[str]) -> list[Path]:
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelFileError(
            f"{len(missing)} of the {len(names)} files of weights {'is' if len(missing) == 1 else 'are'} missing:"
            f" {', '.join(missing[:5])}{' …' if len(missing) > 5 else ''}",
            "Get what is missing from where the checkpoint came from.",
        )
    return [folder / name for name in names]


def _files_without_index(folder: Path) -> list[Path]:
    names = sorted(path.name for path in folder.glob("model*.safetensors") if path.is_file())
    if not names:
        raise UsageError(f"{folder} holds no model.safetensors{_instead(folder)}", "Give the folder of a checkpoint.")
    if (numbered := _NUMBERED.fullmatch(names[0])) is not None:
        n_all = int(numbered["all"])
        stem = numbered["stem"]
        names = [f"{stem}-{number:05}-of-{n_all:05}.safetensors" for number in range(1, n_all + 1)]
    return _files_of(folder, names)


def _instead(folder: Path) -> str:
    if any(folder.glob("adapter_*.safetensors")) or (folder / "adapter_config.json").exists():
        return ": it is a LoRA, which is merged into its model before it is converted"
    if any(folder.glob("*.gguf")):
        return ": it holds a GGUF, which needs no conversion"
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        return ": its weights are pickles of PyTorch, which can run code and are not read"
    return ""


def _compare(weight_map: Mapping[str, str], tensors: Mapping[str, StoredTensor]) -> None:
    missing = sorted(weight_map.keys() - tensors.keys())
    if missing:
        raise ModelFileError(
            f"{INDEX} names {len(missing)} tensors that are in no file, such as {missing[0]}"
            f" of {weight_map[missing[0]]}",
            GET_AGAIN,
        )
    extra = sorted(tensors.keys() - weight_map.keys())
    if extra:
        raise ModelFileError(f"{len(extra)} tensors are not in {INDEX}, such as {extra[0]}", GET_AGAIN)
