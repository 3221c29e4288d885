"""`frog-lsp setup` and `frog-lsp schema`: what an editor's configuration needs."""

from __future__ import annotations

import argparse
import sys
from importlib import resources
from importlib.resources.abc import Traversable

from agent.cli_parser import EXIT_OK, print_json
from agent.errors import UsageError

_EDITORS = "lsp_server.editors"


def add_arguments_setup(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp setup`."""
    parser.add_argument("editor", metavar="EDITOR", help=", ".join(sorted(_snippets())) or "the editor's name")


def run_setup(arguments: argparse.Namespace) -> int:
    """Print the snippet for an editor."""
    snippets = _snippets()
    name = snippets.get(arguments.editor.lower())
    if name is None:
        known = ", ".join(sorted(snippets))
        raise UsageError(f"there is no snippet for {arguments.editor}", f"Known editors: {known}.")
    sys.stdout.write(resources.files(_EDITORS).joinpath(*name.split("/")).read_text("utf-8"))
    return EXIT_OK


def _snippets() -> dict[str, str]:
    """Editor to the path of its snippet below the package: a file, or the one file in a folder of that name."""
    found: dict[str, str] = {}

    def visit(folder: Traversable, prefix: str, editor: str) -> None:
        for entry in sorted(folder.iterdir(), key=lambda item: item.name):
            if entry.name.startswith(("_", ".")):
                continue
            name = editor or entry.name.partition(".")[0]
            if entry.is_dir():
                visit(entry, f"{prefix}{entry.name}/", name)
            elif not entry.name.endswith((".py", ".md")):
                found.setdefault(name, f"{prefix}{entry.name}")

    visit(resources.files(_EDITORS), "", "")
    for alias, name in {"neovim": "nvim", "vscode": "code"}.items():
        if name in found:
            found.setdefault(alias, found[name])
    return found


def add_arguments_schema(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp schema`."""
    parser.add_argument("what", nargs="?", choices=("all", "settings", "result"), default="all")
    parser.add_argument("--json", action="store_true", help="the output is JSON with or without it")


def run_schema(arguments: argparse.Namespace) -> int:
    """Print the JSON schema of the settings, of the result, or of both by name."""
    from agent.result_json import result_schema
    from lsp_server.settings import schema

    schemas = {"settings": schema(), "result": result_schema()}
    print_json(schemas if arguments.what == "all" else schemas[arguments.what])
    return EXIT_OK
