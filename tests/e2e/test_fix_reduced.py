"""`frog-lsp fix` in the reduced jail `landlock`, chosen in the settings: with consent, without, and withdrawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Seal, skip_or_fail
from tests.e2e.test_fix_cli import END, FIX, bash, frog, project, script
from tests.frog import Frog

__all__ = ["frog", "project"]

pytestmark = [pytest.mark.jail, pytest.mark.slow]

UNAVAILABLE = "PermissionError: Bash is not available: commands cannot be jailed on this machine"


@pytest.fixture(autouse=True)
def chosen(frog: Frog) -> None:
    from agent.jail.probe import probe_landlock

    outcome = probe_landlock()
    if not outcome.usable:
        skip_or_fail(f"jail `landlock` cannot be had here: {outcome.reason}")
    settings = frog.home / "config" / "frog-lsp" / "config.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"jail": {"backend": "landlock"}}')


def test_with_consent_commands_run_and_each_place_says_that_it_is_reduced(
    frog: Frog, project: Path, sealed: Seal
) -> None:
    sealed(project)
    assert frog("jail", "--allow-reduced").code == 0
    model = script(frog, [FIX, bash(f"cat a.py; cat {project}/a.py; pwd"), bash("echo again")], END)
    answer = frog("fix", project, "--issue", "x must be 2", "--model", model, "--test", "grep -q 2 a.py", "--json")
    value = answer.json
    assert answer.code == 0, answer
    assert value["jail"]["backend"] == "landlock"
    assert "another path" in value["jail"]["reduced"]
    assert any(note.startswith("The jail is reduced: ") for note in value["notes"])
    assert (value["tests"]["before"]["exit_code"], value["tests"]["after"]["exit_code"]) == (1, 0)
    assert value["changes"] == [{"path": "a.py", "kind": "modified", "flags": [], "applied_by_default": True}]
    said = Path(value["trajectory"]).read_text()
    assert said.count(f"[Commands run in a copy of {project} at ") == 1, "once, for the model"
    assert "Permission denied" in said


def test_without_consent_the_file_tools_work_and_bash_says_one_sentence(
    frog: Frog, project: Path, sealed: Seal
) -> None:
    sealed(project)
    for _ in range(2):  # the second time after it was given and withdrawn
        model = script(frog, [FIX, bash("touch ran"), bash("echo x > ran")], END)
        answer = frog("fix", project, "--issue", "x must be 2", "--model", model, "--test", "grep -q 2 a.py", "--json")
        value = answer.json
        assert answer.code == 0, answer
        assert value["jail"]["backend"] == "landlock"
        assert "frog-lsp jail --allow-reduced" in value["jail"]["reduced"]
        assert [change["path"] for change in value["changes"]] == ["a.py"]
        assert value["tests"]["before"] is None
        assert Path(value["trajectory"]).read_text().count(UNAVAILABLE) == 2
        assert frog("jail", "--allow-reduced").code == 0
        assert frog("jail", "--forbid-reduced").code == 0
