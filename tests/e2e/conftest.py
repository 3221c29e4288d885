"""What the browser tests of the extension share: one VS Code for all windows of a module, and a project."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quant.tadpole.generator import demo_project
from tests.conftest import skip_or_fail
from tests.e2e.real_editors import ROOT, require_editor
from tests.editors.install import CHROMIUM, VSCODE

if TYPE_CHECKING:
    from tests.e2e.vscode_workbench import VsCode

EXTENSION = ROOT / "dist" / "frog-lsp.vsix"


@pytest.fixture(scope="module")
def vscode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VsCode]:
    """VS Code with our extension. pip finds what lies in `wheels`, and the tests' own Python is the newest."""
    require_editor(VSCODE, CHROMIUM)
    if not EXTENSION.exists():
        skip_or_fail("the extension is not packaged: run `make vscode`")
    from tests.e2e.vscode_workbench import vs_code

    room = tmp_path_factory.mktemp("vscode")
    python = room / "bin" / "python3.13"  # the first that is looked for; compiled dependencies fit no other
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{getattr(sys, "_base_executable", sys.executable)}" "$@"\n')
    python.chmod(0o755)
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(room / "wheels"), "PIP_NO_DEPS": "1"}
    with vs_code(room, EXTENSION, python.parent, **offline) as found:
        yield found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The demonstration project, broken."""
    folder = tmp_path / "depot-project"
    for name, text in demo_project().files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
