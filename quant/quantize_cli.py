"""The command `frog-lsp model quantize`."""

from __future__ import annotations

import argparse
import asyncio
import os
import textwrap
from pathlib import Path
from typing import Any

from agent.cli_parser import EXIT_OK, positive_int, print_json, say, write_stdout
from agent.errors import UsageError
from agent.model.locate import locate
from quant.progress import ByteProgress
from quant.quantize_types import FILE_TYPES, parse_keep, parse_target

DESCRIPTION = """\
Make a smaller model of a BF16, F16 or F32 one (or of a quantized one, with
--allow-requantize).

The gates of the delta rule (ssm_alpha, ssm_beta) stay in F32, and vectors such
as norms stay as they are. A manifest beside the file says what was done.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `model quantize`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        textwrap.fill(f"Types: {', '.join(FILE_TYPES)}.", 79)
        + "\n\nWith auto:SIZE every matrix gets a type of its own: what each type costs it is\n"
        "measured on some of its rows (with the importance of its inputs, where --imatrix\n"
        "is given), and the sum is made as small as SIZE allows."
    )
    parser.add_argument("source", metavar="IN.gguf", help="a GGUF file, or a kept model")
    parser.add_argument("target", metavar="OUT.gguf", help="the file to make")
    parser.add_argument("--type", required=True, metavar="TYPE", help="such as Q4_K_M; or auto:3.0GiB, the best mix")
    parser.add_argument("--imatrix", metavar="FILE", help="importance matrix, made by `frog-lsp model calibrate`")
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="PATTERN=TYPE",
        help="a type for the tensors in whose names a regular expression is found, such as token_embd=Q8_0; may be "
        "given several times, the first that is found counts",
    )
    parser.add_argument("--allow-requantize", action="store_true", help="take a model that is quantized already")
    parser.add_argument("--threads", type=positive_int, metavar="N", help="processor threads (all)")


def run(arguments: argparse.Namespace) -> int:
    """Quantize, and print the path. Raises FrogError."""
    from quant.quantize import Options, quantize

    options = Options(
        source=Path(locate(arguments.source).path),
        target=Path(arguments.target).expanduser(),
        wanted=parse_target(arguments.type),
        keeps=[parse_keep(text) for text in arguments.keep],
        imatrix=None if arguments.imatrix is None else Path(arguments.imatrix).expanduser(),
        requantize=arguments.allow_requantize,
        n_threads=arguments.threads or _n_cores(),
    )
    try:
        with ByteProgress("reading") as progress:
            outcome = asyncio.run(quantize(options, lambda what, done, total: progress.update(done, total, what)))
    except OSError as error:
        raise UsageError(
            f"the file cannot be written: {error.strerror or error}", "Check the folder and the space on its disk."
        ) from error
    answer: dict[str, Any] = {
        "path": str(outcome.target),
        "manifest": str(outcome.manifest),
        "size_bytes": outcome.size_bytes,
        "source_bytes": outcome.source_bytes,
        "bits_per_weight": round(outcome.bits_per_weight, 3),
        "tensor_types": outcome.kinds,
        "notes": outcome.notes,
    }
    if arguments.json:
        print_json({**answer, "error": None})
        return EXIT_OK
    write_stdout(f"{outcome.target}\n".encode("utf-8", "surrogateescape"))
    kinds = ", ".join(f"{n} {kind}" for kind, n in outcome.kinds.items())
    say(
        f"{outcome.source_bytes:,} bytes became {outcome.size_bytes:,}, "
        f"{outcome.bits_per_weight:.2f} bits a weight\ntensors: {kinds}\n"
        + "".join(f"note: {note}\n" for note in outcome.notes)
        + f"Use it: `frog-lsp model use {outcome.target}`\n"
    )
    return EXIT_OK


def _n_cores() -> int:
    """Those that this process may use, hyper-threads too: quantizing is all computation."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
