"""Scenario folders through the real `frog-lsp fix --apply`: the whole tree afterwards is the expected one.

A scenario is `input/`, `script.json` (the turns), `expected/` and `expect.json`: `issue`, `code`, `exit_reason`, and
any of `changes` (the keys given are compared), `kinds`, `n_generated`, `error`.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.frog import Frog

SCENARIOS = Path(__file__).parent.parent / "scenarios"

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]


def tree(root: Path) -> dict[str, tuple[str, bytes | str]]:
    """Every path below a folder, without empty folders: kind with executable bit, and content."""
    found: dict[str, tuple[str, bytes | str]] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            relative = path.relative_to(root).as_posix()
            if path.is_symlink():
                found[relative] = ("link", os.readlink(path))
            else:
                kind = "program" if os.stat(path).st_mode & 0o100 else "file"
                found[relative] = (kind, path.read_bytes())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted(path.name for path in SCENARIOS.glob("fix_*")))
def test_scenario(tmp_path: Path, scenario: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    workspace = tmp_path / "workspace"
    shutil.copytree(SCENARIOS / scenario / "input", workspace, symlinks=True)
    expect = json.loads((SCENARIOS / scenario / "expect.json").read_text("utf-8"))
    script = SCENARIOS / scenario / "script.json"
    answer = Frog(home)(
        "fix", workspace, "--issue", expect["issue"], "--model", f"scripted:{script}", "--apply", "--json"
    )
    result = answer.json
    assert (answer.code, result["exit_reason"]) == (expect["code"], expect["exit_reason"]), answer.err
    assert tree(workspace) == tree(SCENARIOS / scenario / "expected")
    if "changes" in expect:
        assert [change["path"] for change in result["changes"]] == [change["path"] for change in expect["changes"]]
        for change, wanted in zip(result["changes"], expect["changes"], strict=True):
            assert wanted.items() <= change.items()
    if "kinds" in expect:
        assert {change["path"]: change["kind"] for change in result["changes"]} == expect["kinds"]
    assert bool(result["patch"]) is bool(result["changes"])
    assert not expect.get("n_generated") or result["n_generated"] > 0
    assert (result["error"] or {}).get("kind") == expect.get("error")
