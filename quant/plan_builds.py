"""The builds that a plan is made of: the catalog's, the kept ones, and files of the user's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.errors import ModelFileError, UsageError
from agent.model.admission import admit
from agent.model.gguf_header import BLOCKS, GgufHeader, TensorInfo
from agent.model.installed import installed_models
from agent.model.locate import locate
from quant.catalog import CatalogEntry
from quant.plan import Build
from quant.quantize_types import KINDS

_HEADER_BYTES = 11_000_000  # of a file with the 248,320 tokens of Qwen3.5: measured
_EMBEDDING = "token_embd.weight"


def collect_builds(
    catalog: Sequence[CatalogEntry], shapes: Mapping[str, Any], names: Sequence[str] = ()
) -> list[Build]:
    """The builds of the catalog, what else is kept, and the chosen file; with `names`, these alone.

    A name is one of the catalog or of a kept model; anything else is a path. Raises UsageError, ModelFileError.
    """
    kept = installed_models()
    by_name = {entry.name.lower(): entry for entry in catalog}
    if names:
        return [_named(name, by_name, shapes) for name in names]
    builds = [_of_entry(entry, shapes) for entry in catalog]
    for name, model in kept.items():
        if name.lower() not in by_name:
            builds.append(_of_file(name, model.path))
    try:
        chosen = locate(None)
    except (ModelFileError, UsageError):
        return builds  # a run says what is wrong with it
    if chosen.kind == "file":
        builds.append(_of_file(chosen.name, Path(chosen.path)))
    return builds


def _named(name: str, by_name: Mapping[str, CatalogEntry], shapes: Mapping[str, Any]) -> Build:
    entry = by_name.get(name.lower()) or next(
        (entry for entry in by_name.values() if entry.quantization and entry.quantization.lower() == name.lower()), None
    )
    if entry is not None:
        return _of_entry(entry, shapes)
    found = locate(name)
    return _of_file(found.name, Path(found.path))


def _of_entry(entry: CatalogEntry, shapes: Mapping[str, Any]) -> Build:
    model = installed_models().get(entry.name)
    if model is not None and model.path.is_file():
        build = _of_file(entry.name, model.path)
        header, size, refusal = build.header, build.size_bytes, build.refusal
    else:
        model, refusal = None, None
        header, size = describe_entry(entry, shapes.get(entry.source_model)), entry.size_bytes
    return Build(
        name=entry.name,
        header=header,
        size_bytes=size,
        is_here=model is not None,
        source_model=entry.source_model,
        is_default=entry.default,
        serves=entry.serves,
        refusal=refusal,
    )


def _of_file(name: str, path: Path) -> Build:
    try:
        header = admit(path)
    except ModelFileError as error:
        size = path.stat().st_size if path.is_file() else 0
        return Build(name=name, header=None, size_bytes=size, is_here=True, refusal=error.message)
    return Build(name=name, header=header, size_bytes=header.size_bytes, is_here=True)


def describe_entry(entry: CatalogEntry, shape: Any) -> GgufHeader | None:
    """The header that a file of the catalog will have, as far as a plan reads it; None where too little is known.

    The bytes by type are those that llama.cpp's own quantizer makes of this shape; where the published file has
    another size, all are taken to be larger or smaller by the same share.
    """
    kinds = {KINDS.get(name.upper()): n_bytes for name, n_bytes in entry.matrix_bytes.items()}
    embedding_kind = KINDS.get(entry.embedding_type.upper())
    if not isinstance(shape, dict) or not kinds or None in kinds or embedding_kind is None or not entry.size_bytes:
        return None
    width, n_tokens = shape.get(f"{shape.get('general.architecture')}.embedding_length"), shape.get("n_tokens")
    if not isinstance(width, int) or not isinstance(n_tokens, int):
        return None
    n_values = n_tokens * width
    per_block, block_bytes = BLOCKS[embedding_kind]
    embedding_bytes = n_values // per_block * block_bytes
    tensor_bytes = max(1, entry.size_bytes - _HEADER_BYTES)
    scale = tensor_bytes / (embedding_bytes + sum(kinds.values()))
    embedding = TensorInfo(
        name=_EMBEDDING,
        shape=(width, n_tokens),
        kind=embedding_kind,
        offset=0,
        size_bytes=embedding_bytes,
    )
    return GgufHeader(
        path=entry.file,
        size_bytes=entry.size_bytes,
        tensor_bytes=tensor_bytes,
        n_tensors=1,
        metadata={key: value for key, value in shape.items() if key != "n_tokens"},
        lengths={"tokenizer.ggml.tokens": n_tokens},
        matrix_bytes={kind: int(n_bytes * scale) for kind, n_bytes in kinds.items() if kind is not None},
        tensors=(embedding,),
    )
