"""From a Qwen3.5 checkpoint in safetensors to a GGUF, as llama.cpp's own converter makes it, in a few MiB of memory.

The text model and its layers that draft are kept, the part that sees is left out. A file appears under its name only
when it is whole.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import BinaryIO

import psutil

from agent.errors import ModelFileError, UsageError
from agent.model.gguf_header import read_header
from agent.model.template_trial import try_template
from quant.convert_card import general_keys, read_card, read_generation
from quant.convert_config import ARCHITECTURE, ModelConfig, parse_config
from quant.convert_layout import HEAD, Slot, is_left_out, plain_name, slots
from quant.convert_safetensors import GET_AGAIN, StoredTensor, read_checkpoint, read_object
from quant.convert_tokenizer import read_tokenizer
from quant.convert_values import DTYPES, Reader
from quant.gguf_writer import TensorInfo, TensorKind, Value, header_bytes, padding
from quant.sizes import size_text
from quant.steady_file import SteadyFile

FORMS = ("auto", "bf16", "f16", "f32")
_FILE_TYPES = {TensorKind.F32: 0, TensorKind.F16: 1, TensorKind.BF16: 32}  # llama_ftype
_QUANTIZATION_VERSION = 2  # of ggml's block formats
_MARGIN_BYTES = 64 << 20  # left free on the disk
_VALUE_BYTES = {TensorKind.F32: 4, TensorKind.F16: 2, TensorKind.BF16: 2}
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Item:
    """A tensor that is converted."""

    source: StoredTensor
    slot: Slot
    kind: TensorKind

    @property
    def info(self) -> TensorInfo:
        """As the header of the GGUF describes it."""
        shape = self.slot.made_shape
        return TensorInfo(
            name=self.slot.name, shape=shape, kind=self.kind, n_bytes=prod(shape) * _VALUE_BYTES[self.kind]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is known before a byte is written. `notes` are for a person."""

    config: ModelConfig
    form: TensorKind
    n_drafting: int
    metadata: Mapping[str, Value]
    items: tuple[Item, ...]
    n_bytes: int
    n_left_out: int
    licence: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A GGUF that was written."""

    path: Path
    size_bytes: int
    notes: tuple[str, ...]


def plan_conversion(folder: Path, *, form: str = "auto") -> Plan:
    """Read all but the weights, and check that they are those of one model.

    `form` is one of `FORMS`; `auto` is that of the first matrix, and F16 where the matrices are in F32. Raises
    UsageError for a folder that is no checkpoint, ModelFileError for one that is damaged, is of another architecture,
    or could not serve: without a chat template that knows tools, or with positions that llama.cpp computes wrongly.
    """
    stored = read_checkpoint(folder)
    raw_config = read_object(folder / "config.json")
    config = parse_config(raw_config)
    kept = [tensor for tensor in stored if not is_left_out(tensor.name)]
    n_drafting, notes = _drafting(config, kept)
    pairs = _match(kept, slots(config, n_drafting), config)
    matrix_form = _form_of(kept, form)
    if form == "auto" and any(tensor.dtype == "F32" and slot.shape[1:] and not slot.exact for tensor, slot in pairs):
        notes.append(f"matrices in F32 are rounded to {matrix_form.name}; `--type f32` keeps them as they are")
    items = tuple(Item(tensor, slot, TensorKind.F32 if slot.exact else matrix_form) for tensor, slot in pairs)
    card = read_card(folder)
    tokenizer = read_tokenizer(folder, raw_config, config.vocabulary)
    try_template(tokenizer["tokenizer.chat_template"].value)
    n_values = sum(prod(item.slot.made_shape) for item in items)
    left_out = [tensor for tensor in stored if is_left_out(tensor.name)]
    if left_out:
        size = size_text(sum(tensor.n_bytes for tensor in left_out))
        notes.insert(0, f"left out: the part that sees pictures, {len(left_out)} tensors, {size}")
    return Plan(
        config=config,
        form=matrix_form,
        n_drafting=n_drafting,
        metadata={
            "general.architecture": Value.text(ARCHITECTURE),
            **general_keys(card, raw_config, read_generation(folder), n_values),
            "frog.converted_by": Value.text(f"frog-lsp {version('frog-lsp')}"),
            **config.metadata(n_drafting),
            "general.file_type": Value.u32(_FILE_TYPES[matrix_form]),
            "general.quantization_version": Value.u32(_QUANTIZATION_VERSION),
            **tokenizer,
        },
        items=items,
        n_bytes=sum(item.info.n_bytes for item in items),
        n_left_out=len(left_out),
        licence=card.licence,
        notes=tuple(notes),
    )


def convert(plan: Plan, path: Path, *, on_progress: Progress | None = None) -> Converted:
    """Write the GGUF; `on_progress` gets (bytes, bytes in all) of the tensors.

    Raises UsageError where `path` is there already or cannot be written, ModelFileError.
    """
    header = header_bytes(plan.metadata, [item.info for item in plan.items])
    _check_place(path, plan.n_bytes + len(header))
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        damaged = _write(plan, header, part, on_progress)
        read_header(part)
        if path.exists():
            raise _is_there(path)
        os.replace(part, path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}", "Check the folder and the space on its disk."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink()
    notes = plan.notes
    if damaged:
        notes += (
            f"{len(damaged)} tensors hold values that are no finite numbers, such as {damaged[0]}:"
            " the model will hardly answer",
        )
    return Converted(path=path, size_bytes=path.stat().st_size, notes=notes)


def _write(plan: Plan, header: bytes, part: Path, on_progress: Progress | None) -> list[str]:
    """Gives the names of tensors with values that are no finite numbers."""
    damaged: list[str] = []
    done = 0
    with ExitStack() as stack:
        out = stack.enter_context(SteadyFile(part))
        opened: dict[Path, BinaryIO] = {}
        out.write(header)
        for item in plan.items:
            path = item.source.path
            if path not in opened:
                opened[path] = stack.enter_context(open(path, "rb"))
            reader = Reader(opened[path], item.source, item.slot, plan.config.groups, plan.config.steps)
            n_bytes = 0
            for piece in reader.pieces(item.kind):
                out.write(piece)
                n_bytes += len(piece)
                if on_progress is not None:
                    on_progress(done + n_bytes, plan.n_bytes)
            assert n_bytes == item.info.n_bytes, item.slot.name
            done += n_bytes
            out.write(bytes(padding(n_bytes)))
            if not reader.is_finite:
                damaged.append(item.slot.name)
    return damaged


def _drafting(config: ModelConfig, kept: list[StoredTensor]) -> tuple[int, list[str]]:
    """How many layers that draft are there (MTP), and what to say of it."""
    names = [plain_name(tensor.name) for tensor in kept]
    numbers = {name.split(".")[2] for name in names if name.startswith("mtp.layers.")}
    if not any(name.startswith("mtp.") for name in names):
        if config.n_drafting:
            return 0, ["config.json speaks of a layer that drafts (MTP), but no file holds it: it is left out"]
        return 0, []
    n_layers = config.n_drafting or len(numbers)
    if numbers != {str(i) for i in range(n_layers)}:
        raise ModelFileError(
            f"the files hold {len(numbers)} layers that draft (mtp.layers) and config.json speaks of {n_layers}",
            GET_AGAIN,
        )
    return n_layers, []


def _match(
    kept: list[StoredTensor], wanted: Mapping[str, Slot], config: ModelConfig
) -> list[tuple[StoredTensor, Slot]]:
    """Each tensor of the files with its slot: none unknown, none missing, none of another shape or type."""
    counts = Counter(plain_name(tensor.name) for tensor in kept)
    unknown = [tensor.name for tensor in kept if plain_name(tensor.name) not in wanted]
    if unknown:
        raise ModelFileError(
            f"{len(unknown)} tensors are not of this architecture, such as {unknown[0][:200]}",
            "A checkpoint that was changed (quantized, with adapters, of a newer model) cannot be converted here.",
        )
    missing = [name for name in wanted if name not in counts and not (name == HEAD and config.tied)]
    if missing:
        raise ModelFileError(f"{len(missing)} tensors are in no file, such as {missing[0]}", GET_AGAIN)
    doubled = [name for name, count in counts.items() if count > 1]
    if doubled:
        raise ModelFileError(f"{doubled[0]} is there under two names", GET_AGAIN)
    pairs = [(tensor, wanted[plain_name(tensor.name)]) for tensor in kept]
    for tensor, slot in pairs:
        if tensor.dtype not in DTYPES:
            raise ModelFileError(
                f"{tensor.name} is in {tensor.dtype}: the weights are quantized already",
                f"Take the checkpoint in {', '.join(DTYPES)} that it was made from.",
            )
        if tensor.shape != slot.shape:
            raise ModelFileError(
                f"{tensor.name} has the shape {list(tensor.shape)}, and by config.json {list(slot.shape)}", GET_AGAIN
            )
    return pairs


def _form_of(kept: list[StoredTensor], form: str) -> TensorKind:
    if form != "auto":
        return TensorKind[form.upper()]
    first = next((tensor.dtype for tensor in kept if len(tensor.shape) > 1 and tensor.dtype in ("BF16", "F16")), "F16")
    return TensorKind[first]


def _check_place(path: Path, n_bytes: int) -> None:
    """Raises UsageError. What conversions that were killed left beside `path` is removed."""
    if path.exists():
        raise _is_there(path)
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}", "Make it, or name another file.")
    for part in path.parent.glob(f".{_escaped(path.name)}.*.part"):
        number = part.name.removesuffix(".part").rpartition(".")[2]
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            part.unlink(missing_ok=True)
    free = shutil.disk_usage(path.parent).free
    if free < n_bytes + _MARGIN_BYTES:
        raise UsageError(
            f"{size_text(n_bytes)} are needed in {path.parent} and {size_text(free)} are free",
            "Make room, or name a file on a larger disk.",
        )


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _is_there(path: Path) -> UsageError:
    what = "is a folder" if path.is_dir() else "is there already"
    return UsageError(f"{path} {what}", "Remove it, or name another file.")
