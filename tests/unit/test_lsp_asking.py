"""Asking what is to be fixed: nothing waits for ever, and each choice is offered once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsp_server import asking
from lsp_server.fixing import start_fix
from lsp_server.messages import BadParamsError, FixParams
from lsp_server.session import RefusedError
from tests.e2e.lsp_client import to_uri
from tests.unit.test_lsp_runs import Runs, Wire


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


async def fixed(runs: Runs, params: FixParams) -> Any:
    """The record of a run that was asked for, once it is over."""
    record = runs.manager.records[start_fix(runs.session, runs.manager, params)["runId"]]
    assert record.state == "queued"
    assert record.task is not None
    await record.task
    return record


async def test_a_client_that_never_answers_costs_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "ASK_TIMEOUT_S", 0.05)
    wire = Wire(...)
    record = await fixed(Runs(tmp_path, wire=wire), {"uri": to_uri(tmp_path / "a.py")})
    assert (record.state, record.is_asking) == ("cancelled", False)
    assert [m for m, _ in wire.sent if m.startswith("window/showM")] == [
        "window/showMessageRequest",
        "window/showMessage",
    ]


async def test_at_most_five_different_issues_are_offered(tmp_path: Path) -> None:
    wire = Wire(None)
    runs = Runs(tmp_path, wire=wire)
    for n in range(8):
        start_fix(runs.session, runs.manager, {"uri": to_uri(tmp_path / "a.py"), "issue": f"issue {n // 2}\n{n}"})
    for words in ("x" * 200, asking.LOOK, "Wörter", "second\x07", "\n\nlate"):
        start_fix(runs.session, runs.manager, {"uri": to_uri(tmp_path), "issue": words})
    await fixed(runs, {"uri": to_uri(tmp_path / "a.py")})
    (question,) = [params for method, params in wire.sent if method == "window/showMessageRequest"]
    titles = [action["title"] for action in question["actions"]]
    assert titles == ["late", "second\\x07", "Wörter", "x" * 59 + "…", "issue 3", asking.LOOK]
    runs.manager.cancel()


async def test_trust_that_is_lost_meanwhile_ends_the_run(tmp_path: Path) -> None:
    wire = Wire({"title": asking.LOOK})
    runs = Runs(tmp_path, wire=wire)
    uri = to_uri(tmp_path / "a.py")
    started = start_fix(runs.session, runs.manager, {"uri": uri})
    runs.session.distrust = "the workspace is not trusted"
    record = runs.manager.records[started["runId"]]
    assert record.task is not None
    await record.task
    assert record.state == "cancelled"
    assert runs.handles == {}
    assert "the workspace is not trusted" in [params.get("message") for _, params in wire.sent]


async def test_words_alone_are_about_the_one_folder(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    started = start_fix(runs.session, runs.manager, {"issue": "the sum is wrong"})
    record = runs.manager.records[started["runId"]]
    assert record.folder.path == str(tmp_path)
    assert record.spec is not None
    assert record.spec.issue.text == "the sum is wrong"
    runs.manager.cancel()


async def test_words_alone_do_not_say_which_of_several_folders(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    with pytest.raises(BadParamsError, match="uri is missing"):
        start_fix(runs.session, runs.manager, {})
    (tmp_path / "b").mkdir()
    runs.session.change_folders([{"uri": to_uri(tmp_path / "b"), "name": "b"}], [])
    with pytest.raises(BadParamsError, match=r"several folders are open \(.*, b\)"):
        start_fix(runs.session, runs.manager, {"issue": "the sum is wrong"})
    runs.session.set_folders([])
    with pytest.raises(RefusedError, match="no folder is open"):
        start_fix(runs.session, runs.manager, {"issue": "the sum is wrong"})
