"""The command `frog-lsp model compare`."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from agent.cli_parser import EXIT_OK, positive_int, print_json, write_stdout
from agent.errors import UsageError
from agent.model.locate import locate
from quant.progress import CountProgress

DESCRIPTION = """\
Compare two models over recorded runs: which to use, and why.

Probabilities: both read the same tokens in the same batches. KL divergence of
B to A, the share of tokens where both hold the same one for the likeliest, and
perplexity; what the model writes apart from what it only reads.

Tool calls: turns of the runs are generated again by both, as a run does it. The
shares of turns that can be read, name a real tool, have all its required
arguments, repeat themselves, hit the cap, or call nothing where the run did.
Raw is what the model says; repaired, what the repair of calls makes of it
(model.repairCalls), as runs have it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `model compare`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("a", metavar="A", help="the reference: a kept model, or a GGUF file")
    parser.add_argument("b", metavar="B", help="the model compared to it, such as a smaller build of the same")
    parser.add_argument(
        "--trajectories",
        action="append",
        metavar="DIR",
        help="a folder of trajectories, or one of them; `recorded` is your own runs (default: bundled runs)",
    )
    parser.add_argument("--prompts", type=_count, default=40, metavar="N", help="turns to ask for (default: 40)")
    parser.add_argument("--seeds", type=positive_int, default=2, metavar="N", help="times for each turn (default: 2)")
    parser.add_argument(
        "--tokens", type=positive_int, default=8192, metavar="N", help="whose probabilities are read (default: 8192)"
    )
    parser.add_argument(
        "--turn-tokens", type=positive_int, default=1024, metavar="N", help="the cap of a turn (default: 1024)"
    )
    parser.add_argument("--context", type=positive_int, metavar="TOKENS", help="of both models (default: 8192)")
    parser.add_argument("--threads", type=positive_int, metavar="N", help="default: physical cores")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="where (default: in the cache folder)")


def _count(text: str) -> int:
    return 0 if text == "0" else positive_int(text)


def run(arguments: argparse.Namespace) -> int:
    """Compare, and print the table or the object. Raises FrogError."""
    from quant.compare import Options, compare
    from quant.compare_plot import can_draw, draw
    from quant.compare_report import comparison_json, report
    from quant.transcripts import BUNDLED

    if arguments.plot is not None and not can_draw():
        raise UsageError("the plot needs the package Pillow", "Install it: `pip install frog-lsp[plot]`.")
    if arguments.plot is not None and not arguments.plot.absolute().parent.is_dir():
        raise UsageError(f"{arguments.plot.parent} is no folder", "Make it, or name another file with --plot.")
    a, b = locate(arguments.a), locate(arguments.b)
    options = Options(
        sources=arguments.trajectories or [BUNDLED],
        n_prompts=arguments.prompts,
        n_seeds=arguments.seeds,
        most_tokens=arguments.tokens,
        context_tokens=arguments.context,
        turn_tokens=arguments.turn_tokens,
        n_threads=arguments.threads,
    )
    with CountProgress() as progress:
        found = asyncio.run(compare(a, b, options, progress.update))
    plot: Path | None = None
    if can_draw():
        plot = (arguments.plot or _default_plot(a.name, b.name)).absolute()
        draw(found, plot)
    else:
        found.notes.append("No plot: it needs the package Pillow. Install it: `pip install frog-lsp[plot]`.")
    where = None if plot is None else str(plot)
    if arguments.json:
        print_json({**comparison_json(found, where), "error": None})
    else:
        write_stdout(report(found, where).encode("utf-8", "surrogateescape"))
    return EXIT_OK


def _default_plot(a: str, b: str) -> Path:
    from agent.config import cache_dir, make_private_dir

    folder = make_private_dir(cache_dir() / "compare")
    return folder / f"{a}-and-{b}.png"
