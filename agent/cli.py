"""`frog-lsp fix`: from arguments to a run, its result on stdout, and whether to apply it."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from dataclasses import replace
from typing import Any

from agent.applying import ApplyOutcome, apply_result, describe_outcome
from agent.cli_parser import (
    EXIT_CANCELLED,
    EXIT_ERROR,
    EXIT_OK,
    EXIT_USAGE,
    confirm,
    is_interactive,
    positive_int,
    positive_seconds,
    print_json,
    say,
    write_stdout,
)
from agent.defaults import Defaults, load_defaults
from agent.errors import FrogError, UsageError
from agent.jail.spec import checked_workspace
from agent.run_id import new_run_id
from agent.trajectory import forget_trajectories, read_trajectory
from agent.types import ExitReason, Issue, ModelSpec, RunResult, RunSpec

EXIT_NO_CHANGE = 3
EXIT_CONFLICT = 4
SCRIPTED = "scripted:"

_DIAGNOSTIC = re.compile(r"(?P<file>.+?):(?P<line>\d+):(?P<text>.*)", re.DOTALL)
_MAX_ISSUE_BYTES = 4 << 20
_USAGE_KINDS = frozenset({"usage", "workspace", "context_too_large"})


def add_arguments_fix(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp fix`."""
    parser.add_argument("workspace", metavar="WORKSPACE", help="the folder of the project")
    issue = parser.add_mutually_exclusive_group()
    issue.add_argument("--issue", metavar="TEXT", help="the issue, in English")
    issue.add_argument("--issue-file", metavar="FILE", help="a file with the issue; - is stdin")
    issue.add_argument("--diagnostic", metavar="FILE:LINE:TEXT", help="what a linter or compiler says")
    issue.add_argument("--resume", metavar="FILE", help="go on from a trajectory")
    add_run_arguments(parser)
    parser.add_argument("--seed", metavar="N", type=int, help="the seed of sampling")
    parser.add_argument("--test", metavar="CMD", help="a test command, run in the jail before and after")
    parser.add_argument("--patch", metavar="FILE", help="write the patch to FILE; stdout stays silent")
    parser.add_argument("--apply", action="store_true", help="apply the proposal, without what is flagged")
    parser.add_argument("--apply-flagged", action="store_true", help="apply also what is flagged as running by itself")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, whatever happens")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of everything that runs a model."""
    parser.add_argument("--model", metavar="NAME_OR_PATH", help="a catalog name or a GGUF file")
    parser.add_argument("--endpoint", metavar="URL", help="an OpenAI-compatible server, ending in /v1")
    parser.add_argument("--endpoint-model", metavar="NAME", help="the model's name at the endpoint")
    parser.add_argument("--max-steps", metavar="N", type=positive_int, help="the most steps (150)")
    parser.add_argument("--time-limit", metavar="SECONDS", type=positive_seconds, help="the most seconds (10800)")
    parser.add_argument("--context", metavar="TOKENS", type=positive_int, help="the size of the context")


def run_fix(arguments: argparse.Namespace) -> int:
    """Run `frog-lsp fix`; gives the exit code. Raises FrogError where no run is begun."""
    defaults = load_defaults()
    spec = _spec(arguments, defaults)
    _check_patch_place(arguments.patch)
    forget_trajectories(older_than_days=defaults.keep_days)

    from agent.cli_run import execute, show_diff, summarize
    from agent.cli_show import make_console
    from agent.result_json import no_result_json, result_json

    console = make_console()

    def on_hard_stop() -> None:
        if arguments.json:
            stopped = FrogError("stopped by a second interrupt", "What the run had done is lost.")
            stopped.kind = "cancelled"
            print_json(no_result_json(stopped))

    result = execute(spec, console, on_hard_stop)
    is_written = arguments.patch is None or _write_patch(arguments.patch, result.patch)
    summarize(console, result)
    if result.changes.changes and (arguments.json or arguments.patch or sys.stdout.isatty()):
        show_diff(console, result.changes)
    applied = _apply(arguments, spec, result)
    if arguments.json:
        print_json(result_json(result))
    elif arguments.patch is None and not sys.stdout.isatty():
        write_stdout(result.patch.encode())
    code = exit_code(result, applied)
    return code if is_written or code != EXIT_OK else EXIT_ERROR


def exit_code(result: RunResult, applied: ApplyOutcome | None = None) -> int:
    """The exit code of `fix`, as the interface has it."""
    if result.exit_reason is ExitReason.CANCELLED:
        return EXIT_CANCELLED
    if applied is not None and applied.conflicts:
        return EXIT_CONFLICT
    if applied is not None and applied.failed:
        return EXIT_ERROR
    if result.changes.changes:
        return EXIT_OK
    if result.error is not None and result.error.kind in _USAGE_KINDS:
        return EXIT_USAGE
    return EXIT_NO_CHANGE if result.exit_reason is ExitReason.AGENT and result.error is None else EXIT_ERROR


