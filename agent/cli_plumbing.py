"""`frog-lsp tool`, `parse` and `jail`: the tools, the parser and the jail by themselves, for pipes and tests."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import get_args

from agent.cli_parser import EXIT_OK, print_json, say
from agent.errors import FrogError, UsageError
from agent.types import JailBackend
from agent.visible import visible

EXIT_NOT_JAILED = 125
_MAX_TURN_BYTES = 64 << 20


def add_arguments_tool(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp tool`."""
    parser.add_argument("--workspace", metavar="W", required=True, help="the folder of the project")
    parser.add_argument("--backend", choices=get_args(JailBackend), help="the jail's backend")


def run_tool(arguments: argparse.Namespace) -> int:
    """One JSON object a line in, one a line out; at the end `{"changes", "patch"}`."""
    from agent.defaults import load_defaults
    from agent.jail.spec import JailSpec
    from agent.tool_lines import serve_tool_lines

    jail = load_defaults().jail
    spec = JailSpec(workspace=arguments.workspace, read_only_paths=jail.read_only_paths, python=jail.python)

    def on_note(text: str) -> None:
        say(f"frog-lsp: {visible(text)}\n")

    serve = serve_tool_lines(
        spec, sys.stdin.buffer, sys.stdout.buffer, backend=arguments.backend or jail.backend, on_note=on_note
    )
    return asyncio.run(serve)


def add_arguments_parse(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp parse`."""
    parser.add_argument("--finish", choices=("stop", "length"), default="stop", help="why the generation ended")
    parser.add_argument("--json", action="store_true", help="the output is JSON with or without it")


def run_parse(arguments: argparse.Namespace) -> int:
    """Raw output of the model on stdin, the parsed turn as JSON on stdout."""
    from agent.model.tool_calls import parse_command

    data = sys.stdin.buffer.read(_MAX_TURN_BYTES + 1)
    if len(data) > _MAX_TURN_BYTES:
        raise UsageError("the turn is longer than 64 MiB", "No model writes that.")
    print_json(parse_command(data, arguments.finish))
    return EXIT_OK


def add_arguments_jail(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp jail` before the `--`."""
    parser.usage = (
        "frog-lsp jail WORKSPACE [--backend B] [--read-only PATH]... [--limit NAME=VALUE]... -- ARGV...\n"
        "       frog-lsp jail --allow-reduced | --forbid-reduced"
    )
    parser.add_argument("workspace", metavar="WORKSPACE", nargs="?", help="what is writable, as a private copy")
    parser.add_argument("--backend", default="auto", help="auto, namespaces, bwrap or landlock")
    parser.add_argument("--read-only", metavar="PATH", action="append", default=[], help="a path that is visible too")
    parser.add_argument("--limit", metavar="NAME=VALUE", action="append", default=[], help="for example cpu_s=60")
    consent = parser.add_mutually_exclusive_group()
    consent.add_argument(
        "--allow-reduced", action="store_true", help="agree to run commands in the reduced jail `landlock`, from now on"
    )
    consent.add_argument("--forbid-reduced", action="store_true", help="withdraw that")


def run_jail(parser: argparse.ArgumentParser, words: list[str]) -> int:
    """Run one command in the jail; the exit code is the command's, 128+n, 124, or 125 where nothing ran."""
    from agent.jail.command import open_standard_streams, run_command
    from agent.jail.spec import JailSpec, parse_limits

    open_standard_streams()
    before, argv = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    try:
        arguments = parser.parse_args(before)
        if arguments.allow_reduced or arguments.forbid_reduced:
            return _keep_consent(parser, arguments, argv)
        if arguments.workspace is None:
            parser.error("the following arguments are required: WORKSPACE")
        if not argv or not argv[0]:
            raise UsageError("no command is given", "Put it after --, for example `frog-lsp jail . -- ls`.")
        spec = JailSpec(
            workspace=arguments.workspace,
            read_only_paths=tuple(arguments.read_only),
            limits=parse_limits(arguments.limit),
        )
        return asyncio.run(run_command(spec, argv, arguments.backend))
    except FrogError as error:
        hint = f"frog-lsp: jail: {visible(error.hint)}\n" if error.hint else ""
        say(f"frog-lsp: jail: {visible(error.message)}\n{hint}")
        return EXIT_NOT_JAILED


def _keep_consent(parser: argparse.ArgumentParser, arguments: argparse.Namespace, argv: list[str]) -> int:
    """Store or withdraw the consent to the reduced jail. It is for good, so it goes with no command."""
    from agent.jail.landlock import REDUCED
    from agent.jail.landlock_consent import consent_path, store_consent, withdraw_consent

    if arguments.workspace is not None or argv:
        parser.error("--allow-reduced and --forbid-reduced stand alone: they hold for all workspaces")
    if arguments.allow_reduced:
        store_consent()
        say(f"Commands may run in the reduced jail `landlock` from now on: {REDUCED}.\nKept in {consent_path()}.\n")
    else:
        was_there = withdraw_consent()
        say(f"{'Withdrawn' if was_there else 'There was no consent'}: no command runs in the reduced jail.\n")
    return EXIT_OK
