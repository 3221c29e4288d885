"""Several folders: whose document it is, whose turn it is, and what becomes of runs when folders come, go and move."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.types import ChangeSet, ExitReason, ToolCall, ToolStarted
from lsp_server.session import Folder, RefusedError
from tests.e2e.lsp_client import to_uri
from tests.unit.test_lsp_runs import CHANGE, Runs, Wire, settle


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    for name in ("repo", "repo-2", "repo/nested", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("repo")
    return tmp_path


# --- whose document it is -----------------------------------------------------------------------------------------


def test_the_innermost_folder_and_no_prefix_twin(ws: Path) -> None:
    session = Runs(*(ws / n for n in ("repo", "repo-2", "repo/nested"))).session
    for path, folder, relative in [
        ("repo/a.py", "repo", "a.py"),
        ("repo-2/a.py", "repo-2", "a.py"),
        ("repo/nested/a.py", "repo/nested", "a.py"),
        ("repo/nested-2/a.py", "repo", "nested-2/a.py"),
        ("repo/nested", "repo/nested", ""),
    ]:
        found = session.place_of(to_uri(ws / path))
        assert (found.folder.path, found.relative) == (str(ws / folder), relative), path


@pytest.mark.parametrize("outside", ["other/a.py", "repo-3/a.py", "a.py", "repo/../other/a.py", "."])
def test_outside_of_all_folders_is_refused(ws: Path, outside: str) -> None:
    session = Runs(ws / "repo", ws / "repo-2").session
    with pytest.raises(RefusedError, match="outside the folders"):
        session.place_of(to_uri(ws) + "/" + outside)


def test_a_folder_through_a_link(ws: Path) -> None:
    through_link = Runs(ws / "link").session
    (folder,) = through_link.folders
    for path in ("link", "repo"):
        assert through_link.place_of(to_uri(ws / path)).relative == ""
        assert through_link.place_of(to_uri(ws / path / "a.py")).relative == "a.py"
        assert through_link.place_of(to_uri(ws / path / "a.py")).folder == folder
    both = Runs(ws / "link", ws / "repo").session
    for path in ("link", "repo"):
        assert both.place_of(to_uri(ws / path / "a.py")).folder.path == str(ws / path), "as it was spelled"


def test_the_same_folder_twice_is_one(ws: Path) -> None:
    session = Runs(ws / "repo", ws / "repo").session
    session.change_folders([{"uri": to_uri(ws) + "/r%65po/", "name": "again"}], [])
    assert [folder.path for folder in session.folders] == [str(ws / "repo")]
    assert [f.path for f in session.change_folders([], [{"uri": to_uri(ws / "repo"), "name": "x"}])] == [
        str(ws / "repo")
    ]
    assert session.folders == []


def test_an_event_that_removes_and_adds_a_folder_keeps_it(ws: Path) -> None:
    session = Runs(ws / "repo").session
    both = [{"uri": to_uri(ws / "repo"), "name": "renamed"}]
    assert session.change_folders(both, both) == []
    assert [folder.name for folder in session.folders] == ["renamed"]


def test_the_run_of_an_outer_folder_sees_the_unsaved_text_of_inner_ones(ws: Path) -> None:
    session = Runs(*(ws / n for n in ("repo", "repo/nested", "repo-2"))).session
    outer, inner, twin = session.folders
    for name in ("repo/a.py", "repo/nested/b.py", "repo-2/c.py", "other/d.py"):
        session.buffers.open(to_uri(ws / name), "python", 1, name)
    assert session.snapshot_buffers(outer)[0] == {"a.py": b"repo/a.py", "nested/b.py": b"repo/nested/b.py"}
    assert session.snapshot_buffers(inner)[0] == {"b.py": b"repo/nested/b.py"}
    assert session.snapshot_buffers(twin)[0] == {"c.py": b"repo-2/c.py"}


# --- whose turn it is ---------------------------------------------------------------------------------------------


async def test_first_come_first_served_over_all_folders(ws: Path) -> None:
    runs = Runs(ws / "repo", ws / "repo-2", ws / "other")
    came = [("a", 0), ("b", 0), ("c", 1), ("d", 2), ("e", 1)]
    assert [runs.start(name, folder, "worker") for name, folder in came] == [0, 1, 2, 3, 4]
    began: list[str] = []
    for name, _ in came:
        await settle()
        assert [record.run_id for record in runs.manager.records.values() if record.state == "running"] == [name]
        places = [row["place"] for record in runs.manager.records.values() if "place" in (row := record.row())]
        assert places == list(range(1, len(came) - len(began)))
        began.append(name)
        runs.handles[name].finish()
    await settle()
    shown = [p["value"].get("message") for m, p in runs.wire.sent if m == "$/progress" and p["token"] == "frog-run-e"]
    assert shown == [
        "queued, place 4",
        "queued, place 3",
        "queued, place 2",
        "queued, place 1",
        "starting",
        "ended without a change",
    ]
    assert all("place" not in record.row() for record in runs.manager.records.values())


async def test_a_queued_run_that_is_cancelled_lets_the_others_move_up(ws: Path) -> None:
    runs = Runs(ws / "repo", ws / "repo-2")
    for name, folder in [("a", 0), ("b", 1), ("c", 0)]:
        runs.start(name, folder, "worker")
    await settle()
    runs.manager.cancel("b")
    await settle()
    assert runs.states == ["running", "cancelled", "queued"]
    assert runs.manager.records["c"].row()["place"] == 1
    await runs.manager.close(1.0)


async def test_one_run_a_folder_also_where_it_is_open_through_a_link(ws: Path) -> None:
    runs = Runs(ws / "repo", ws / "link", ws / "repo-2", ws / "repo" / "nested")
    assert [runs.start(name, at, "endpoint") for at, name in enumerate("abcd")] == [0, 1, 0, 0]
    await settle()
    assert runs.states == ["running", "queued", "running", "running"]
    await runs.manager.close(1.0)


async def test_nothing_starts_while_the_connection_ends(ws: Path) -> None:
    runs = Runs(ws / "repo")
    await runs.manager.close(1.0)
    with pytest.raises(RefusedError, match="shutting down"):
        runs.start("a")


# --- folders come, go and move ------------------------------------------------------------------------------------


async def test_the_runs_of_a_removed_folder_are_cancelled_and_no_others(ws: Path) -> None:
    runs = Runs(ws / "repo", ws / "repo-2", ws / "repo" / "nested")
    for name, folder in [("done", 0), ("running", 0), ("queued", 0), ("twin", 1), ("nested", 2)]:
        runs.start(name, folder, "endpoint")
        await settle()
        if name == "done":
            runs.handles[name].finish(changes=ChangeSet(changes=(CHANGE,)))
            await settle()
    (gone,) = runs.session.change_folders([], [{"uri": to_uri(ws / "repo"), "name": "repo"}])
    assert runs.manager.leave(gone) == ["running", "queued"]
    await settle()
    assert {record.run_id: record.state for record in runs.manager.records.values()} == {
        "running": "cancelled",
        "queued": "cancelled",
        "twin": "running",
        "nested": "running",
    }
    last = [p["value"] for m, p in runs.wire.sent if m == "$/progress" and p["token"] == "frog-run-running"][-1]
    assert last == {"kind": "end", "message": "cancelled: its folder was removed from the workspace"}
    await runs.manager.close(1.0)


async def test_a_proposal_that_is_being_applied_stays_until_that_is_done(ws: Path) -> None:
    runs = Runs(ws / "repo")
    runs.start("a")
    await settle()
    runs.handles["a"].finish(changes=ChangeSet(changes=(CHANGE,)))
    await settle()
    (folder,) = runs.session.folders
    async with runs.manager.records["a"].lock:
        assert runs.manager.leave(folder) == []
        assert list(runs.manager.records) == ["a"]
    runs.manager.leave(folder)
    assert list(runs.manager.records) == []


async def test_runs_and_proposals_follow_renames(ws: Path) -> None:
    runs = Runs(ws / "repo", ws / "repo-2")
    for name, folder in [("proposed", 0), ("running", 0), ("twin", 1)]:
        runs.start(name, folder)
        await settle()
        if name == "proposed":
            runs.handles[name].finish(changes=ChangeSet(changes=(CHANGE,)))
            await settle()
    records = runs.manager.records
    followed = runs.manager.follow_rename(str(ws / "repo" / "pkg"), str(ws / "repo" / "lib"))
    assert [record.run_id for record in followed] == ["proposed"], "only what is kept is kept anew"
    assert records["proposed"].path_now("pkg/x.py") == "lib/x.py"
    assert records["running"].path_now("pkg/x.py") == "lib/x.py"
    assert records["twin"].renames.pairs == ()
    runs.handles["running"].finish(changes=ChangeSet(changes=(CHANGE,)))
    await settle()
    proposal = records["running"].proposal
    assert proposal is not None
    assert proposal.renames == (("pkg", "lib"),), "what was renamed during the run is kept with its proposal"
    assert records["running"].path_now("pkg/x.py") == "lib/x.py"
    runs.manager.follow_rename(str(ws / "repo" / "lib" / "x.py"), str(ws / "repo-2" / "x.py"))
    runs.manager.follow_rename(str(ws / "repo-2" / "x.py"), str(ws / "repo" / "y.py"))
    assert records["proposed"].path_now("pkg/x.py") == "y.py"
    await runs.manager.close(1.0)


async def test_a_workspace_folder_that_is_renamed(ws: Path) -> None:
    runs = Runs(ws / "repo", ws / "repo-2")
    for name, folder in [("proposed", 0), ("running", 0), ("queued", 0), ("twin", 1)]:
        runs.start(name, folder)
        await settle()
        if name == "proposed":
            runs.handles[name].finish(changes=ChangeSet(changes=(CHANGE,)))
            await settle()
    records = runs.manager.records
    records["proposed"].renames = records["proposed"].renames.then("m.py", "b.py")
    paths = runs.session.follow_rename(to_uri(ws / "repo"), to_uri(ws / "new name"))
    assert paths is not None
    assert [record.run_id for record in runs.manager.follow_rename(*paths)] == ["proposed"]
    await settle()
    assert [record.state for record in records.values()] == ["proposed", "cancelled", "running", "running"]
    assert records["running"].cancelled_because == "its folder was renamed"
    new = Folder(to_uri(ws / "new name"), str(ws / "new name"), "w")  # the name is the client's
    assert records["proposed"].folder == new
    proposal = records["proposed"].proposal
    assert proposal is not None
    assert (proposal.workspace, proposal.folder) == (new.path, new.uri)
    assert records["proposed"].path_now("m.py") == "b.py", "names are relative to the folder"
    assert runs.handles["queued"].spec.workspace == new.path, "what had not begun begins there"
    assert records["twin"].folder.path == str(ws / "repo-2")
    await runs.manager.close(1.0)


async def test_the_files_that_tools_name_are_known(ws: Path) -> None:
    runs = Runs(ws / "repo")
    told: list[frozenset[str]] = []
    runs.start("a")
    await settle()
    record = runs.manager.records["a"]
    runs.manager.on_changed.append(lambda: told.append(frozenset(record.touched)))
    for name in ("a.py", str(ws / "repo" / "b.py"), "./a.py", "../out.py", "/etc/passwd", "x\0y", 5, None, "."):
        call = ToolCall(name="Read", arguments={"file_path": name})
        runs.handles["a"].on_event(ToolStarted(step=1, call=call))
    assert record.touched == {"a.py", "b.py"}
    assert told == [{"a.py"}, {"a.py", "b.py"}], "told once each"
    runs.handles["a"].finish()
    await settle()


# --- progress of a queue ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [None, RuntimeError("no"), Ellipsis])
@pytest.mark.parametrize("how", ["finish", "cancel", "cancel-queued", "break"])
async def test_each_begin_has_one_end(ws: Path, answer: object, how: str) -> None:
    runs = Runs(ws / "repo", wire=Wire(answer))
    runs.start("a")
    runs.start("b")
    await settle()
    if how == "finish":
        runs.handles["a"].finish()
    elif how == "break":
        runs.handles["a"].end.set_exception(RuntimeError("broken"))
    elif how == "cancel":
        assert runs.tokens.cancel("frog-run-a") is (answer is None)
        runs.manager.cancel("a")
    else:
        assert runs.tokens.cancel("frog-run-b") is (answer is None)
        runs.manager.cancel("b")
    await settle()
    assert runs.manager.cancel() in (["a"], ["b"])
    await settle()
    for token in ("frog-run-a", "frog-run-b"):
        kinds = [p["value"]["kind"] for m, p in runs.wire.sent if m == "$/progress" and p["token"] == token]
        if answer is None:
            assert (kinds[0], kinds[-1], kinds.count("begin"), kinds.count("end")) == ("begin", "end", 1, 1)
        else:
            assert kinds == []
        assert not runs.tokens.cancel(token)
    expected = {"finish": ExitReason.AGENT, "break": None}.get(how, ExitReason.CANCELLED)
    assert runs.manager.records["a"].exit_reason == (expected and expected.value)
    assert len(asyncio.all_tasks()) == 1