def _apply(arguments: argparse.Namespace, spec: RunSpec, result: RunResult) -> ApplyOutcome | None:
    """Apply where the command line or the person says so; None where nothing was tried."""
    if not result.changes.changes:
        return None
    if not (arguments.apply or arguments.apply_flagged):
        may_ask = not (arguments.json or arguments.patch) and is_interactive()
        if not may_ask or not confirm(f"Apply these changes to {spec.workspace}?"):
            say(f"Kept. Later: `frog-lsp review {spec.run_id}`, `frog-lsp apply {spec.run_id}`.\n")
            return None
    outcome = apply_result(spec, result, with_flagged=arguments.apply_flagged)
    say(describe_outcome(outcome))
    return outcome


def _spec(arguments: argparse.Namespace, defaults: Defaults) -> RunSpec:
    workspace = checked_workspace(arguments.workspace)
    limits: dict[str, Any] = {
        "max_steps": arguments.max_steps,
        "time_s": arguments.time_limit,
        "context_tokens": arguments.context,
    }
    issue = _issue(arguments)
    test_command = arguments.test
    if test_command is None and arguments.resume is not None:
        test_command = read_trajectory(arguments.resume).header.get("test_command")
    return RunSpec(
        run_id=new_run_id(),
        workspace=workspace,
        issue=issue,
        model=model_of(arguments, defaults.model),
        limits=replace(defaults.limits, **{name: value for name, value in limits.items() if value is not None}),
        jail=defaults.jail,
        test_command=(defaults.test_command if test_command is None else test_command) or None,
        seed=arguments.seed,
        resume_from=arguments.resume,
        prompt_file=defaults.prompt_file,
        context_is_explicit=arguments.context is not None,
    )


def model_of(arguments: argparse.Namespace, default: ModelSpec) -> ModelSpec:
    """Which model the command line asks for. Raises UsageError."""
    if arguments.endpoint is not None and arguments.model is not None:
        raise UsageError("--model and --endpoint exclude each other", "Give one of them.")
    if arguments.endpoint_model is not None and arguments.endpoint is None and default.kind != "endpoint":
        raise UsageError("--endpoint-model needs --endpoint", "Give --endpoint URL too.")
    if arguments.endpoint is not None:
        from agent.model.endpoint_url import normalize_base_url

        normalize_base_url(arguments.endpoint)  # what is no address costs no run
    if arguments.endpoint is not None or (arguments.endpoint_model is not None and default.kind == "endpoint"):
        return ModelSpec(
            kind="endpoint",
            base_url=arguments.endpoint or default.base_url,
            name=arguments.endpoint_model or default.name,
            api_key_env=default.api_key_env,
        )
    if arguments.model is None:
        return default
    if not arguments.model.strip():
        raise UsageError("--model is empty", "Name a model or a GGUF file, or leave it out.")
    if arguments.model.startswith(SCRIPTED):
        return ModelSpec(kind="scripted", path=arguments.model.removeprefix(SCRIPTED))
    return replace(default, kind="worker", path=arguments.model, base_url=None, name=None, api_key_env=None)


def _issue(arguments: argparse.Namespace) -> Issue:
    hint = "Give --issue TEXT, --issue-file FILE, --diagnostic FILE:LINE:TEXT or --resume FILE."
    if arguments.resume is not None:
        return read_trajectory(arguments.resume).issue
    if arguments.issue is not None:
        text = arguments.issue
    elif arguments.issue_file is not None:
        text = _read_issue(arguments.issue_file)
    elif arguments.diagnostic is not None:
        text = issue_of_diagnostic(arguments.diagnostic)
    else:
        raise UsageError("no issue is given", hint)
    if not text.strip():
        raise UsageError("the issue is empty", hint)
    return Issue(text=text)


def _read_issue(path: str) -> str:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_MAX_ISSUE_BYTES + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(_MAX_ISSUE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the issue file {path} cannot be read: {error.strerror}", "Check --issue-file.") from error
    if len(data) > _MAX_ISSUE_BYTES:
        raise UsageError(f"the issue file {path} is longer than 4 MiB", "Describe the issue in fewer words.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"the issue file {path} is not UTF-8", "Save it as UTF-8.") from error


def issue_of_diagnostic(text: str) -> str:
    """The issue for `FILE:LINE:TEXT`. Raises UsageError."""
    match = _DIAGNOSTIC.fullmatch(text)
    if match is None or int(match["line"]) < 1 or not match["text"].strip():
        raise UsageError(
            f"--diagnostic {text!r} is not FILE:LINE:TEXT", "For example app/main.py:12:undefined name 'x'."
        )
    return f"{match['text'].strip()}\n\nThis is reported at line {match['line']} of {match['file']}. Fix its cause."


def _check_patch_place(path: str | None) -> None:
    """A bad place costs no run. Raises UsageError."""
    folder = None if path is None else os.path.dirname(os.path.abspath(path))
    if path is not None and folder is not None and (os.path.isdir(path) or not os.access(folder, os.W_OK)):
        raise UsageError(f"the patch file {path} cannot be written", "Check --patch.")


def _write_patch(path: str, patch: str) -> bool:
    """Whether the whole patch is in the file; half a patch is taken away."""
    try:
        with open(path, "wb") as file:
            file.write(patch.encode())
    except OSError as error:
        say(f"frog-lsp: the patch file {path} cannot be written: {error.strerror}\n")
        if os.path.isfile(path):
            with contextlib.suppress(OSError):
                os.truncate(path, 0)
        return False
    return True
