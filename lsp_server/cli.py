"""The one front door, `frog-lsp`: the language server, and the subcommands of agent and quant, imported when used."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from agent.errors import FrogError

_SERVE_OPTIONS = ("--stdio", "--clientProcessId")  # what clients add on their own


@dataclass(frozen=True, slots=True)
class _Command:
    """A subcommand: `module` has `add_arguments_<name>(parser)` and `run_<name>(arguments) -> exit code`."""

    module: str
    summary: str


_COMMANDS = {
    "fix": _Command("agent.cli", "fix an issue in a workspace and propose a patch"),
    "demo": _Command("quant.demo", "fix a bundled project with the bundled model"),
    "runs": _Command("agent.cli_runs", "list kept proposals and trajectories"),
    "review": _Command("agent.cli_runs", "show the proposal of a run as a numbered diff"),
    "apply": _Command("agent.cli_runs", "apply the proposal of a run"),
    "discard": _Command("agent.cli_runs", "discard the proposal of a run"),
    "replay": _Command("agent.cli_runs", "show a trajectory again"),
    "doctor": _Command("agent.doctor", "say whether a run is possible here, and what is missing"),
    "model": _Command("quant.cli", "pull, choose and check models"),
    "setup": _Command("lsp_server.cli_setup", "print the configuration for an editor"),
    "schema": _Command(
        "lsp_server.cli_setup", "print the JSON schema of the settings and the result; the commands as TypeScript"
    ),
    "tool": _Command("agent.cli_plumbing", "run tool calls from stdin in the jail"),
    "parse": _Command("agent.cli_plumbing", "parse raw output of the model from stdin"),
    "jail": _Command("agent.cli_plumbing", "run a command in the jail"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; without one, the language server on stdio. Returns the exit code."""
    _open_standard_streams()
    code = _main(list(sys.argv[1:] if argv is None else argv))
    if argv is None:  # an interrupt while the interpreter ends would kill it, and take the exit code away
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _main(arguments: list[str]) -> int:
    if _is_serve(arguments):
        return _serve()
    wants_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    from agent.errors import FrogError

    try:
        return _dispatch(arguments)
    except BrokenPipeError:
        from agent.cli_parser import silence_stdout

        silence_stdout()
        return 1
    except KeyboardInterrupt:
        interrupted = FrogError("interrupted")
        interrupted.kind = "cancelled"
        return _fail(arguments, interrupted, 130, wants_json=wants_json)
    except FrogError as error:
        from agent.cli_parser import exit_code_of

        return _fail(arguments, error, exit_code_of(error), wants_json=wants_json)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        internal = FrogError(
            f"internal error: {type(error).__name__}: {error}", "Please report it with the lines above."
        )
        return _fail(arguments, internal, 1, wants_json=wants_json)


def _fail(arguments: list[str], error: FrogError, code: int, *, wants_json: bool) -> int:
    from agent.cli_parser import complain, print_json
    from agent.errors import StdoutError

    if not wants_json or isinstance(error, StdoutError):
        complain(error)
        return code
    from agent.result_json import error_json, no_result_json

    try:
        print_json(no_result_json(error) if arguments[0] in ("fix", "demo") else {"error": error_json(error)})
    except (StdoutError, OSError):
        complain(error)
    return code


def _open_standard_streams() -> None:
    """Where a standard stream is closed it becomes /dev/null, so that no file of ours gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def _is_serve(arguments: list[str]) -> bool:
    rest = arguments[1:] if arguments[:1] == ["serve"] else arguments
    return all(argument.split("=")[0] in _SERVE_OPTIONS for argument in rest)


def _serve() -> int:
    if os.isatty(0):
        sys.stdout.write(_help())
        return 0
    from lsp_server.server import main as serve

    return serve()


def _dispatch(arguments: list[str]) -> int:
    from agent.cli_parser import Parser
    from agent.errors import UsageError

    name = arguments[0]
    if name in ("-h", "--help", "help"):
        sys.stdout.write(_help())
        return 0
    if name == "--version":
        from importlib.metadata import version

        sys.stdout.write(f"frog-lsp {version('frog-lsp')}\n")
        return 0
    command = _COMMANDS.get(name)
    if command is None:
        what = "option" if name.startswith("-") else "command"
        raise UsageError(f"no such {what}: {name}", "See `frog-lsp --help`.")
    module = importlib.import_module(command.module)
    if name == "model":
        parser = Parser(prog="frog-lsp")
        module.add_parsers(parser.add_subparsers(parser_class=Parser))
        return cast("int", module.run(_parse(parser, arguments)))
    parser = Parser(prog=f"frog-lsp {name}", description=f"{command.summary[0].upper()}{command.summary[1:]}.")
    getattr(module, f"add_arguments_{name}")(parser)
    if name == "jail":  # what follows -- is the command's alone
        return cast("int", module.run_jail(parser, arguments[1:]))
    return cast("int", getattr(module, f"run_{name}")(_parse(parser, arguments[1:])))


def _parse(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    return parser.parse_args(arguments)


def _help() -> str:
    width = max(map(len, _COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in _COMMANDS.items())
    return (
        "usage: frog-lsp [serve] | frog-lsp COMMAND [options] | frog-lsp --version\n\n"
        "Fixes an issue in your project, offline, with a small local model in a jail.\n"
        "Without a command it is the language server on stdio: start it from your editor.\n\n"
        f"commands:\n  {'serve':<{width}}  the language server on stdio\n{rows}\n\n"
        "`frog-lsp COMMAND --help` says more. Start with `frog-lsp doctor` and `frog-lsp demo`.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
