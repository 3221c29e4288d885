"""`frog-lsp demo --write`: the sample that an editor opens."""

from __future__ import annotations

import subprocess
from pathlib import Path

from quant.tadpole.generator import demo_project
from tests.frog import Frog


def test_the_project_is_written_and_nothing_is_run(tmp_path: Path) -> None:
    frog = Frog(tmp_path)
    folder = tmp_path / "new" / "sample"
    answer = frog("demo", "--write", folder, "--json")
    assert (answer.code, answer.err) == (0, "")
    made = demo_project()
    assert answer.json == {"workspace": str(folder), "test_command": made.test_command, "error": None}
    files = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert files == {**made.files, "ISSUE.md": made.issue.rstrip("\n") + "\n"}
    assert subprocess.run(made.test_command, shell=True, cwd=folder, capture_output=True, timeout=60).returncode != 0
    again = frog("demo", "--write", folder, "--json")
    assert (again.code, again.json["error"]["message"]) == (2, f"{folder} is there already")
