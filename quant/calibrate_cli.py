"""The command `frog-lsp model calibrate`."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from agent.cli_parser import EXIT_OK, positive_int, print_json, say, write_stdout
from agent.errors import UsageError
from agent.model.locate import locate
from quant.progress import CountProgress

DESCRIPTION = """\
Measure which columns of a model's matrices matter, by reading runs of an
agent: an importance matrix, for `frog-lsp model quantize --imatrix`. The file
has the format of llama.cpp's llama-imatrix (GGUF) and holds means of squares,
none of the text. Any build of a model will do, also a quantized one: the
matrix fits all of them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `model calibrate`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", metavar="MODEL", help="a kept model, or a GGUF file")
    parser.add_argument("target", metavar="OUT.gguf", help="the importance matrix to make")
    parser.add_argument(
        "--trajectories",
        action="append",
        metavar="WHAT",
        help="runs to read: a trajectory, a folder of them, `recorded` (your own runs) or `bundled` (ten that come "
        "with frog-lsp, 36,000 tokens; the default); may be given several times",
    )
    parser.add_argument("--tokens", type=positive_int, metavar="N", help="the most tokens to read (100,000)")
    parser.add_argument("--context", type=positive_int, metavar="N", help="the most tokens of one run (8,192)")
    parser.add_argument("--threads", type=positive_int, metavar="N", help="processor threads (physical cores)")


def run(arguments: argparse.Namespace) -> int:
    """Calibrate, and print the path. Raises FrogError."""
    from agent.model.client import SMALL_BYTES
    from agent.model.machine import physical_cores
    from quant.calibrate import MOST_TOKENS, Options, calibrate
    from quant.transcripts import BUNDLED

    model = Path(locate(arguments.model).path)
    is_small = model.stat().st_size < SMALL_BYTES
    options = Options(
        model=model,
        target=Path(arguments.target).expanduser(),
        sources=arguments.trajectories or (BUNDLED,),
        context_tokens=arguments.context,
        most_tokens=arguments.tokens or MOST_TOKENS,
        n_threads=arguments.threads or (1 if is_small else physical_cores()),
    )
    try:
        with CountProgress() as progress:
            outcome = asyncio.run(calibrate(options, progress.update))
    except OSError as error:
        raise UsageError(
            f"the file cannot be written: {error.strerror or error}", "Check the folder and the space on its disk."
        ) from error
    answer: dict[str, Any] = {
        "path": str(outcome.target),
        "n_runs": outcome.n_runs,
        "n_tokens": outcome.n_tokens,
        "n_matrices": outcome.n_matrices,
        "notes": outcome.notes,
    }
    if arguments.json:
        print_json({**answer, "error": None})
        return EXIT_OK
    write_stdout(f"{outcome.target}\n".encode("utf-8", "surrogateescape"))
    say(
        f"{outcome.n_tokens:,} tokens of {outcome.n_runs} runs, {outcome.n_matrices} matrices\n"
        + "".join(f"note: {note}\n" for note in outcome.notes)
        + f"Use it: `frog-lsp model quantize IN.gguf OUT.gguf --type Q4_K_M --imatrix {outcome.target}`\n"
    )
    return EXIT_OK
