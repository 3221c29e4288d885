"""The command `frog-lsp model synth`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.cli_parser import EXIT_OK, positive_int, print_json, say, write_stdout
from agent.errors import UsageError
from agent.model.gguf_header import read_header
from quant.progress import ByteProgress
from quant.synth_shape import SHAPES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `model synth`."""
    parser.add_argument("shape", choices=[*SHAPES], help="tiny has under 1 MB; 4b is the whole shape of FrogNano-4B")
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help="where (default: kept in the cache folder)")
    parser.add_argument(
        "--form", help="f32, f16, bf16, q8_0, q4_k_m, q5_k_m or q6_k (default: f32; of a checkpoint: bf16)"
    )
    parser.add_argument("--mtp", action="store_true", help="with a layer that drafts the token after the next")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed gives the same bytes")
    parser.add_argument("--vocabulary", choices=["bytes", "qwen"], default="bytes", help="qwen: the one of Qwen3.5")
    parser.add_argument(
        "--checkpoint", action="store_true", help="a folder of safetensors, as `model convert` reads it"
    )
    parser.add_argument(
        "--shards", type=positive_int, default=1, metavar="N", help="files of a checkpoint (default: 1)"
    )
    parser.add_argument("--vision", action="store_true", help="a checkpoint with the part that sees, too")


def run(arguments: argparse.Namespace) -> int:
    """Make a model of random weights and print its path. Raises UsageError, ModelFileError."""
    if arguments.checkpoint:
        return _run_checkpoint(arguments)
    if arguments.shards > 1 or arguments.vision:
        raise UsageError("only a checkpoint has shards and a vision part", "Add `--checkpoint`.")
    from quant.synth import PLAIN_FORMS, QUANTIZED_FORMS, make_cached

    form = (arguments.form or "f32").lower()
    forms = (*PLAIN_FORMS, *QUANTIZED_FORMS)
    if form not in forms:
        raise UsageError(f"there is no form {arguments.form}", f"Choose one of {', '.join(forms)}.")
    if arguments.seed < 0:
        raise UsageError("the seed is negative", "Give 0 or more.")
    path: Path | None = arguments.path
    if path is not None and path.exists():
        raise UsageError(f"{path} is there already", "Remove it, or name another file.")
    if form in QUANTIZED_FORMS and arguments.shape == "4b":
        say("made as bf16 first, then quantized by llama.cpp: 8.7 GB of disk and some 20 minutes for the 4b\n")
    with ByteProgress(f"synth {arguments.shape}") as progress, _explained():
        made = make_cached(
            arguments.shape,
            form,
            seed=arguments.seed,
            mtp=arguments.mtp,
            real=arguments.vocabulary == "qwen",
            n_threads=os.cpu_count() or 1,
            on_progress=progress.update,
            path=path,
        )
    header = read_header(made)
    return _answer(arguments, made, {"size_bytes": header.size_bytes, "n_tensors": header.n_tensors})


def _run_checkpoint(arguments: argparse.Namespace) -> int:
    from quant.synth_checkpoint import DTYPES, write_checkpoint
    from quant.synth_config import FULL_VISION, VisionShape
    from quant.synth_shape import find_shape
    from quant.synth_vocabulary import byte_vocabulary, qwen_vocabulary

    folder: Path | None = arguments.path
    if folder is None:
        raise UsageError("a checkpoint is a folder, and none is named", "Name one behind the shape.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already", "Remove it, or name another folder.")
    dtype = (arguments.form or "bf16").upper()
    if dtype not in DTYPES:
        raise UsageError(f"a checkpoint has no form {arguments.form}", "Choose one of bf16, f16, f32.")
    if arguments.seed < 0:
        raise UsageError("the seed is negative", "Give 0 or more.")
    shape = find_shape(arguments.shape, mtp=arguments.mtp)
    vocabulary = qwen_vocabulary if arguments.vocabulary == "qwen" else byte_vocabulary
    vision = FULL_VISION if arguments.shape == "4b" else VisionShape()
    with ByteProgress(f"synth {arguments.shape}") as progress, _explained():
        write_checkpoint(
            folder,
            shape,
            vocabulary=vocabulary(shape.vocabulary),
            dtype=dtype,
            n_shards=arguments.shards,
            vision=vision if arguments.vision else None,
            seed=arguments.seed,
            on_progress=progress.update,
        )
    return _answer(arguments, folder, {"size_bytes": sum(file.stat().st_size for file in folder.iterdir())})


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"the model cannot be written: {error}", "Check the folder and the space on its disk."
        ) from error


def _answer(arguments: argparse.Namespace, made: Path, facts: dict[str, Any]) -> int:
    answer: dict[str, Any] = {"path": str(made), **facts}
    if arguments.json:
        print_json({**answer, "error": None})
    else:
        write_stdout(f"{made}\n".encode("utf-8", "surrogateescape"))
    return EXIT_OK
