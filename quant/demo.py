"""`frog-lsp demo`: a small broken project is made and fixed by the real engine, tools and jail."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.padding import Padding
from rich.text import Text

from agent.applying import apply_result, describe_outcome
from agent.cli import SCRIPTED, add_run_arguments, model_of
from agent.cli_parser import EXIT_CANCELLED, EXIT_ERROR, EXIT_OK, confirm, print_json, say
from agent.defaults import load_defaults
from agent.errors import FrogError, UsageError
from agent.run_id import new_run_id
from agent.types import ExitReason, Issue, ModelSpec, RunResult, RunSpec
from agent.visible import visible
from quant.tadpole.generator import Project, demo_project, project

BUNDLED = ModelSpec(kind="worker", path="tadpole")


def add_arguments_demo(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp demo`."""
    parser.add_argument("--seed", metavar="N", type=int, help="another project: generated, never in training")
    parser.add_argument("--yes", action="store_true", help="apply the proposal without asking")
    parser.add_argument("--write", metavar="DIR", help="write the project and its ISSUE.md there, and run nothing")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_run_arguments(parser)


def run_demo(arguments: argparse.Namespace) -> int:
    """Make a project, fix it, show what was checked; 0 where the tests failed before and pass with the proposal."""
    if arguments.model is not None and arguments.model.startswith(SCRIPTED):
        raise UsageError("the demonstration needs a real model, not a scripted one", "Leave --model out.")
    from agent.cli_run import execute, show_diff, summarize
    from agent.cli_show import make_console
    from agent.result_json import no_result_json, result_json

    made = demo_project() if arguments.seed is None else project(arguments.seed)
    if arguments.write is not None:
        return _write_only(arguments, made)
    spec = _spec(arguments, made)
    console = make_console()
    console.print(Text("A small broken project was made in", "bold"))
    console.print(Text(f"  {spec.workspace}"), soft_wrap=True)
    console.print(Text("Its issue:", "bold"))
    for line in visible(made.issue).strip().split("\n"):
        console.print(Padding(Text(line, overflow="fold"), (0, 0, 0, 2), expand=False))
    console.print()

    def on_hard_stop() -> None:
        if arguments.json:
            stopped = FrogError("stopped by a second interrupt", "What the run had done is lost.")
            stopped.kind = "cancelled"
            print_json(no_result_json(stopped))

    result = execute(spec, console, on_hard_stop)
    summarize(console, result)
    if result.changes.changes:
        show_diff(console, result.changes)
        _offer(arguments, spec, result)
    if arguments.json:
        print_json(result_json(result))
    if result.exit_reason is ExitReason.CANCELLED:
        return EXIT_CANCELLED
    return EXIT_OK if is_fixed(result) else EXIT_ERROR


def is_fixed(result: RunResult) -> bool:
    """Whether the tests failed on the snapshot and pass on the proposal."""
    before, after = result.tests_before, result.tests_after
    return before is not None and before.exit_code != 0 and after is not None and after.exit_code == 0


def _spec(arguments: argparse.Namespace, made: Project) -> RunSpec:
    from dataclasses import replace

    defaults = load_defaults()
    limits = {"max_steps": arguments.max_steps, "time_s": arguments.time_limit, "context_tokens": arguments.context}
    given = {name: value for name, value in limits.items() if value is not None}
    return RunSpec(
        run_id=new_run_id(),
        workspace=str(_write(made.files)),
        issue=Issue(text=made.issue),
        model=model_of(arguments, BUNDLED),
        limits=replace(defaults.limits, **({"max_steps": 20, "time_s": 900.0} | given)),
        jail=defaults.jail,
        test_command=made.test_command,
        seed=0 if arguments.seed is None else arguments.seed,
        context_is_explicit=arguments.context is not None,
    )


def _write_only(arguments: argparse.Namespace, made: Project) -> int:
    root = Path(arguments.write).resolve()
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UsageError(f"{root} is there already", "Name a folder that is new, or empty.")
    _write({**made.files, "ISSUE.md": made.issue.rstrip("\n") + "\n"}, root)
    if arguments.json:
        print_json({"workspace": str(root), "test_command": made.test_command, "error": None})
    else:
        say(f"A small broken project is in {root}; ISSUE.md says what is wrong, `{made.test_command}` fails.\n")
    return EXIT_OK


def _write(files: Mapping[str, str], root: Path | None = None) -> Path:
    try:
        root = root or Path(tempfile.mkdtemp(prefix="frog-lsp-demo-")).resolve()
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise FrogError(f"the project cannot be written: {error}", "Free space in the temporary folder.") from error
    return root


def _offer(arguments: argparse.Namespace, spec: RunSpec, result: RunResult) -> None:
    if not arguments.yes and not (not arguments.json and confirm(f"Apply these changes to {spec.workspace}?")):
        say(f"Nothing was applied. Later: `frog-lsp apply {spec.run_id}`.\n")
        return
    say(describe_outcome(apply_result(spec, result)))
