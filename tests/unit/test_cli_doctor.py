"""`doctor`: every part is looked at, and 0 means that a run is possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.defaults import defaults_from
from agent.doctor import describe, doctor_json, examine
from agent.model_report import report_model
from agent.types import Limits
from tests.frog import Frog


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE", "CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))


def test_every_part_is_named_and_shown_within_80_columns() -> None:
    findings = examine(defaults_from({}))
    assert [finding.name for finding in findings][:3] == ["python", "engine", "model"]
    assert {"jail", "limits", "folders"} <= {finding.name for finding in findings}
    assert max(map(len, describe(findings).split("\n"))) <= 80 + 40, "a long path may be longer"
    value = doctor_json(findings)
    assert value["ok"] is all(check["status"] != "error" for check in value["checks"])


def test_a_missing_model_makes_a_run_impossible(tmp_path: Path) -> None:
    findings = examine(defaults_from({"model": {"path": str(tmp_path / "none.gguf")}}))
    (model,) = [finding for finding in findings if finding.name == "model"]
    assert model.status == "error"
    assert model.hint
    assert "not possible" in describe(findings)


def test_an_endpoint_elsewhere_without_consent_is_an_error_and_is_not_asked() -> None:
    settings = {"model": {"kind": "endpoint", "baseUrl": "https://models.example.com/v1"}}
    findings = examine(defaults_from(settings))
    (endpoint,) = [finding for finding in findings if finding.name == "endpoint"]
    assert endpoint.status == "error"
    assert "agreed" in endpoint.message
    assert all(finding.name != "model" for finding in findings)


def test_the_bundled_model_is_called_what_it_is() -> None:
    report = report_model("tadpole", Limits())
    assert "demonstration model" in report.file
    assert "model pull" in report.hint
    assert "qwen35" in report.file


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    frog = Frog(home)
    answer = frog("doctor", "--json")
    assert answer.code == (0 if answer.json["ok"] else 1)
    assert answer.json["error"] is None
    assert frog("doctor").code == answer.code


def test_settings_that_cannot_be_read_are_a_usage_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    frog = Frog(home)
    (home / "config" / "frog-lsp").mkdir(parents=True)
    (home / "config" / "frog-lsp" / "config.json").write_text("[1]")
    answer = frog("doctor", "--json")
    assert answer.code == 2
    assert answer.json["error"]["kind"] == "usage"
