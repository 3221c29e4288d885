"""The snippets of `frog-lsp setup`: which file is whose, and how each language writes the program to start.

The files in `editors/` are whole and name `frog-lsp`; where PATH does not lead there, that name alone is replaced.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

from agent.errors import UsageError

PROGRAM = "frog-lsp"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A file of `editors/`. `place` is the text around the program in it, `quote` writes a string of its language."""

    file: str
    place: tuple[str, str]
    quote: Callable[[str], str]

    def text(self, program: str) -> str:
        """The snippet that starts `program`. Raises UsageError for a path that no configuration can hold."""
        if not program.isprintable():
            raise UsageError(
                f"the path of frog-lsp has characters that a configuration cannot hold: {program!r}",
                "Put a link to it in a folder of PATH, under the name frog-lsp.",
            )
        before, after = self.place
        known, wanted = (f"{before}{self.quote(name)}{after}" for name in (PROGRAM, program))
        text = resources.files("lsp_server.editors").joinpath(*self.file.split("/")).read_text("utf-8")
        assert text.count(known) == 1, f"{self.file} does not name the program once"
        return text.replace(known, wanted)


def _double_quoted(text: str) -> str:
    """A string of JSON, and of TOML."""
    return json.dumps(text, ensure_ascii=False)


def _elisp(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _lua(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _vim_script(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_NEOVIM = Snippet("nvim/lsp/frog.lua", ("cmd = { ", " }"), _lua)
SNIPPETS = {
    "emacs": Snippet("emacs.el", ("(cons mode (list ", ""), _elisp),
    "helix": Snippet("helix.toml", ("\ncommand = ", "\n"), _double_quoted),
    "neovim": _NEOVIM,
    "nvim": _NEOVIM,
    "sublime": Snippet("sublime.json", ('"command": [', "]"), _double_quoted),
    "vim": Snippet("vim.vim", ("\nlet s:frog = ", "\n"), _vim_script),
    "vscode": Snippet("vscode.json", ('"frog.path": [', "]"), _double_quoted),
    "zed": Snippet("zed.json", ('"path": ', ","), _double_quoted),
}


def program_to_start() -> str:
    """`frog-lsp` where PATH leads to the program that runs now, else its absolute path.

    Raises UsageError where Python runs our code without any such program.
    """
    own = os.path.abspath(sys.argv[0])
    if os.path.basename(own) != PROGRAM:  # `python -m lsp_server.cli`
        own = os.path.join(os.path.dirname(sys.executable), PROGRAM)
    found = shutil.which(PROGRAM)
    if found is not None and (not os.access(own, os.X_OK) or os.path.realpath(found) == os.path.realpath(own)):
        return PROGRAM
    if not os.access(own, os.X_OK):
        raise UsageError(f"there is no program {own} for an editor to start", "Install frog-lsp with `make setup`.")
    return own
