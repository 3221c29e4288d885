"""What `frog-lsp setup` prints: each snippet read by its own language's reader, whatever the path of the program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.errors import UsageError
from lsp_server.snippets import PROGRAM, SNIPPETS, program_to_start
from tests.conftest import skip_or_fail

ROOT = Path(__file__).parents[2]
FROG = ROOT / ".venv/bin/frog-lsp"
PATHS = [PROGRAM, "/opt/frog/bin/frog-lsp", "/opt/a fr'og's \"bin\"/back\\slash/é🐸/%s $HOME/frog-lsp"]


def run(editor: str | Path, *command: str | Path) -> str:
    """The standard output of an editor, run without any configuration or plug-in."""
    if shutil.which(editor) is None:
        skip_or_fail(f"{editor} is not installed: run `make editors`")
    done = subprocess.run([editor, *command], capture_output=True, timeout=60, check=True, stdin=subprocess.DEVNULL)
    return done.stdout.decode()


def without_comments(text: str) -> str:
    return re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)


def in_helix(file: Path) -> str:
    made = tomllib.loads(file.read_text())
    assert made["language"][0]["language-servers"][-1] == "frog"
    return str(made["language-server"]["frog"]["command"])


def in_sublime(file: Path) -> str:
    (program,) = json.loads(without_comments(file.read_text()))["clients"]["frog"]["command"]
    return str(program)


def in_vscode(file: Path) -> str:
    (program,) = json.loads(without_comments(file.read_text()))["frog.path"]
    return str(program)


def in_zed(file: Path) -> str:
    return str(json.loads(without_comments(file.read_text()))["lsp"]["frog"]["binary"]["path"])


def in_neovim(file: Path) -> str:
    script = file.with_suffix(".print.lua")
    script.write_text("local config = dofile(arg[1])\nassert(#config.cmd == 1)\nio.stdout:write(config.cmd[1])\n")
    return run(ROOT / "build/editors/venv/bin/nvim", "--clean", "--headless", "-l", script, file)


def in_emacs(file: Path) -> str:
    look = (
        f"(with-temp-buffer (insert-file-contents {json.dumps(str(file))}) (emacs-lisp-mode) (check-parens)"
        ' (goto-char (point-min)) (search-forward "(cons mode (list ") (princ (read (current-buffer))))'
    )
    return run("emacs", "--batch", "-Q", "--eval", look)


def in_vim(file: Path) -> str:
    answer = file.with_suffix(".answer")
    lines = file.read_text().splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("let s:frog = ")]
    script = file.with_suffix(".print.vim")
    script.write_text(f"{lines[at]}\ncall writefile([s:frog], {str(answer)!r}, 'b')\nqall!\n")
    run("vim", "-N", "-u", "NONE", "-i", "NONE", "-e", "-s", "-S", script)
    return answer.read_text()


READERS: dict[str, Callable[[Path], str]] = {
    "helix": in_helix,
    "sublime": in_sublime,
    "vscode": in_vscode,
    "zed": in_zed,
    "neovim": in_neovim,
    "emacs": in_emacs,
    "vim": in_vim,
}


@pytest.mark.parametrize("program", PATHS)
@pytest.mark.parametrize("editor", READERS)
def test_the_reader_of_the_language_finds_the_program(editor: str, program: str, tmp_path: Path) -> None:
    file = tmp_path / Path(SNIPPETS[editor].file).name
    file.write_text(SNIPPETS[editor].text(program))
    assert READERS[editor](file) == program


def test_every_editor_is_read() -> None:
    assert {*READERS, "nvim"} == set(SNIPPETS)


@pytest.mark.parametrize("editor", SNIPPETS)
def test_the_top_says_where_it_goes_and_what_was_tested(editor: str) -> None:
    text = SNIPPETS[editor].text(PROGRAM)
    mark = re.match(r'--|;;|//|#|"', text)
    assert mark is not None
    top = ""
    for line in text.splitlines():
        if line and not line.startswith(mark.group()):
            break
        top += line
    assert re.search(r"Add to|Save as|add this to", top)
    assert re.search(r"Run in \w+ \d|Tested with the capabilities that|Not run in \w+", top)


@pytest.mark.parametrize("program", ["/opt/new\nline/frog-lsp", "/opt/\udcff/frog-lsp"])
def test_a_path_that_no_configuration_can_hold_is_refused(program: str) -> None:
    for snippet in SNIPPETS.values():
        with pytest.raises(UsageError) as error:
            snippet.text(program)
        assert "folder of PATH" in error.value.hint


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Another program of that name."""
    other = tmp_path / "bin" / PROGRAM
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    return other


def test_the_name_alone_only_where_path_leads_to_this_program(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("PATH", "/nowhere")
    assert program_to_start() == str(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert program_to_start() == PROGRAM
    link = tmp_path / "links" / PROGRAM
    link.parent.mkdir()
    link.symlink_to(program)
    monkeypatch.setenv("PATH", str(link.parent))
    assert program_to_start() == PROGRAM
    monkeypatch.setattr(sys, "argv", [str(link)])
    monkeypatch.setenv("PATH", "/nowhere")
    assert program_to_start() == str(link), "a link that a person made stays where the version behind it changes"


def test_a_program_that_another_one_hides_is_named_by_its_path(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(sys, "argv", ["/somewhere/lsp_server/cli.py", "setup", "vim"])
    assert program_to_start() == str(Path(sys.executable).parent / PROGRAM)


def test_no_program_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "cli.py")])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError):
        program_to_start()


def test_the_real_program_names_itself_in_a_file_that_can_be_redirected() -> None:
    env = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([FROG, "setup", "helix"], capture_output=True, env=env, timeout=60, check=True)
    assert tomllib.loads(done.stdout.decode())["language-server"]["frog"]["command"] == str(FROG)
    assert done.stderr == b""


def test_an_unknown_editor_gets_a_suggestion() -> None:
    done = subprocess.run([FROG, "setup", "neovmi"], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"there is no snippet for neovmi (did you mean neovim?)" in done.stderr
