"""`frog-lsp model synth`: models of random weights, to measure and to test what does not depend on their answers.

The same seed gives the same bytes. Values are made and written in pieces of at most 16 MiB, so that the 4B model
needs no more memory than the smallest.
"""

from __future__ import annotations

import ctypes
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agent.config import cache_dir, make_private_dir
from agent.errors import ModelFileError, UsageError
from quant.synth_shape import Shape, Tensor, find_shape, tensors
from quant.synth_vocabulary import Vocabulary, byte_vocabulary, qwen_vocabulary

TEMPLATE = (Path(__file__).parent / "synth.jinja").read_text("utf-8")
PLAIN_FORMS = ("f32", "f16", "bf16", "q8_0")
QUANTIZED_FORMS = {"q4_k_m": 15, "q5_k_m": 17, "q6_k": 18}
"""Names and numbers of `llama_ftype` that are made from bf16 by llama.cpp's own quantizer."""

_FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7}
_F32 = 0  # ggml_type
_PIECE_VALUES = 1 << 22
_ALIGNMENT = 32
Progress = Callable[[int, int], None]


def write_model(
    path: Path,
    shape: Shape,
    *,
    vocabulary: Vocabulary | None = None,
    form: str = "f32",
    template: str | None = TEMPLATE,
    seed: int = 0,
    name: str = "synthetic",
    texts: Mapping[str, str] | None = None,
    on_progress: Progress | None = None,
) -> Path:
    """Write a model in one of `PLAIN_FORMS` and return its path; `texts` are more metadata.

    `on_progress` gets (bytes written, bytes in all) of the tensors. A file appears under `path` only when it is
    whole. Raises UsageError where the package `gguf` is not installed, OSError.
    """
    gguf = _import_gguf()
    vocabulary = vocabulary or byte_vocabulary(shape.vocabulary)
    part = path.with_name(f".{path.name}.part")
    writer = gguf.GGUFWriter(str(part), "qwen35")
    writer.add_name(name)
    writer.add_file_type(_FILE_TYPES[form])
    _add_numbers(writer, shape)
    _add_vocabulary(writer, vocabulary)
    if template is not None:
        writer.add_chat_template(template)
    for key, value in (texts or {}).items():
        writer.add_string(key, value)
    plan = [(tensor, _kind_of(tensor, form, gguf)) for tensor in tensors(shape, len(vocabulary.tokens))]
    for tensor, kind in plan:
        writer.add_tensor_info(
            tensor.name, _raw_shape(tensor, kind, gguf), np.dtype(np.uint8), _n_bytes(tensor, kind, gguf), kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    total = sum(_n_bytes(tensor, kind, gguf) for tensor, kind in plan)
    done = 0
    try:
        with open(part, "ab") as file:
            for tensor, kind in plan:
                file.write(b"\0" * (-file.tell() % _ALIGNMENT))
                for values in tensor_pieces(tensor, seed):
                    done += file.write(gguf.quants.quantize(values, kind).tobytes())
                    if on_progress is not None:
                        on_progress(done, total)
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path


def quantize_model(source: Path, target: Path, form: str, n_threads: int) -> Path:
    """Quantize with llama.cpp to one of `QUANTIZED_FORMS`; the 4B takes minutes. Raises ModelFileError.

    The gates of the delta rule stay in f32: 24 MiB of the 4B buy stability over long texts.
    """
    from agent.model.engine_library import load_library

    lib = load_library()
    params = lib.llama_model_quantize_default_params()
    params.ftype = QUANTIZED_FORMS[form]
    params.nthread = n_threads
    kept = (lib.llama_model_tensor_override * 3)(*((name, _F32) for name in (b"ssm_alpha", b"ssm_beta")))
    params.tt_overrides = kept  # ends at the entry without a name
    part = target.with_name(f".{target.name}.part")
    code = int(lib.llama_model_quantize(os.fsencode(source), os.fsencode(part), ctypes.byref(params)))
    if code != 0:
        part.unlink(missing_ok=True)
        raise ModelFileError(f"llama.cpp could not quantize {source} (code {code})", "See the messages above.")
    os.replace(part, target)
    return target


def cached_path(shape_name: str, form: str, *, seed: int = 0, mtp: bool = False, real: bool = False) -> Path:
    """Where a model is that is made once and kept. It may not exist yet."""
    marks = [shape_name, *(["mtp"] if mtp else []), *(["qwen"] if real else []), f"seed{seed}", form]
    return cache_dir() / "synth" / f"{'-'.join(marks)}.gguf"


def make_cached(
    shape_name: str,
    form: str,
    *,
    seed: int = 0,
    mtp: bool = False,
    real: bool = False,
    n_threads: int = 1,
    on_progress: Progress | None = None,
    path: Path | None = None,
) -> Path:
    """The model under `path` (None: its cached path), made where it is not there.

    `real`: with the vocabulary of Qwen3.5. Raises UsageError, ModelFileError, OSError.
    """
    shape = find_shape(shape_name, mtp=mtp)
    target = path or cached_path(shape_name, form, seed=seed, mtp=mtp, real=real)
    if target.exists():
        return target
    if path is None:
        make_private_dir(target.parent)
    name = f"synthetic-{shape_name}"
    vocabulary = qwen_vocabulary(shape.vocabulary) if real else None
    if form in PLAIN_FORMS:
        return write_model(
            target, shape, vocabulary=vocabulary, form=form, seed=seed, name=name, on_progress=on_progress
        )
    source = target.with_name(f".{target.name}.bf16")
    try:
        write_model(source, shape, vocabulary=vocabulary, form="bf16", seed=seed, name=name, on_progress=on_progress)
        return quantize_model(source, target, form, n_threads)
    finally:
        source.unlink(missing_ok=True)


def _import_gguf() -> Any:
    try:
        import gguf
    except ImportError as error:
        raise UsageError("making a model needs the package gguf", "Install it: `pip install gguf`.") from error
    return gguf


def _add_numbers(writer: Any, shape: Shape) -> None:
    for key, value in shape.metadata.items():
        add = {float: writer.add_float32, list: writer.add_array}.get(type(value), writer.add_uint32)
        add(f"qwen35.{key}", value)


def _add_vocabulary(writer: Any, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(vocabulary.merges)
    writer.add_eos_token_id(vocabulary.tokens.index("<|im_end|>"))
    writer.add_pad_token_id(vocabulary.tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)


def _kind_of(tensor: Tensor, form: str, gguf: Any) -> Any:
    kinds = gguf.GGMLQuantizationType
    kind = kinds.F32 if tensor.exact else kinds[form.upper()]
    per_block, _ = gguf.GGML_QUANT_SIZES[kind]
    return kind if tensor.shape[-1] % per_block == 0 else kinds.F32


def _raw_shape(tensor: Tensor, kind: Any, gguf: Any) -> tuple[int, ...]:
    """The shape in bytes, from which the writer works out the shape in values."""
    per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    return (*tensor.shape[:-1], tensor.shape[-1] // per_block * block_bytes)


def _n_bytes(tensor: Tensor, kind: Any, gguf: Any) -> int:
    return int(np.prod(_raw_shape(tensor, kind, gguf)))


def tensor_pieces(tensor: Tensor, seed: int, *, raw: bool = False) -> Iterator[Any]:
    """The values of a tensor in f32, some rows at a time. They depend on the seed and on the tensor's name alone.

    `raw`: of a decay its logarithm, as a checkpoint has it.
    """
    rng = np.random.default_rng([seed, zlib.crc32(tensor.name.encode())])
    rows = tensor.shape[0] if len(tensor.shape) > 1 else 1
    width = tensor.shape[-1]
    step = max(1, _PIECE_VALUES // width)
    for begin in range(0, rows, step):
        shape = (min(step, rows - begin), width)
        values = rng.standard_normal(shape, dtype=np.float32) * np.float32(tensor.scale) + np.float32(tensor.base)
        yield -np.exp(values) if tensor.decay and not raw else values
