"""`frog-lsp setup` and `frog-lsp schema`: what an editor's configuration needs."""

from __future__ import annotations

import argparse
import difflib

from agent.cli_parser import EXIT_OK, print_json, write_stdout
from agent.errors import UsageError
from lsp_server.snippets import SNIPPETS, program_to_start


def add_arguments_setup(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp setup`."""
    parser.add_argument("editor", metavar="EDITOR", help=", ".join(SNIPPETS))


def run_setup(arguments: argparse.Namespace) -> int:
    """Print the snippet for an editor; the comment at its top says where it goes."""
    name = arguments.editor.lower()
    if name not in SNIPPETS:
        close = difflib.get_close_matches(name, SNIPPETS, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        known = ", ".join(SNIPPETS)
        raise UsageError(f"there is no snippet for {arguments.editor}{hint}", f"Known editors: {known}.")
    write_stdout(SNIPPETS[name].text(program_to_start()).encode())
    return EXIT_OK


def add_arguments_schema(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp schema`."""
    parser.add_argument("what", nargs="?", choices=("all", "settings", "result", "protocol"), default="all")
    parser.add_argument("--json", action="store_true", help="the output is JSON with or without it")


def run_schema(arguments: argparse.Namespace) -> int:
    """Print the JSON schema of the settings, of the result, or of both by name; the commands' types as TypeScript."""
    from agent.result_json import result_schema
    from lsp_server.protocol_ts import typescript
    from lsp_server.settings import schema

    if arguments.what == "protocol":
        write_stdout(typescript().encode())
        return EXIT_OK
    schemas = {"settings": schema(), "result": result_schema()}
    print_json(schemas if arguments.what == "all" else schemas[arguments.what])
    return EXIT_OK
