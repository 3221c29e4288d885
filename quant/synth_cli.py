"""The command `frog-lsp model synth`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from agent.cli_parser import EXIT_OK, print_json, say, write_stdout
from agent.errors import UsageError
from agent.model.gguf_header import read_header
from quant.progress import ByteProgress
from quant.synth_shape import SHAPES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `model synth`."""
    parser.add_argument("shape", choices=[*SHAPES], help="tiny has under 1 MB; 4b is the whole shape of FrogNano-4B")
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help="where (default: kept in the cache folder)")
    parser.add_argument("--form", default="f32", help="f32, f16, bf16, q8_0, q4_k_m, q5_k_m or q6_k (default: f32)")
    parser.add_argument("--mtp", action="store_true", help="with a layer that drafts the token after the next")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed gives the same bytes")
    parser.add_argument("--vocabulary", choices=["bytes", "qwen"], default="bytes", help="qwen: the one of Qwen3.5")


def run(arguments: argparse.Namespace) -> int:
    """Make a model of random weights and print its path. Raises UsageError, ModelFileError."""
    from quant.synth import PLAIN_FORMS, QUANTIZED_FORMS, make_cached

    form = arguments.form.lower()
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
    try:
        with ByteProgress(f"synth {arguments.shape}") as progress:
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
    except OSError as error:
        raise UsageError(
            f"the model cannot be written: {error}", "Check the folder and the space on its disk."
        ) from error
    header = read_header(made)
    answer: dict[str, Any] = {"path": str(made), "size_bytes": header.size_bytes, "n_tensors": header.n_tensors}
    if arguments.json:
        print_json({**answer, "error": None})
    else:
        write_stdout(f"{made}\n".encode("utf-8", "surrogateescape"))
    return EXIT_OK
