"""The command `frog-lsp model convert`."""

from __future__ import annotations

import argparse
from pathlib import Path

from agent.cli_parser import EXIT_OK, print_json, say, write_stdout
from quant.progress import ByteProgress

WHAT = "make a GGUF from a checkpoint in safetensors (dense models of Qwen3.5, such as FrogNano)"
FORMS = ("auto", "bf16", "f16", "f32")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `model convert`."""
    parser.add_argument(
        "folder", type=Path, metavar="SAFETENSORS_DIR", help="config.json, tokenizer.json and the safetensors"
    )
    parser.add_argument("out", type=Path, metavar="OUT.gguf", help="the file to write; it must not be there")
    parser.add_argument(
        "--type",
        dest="form",
        choices=FORMS,
        default="auto",
        help="of the matrices (default: that of the checkpoint, F32 becomes F16); vectors are always F32",
    )


def run(arguments: argparse.Namespace) -> int:
    """Convert, and print the path. Raises UsageError, ModelFileError."""
    from quant.convert import convert, plan_conversion
    from quant.sizes import size_text

    folder, out = arguments.folder.expanduser(), arguments.out.expanduser()
    plan = plan_conversion(folder, form=arguments.form)
    drafting = f" and {plan.n_drafting} that drafts" if plan.n_drafting else ""
    say(f"Qwen3.5 of {plan.config.layers} layers{drafting}, {size_text(plan.n_bytes)} as {plan.form.name}\n")
    say(f"licence: {plan.licence}\n" + "".join(f"{note}\n" for note in plan.notes))
    with ByteProgress(f"converting {folder.name or folder}") as progress:
        made = convert(plan, out, on_progress=progress.update)
    for note in made.notes[len(plan.notes) :]:
        say(f"{note}\n")
    if arguments.json:
        print_json(
            {
                "path": str(out),
                "size_bytes": made.size_bytes,
                "type": plan.form.name,
                "n_tensors": len(plan.items),
                "n_left_out": plan.n_left_out,
                "n_drafting_layers": plan.n_drafting,
                "licence": plan.licence,
                "notes": list(made.notes),
                "error": None,
            }
        )
    else:
        write_stdout(f"{out}\n".encode("utf-8", "surrogateescape"))
        say(f"{made.size_bytes:,} bytes\n")
        say(f"Make it smaller: `frog-lsp model quantize`. Use it: `frog-lsp model use {out}`\n")
    return EXIT_OK
