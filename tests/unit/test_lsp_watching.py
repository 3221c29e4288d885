"""What is watched for runs and proposals, and what comes of a change: real files, the system's own watching."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from agent.changes.proposal import Proposal
from agent.types import ChangeKind, ChangeSet, ExitReason, FileChange, FileState, JailInfo, ModelInfo
from lsp_server.application import Application
from lsp_server.features import watched_files
from lsp_server.features.watched_files import Watching
from lsp_server.runs import RunRecord
from lsp_server.watch_disk import PollWatch, SystemWatch
from tests.e2e.lsp_client import FULL, to_uri
from tests.unit.test_lsp_runs import Runs, Wire

BASE, OURS = "one\ntwo\n", "one\nTWO\n"
REGISTERS = FULL | {"workspace": FULL["workspace"] | {"didChangeWatchedFiles": {"dynamicRegistration": True}}}


class World:
    """An application whose listeners note what they are told."""

    def __init__(self, folder: Path, wire: Wire, capabilities: Any = FULL) -> None:
        self.folder = folder
        self.wire = wire
        runs = Runs(folder, wire=wire, capabilities=capabilities)
        self.application = Application(runs.session, runs)
        self.watching = Watching(self.application)
        self.application.runs.on_changed.append(self.watching.refresh)
        runs.session.buffers.listeners.add(self.watching.take_buffer)
        self.application.on_stop.append(self.watching.close)
        self.told: list[tuple[str, frozenset[str]]] = []
        self.application.on_files_changed.append(lambda record, names: self.told.append((record.run_id, names)))

    def propose(self, run_id: str, *changes: FileChange) -> RunRecord:
        (folder,) = self.application.session.folders
        proposal = Proposal(
            run_id=run_id,
            title="t",
            workspace=folder.path,
            folder=folder.uri,
            created_s=0.0,
            exit_reason=ExitReason.AGENT,
            final_message="",
            changes=ChangeSet(changes=changes),
            patch="",
            model=ModelInfo(kind="scripted", name="m"),
            jail=JailInfo(backend="none"),
        )
        record = RunRecord(run_id, folder, "t", state="proposed", proposal=proposal)
        self.application.runs.add(record)
        return record

    @property
    def logged(self) -> list[str]:
        return [params["message"] for method, params in self.wire.sent if method == "window/logMessage"]

    async def until(self, is_true: Callable[[], Any]) -> None:
        end_s = time.monotonic() + 20
        while not is_true():
            assert time.monotonic() < end_s, "it did not happen"
            await asyncio.sleep(0.01)

    async def watched(self) -> None:
        """Wait until what is wanted is watched."""
        await self.until(lambda: not self.application._tasks)

    async def quiet(self) -> None:
        """Long enough for anything that is to come."""
        await asyncio.sleep(watched_files.DEBOUNCE_S * 4)


def modified(path: str, before: str = BASE, after: str = OURS) -> FileChange:
    states = (FileState(data=text.encode()) for text in (before, after))
    return FileChange(path=path, kind=ChangeKind.MODIFIED, before=next(states), after=next(states))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(watched_files, "DEBOUNCE_S", 0.1)
    monkeypatch.setattr(watched_files, "REFRESH_S", 0.05)
    folder = tmp_path / "ws"
    (folder / "pkg").mkdir(parents=True)
    (folder / "a.py").write_text(BASE)
    (folder / "pkg" / "b.py").write_text(BASE)
    return folder


@pytest.fixture
async def world(folder: Path) -> AsyncIterator[World]:
    made = World(folder, Wire())
    yield made
    await made.application.stop()


@pytest.mark.slow
async def test_a_change_is_told_once_and_said_once(world: World) -> None:
    world.propose("r", modified("a.py"), modified("pkg/b.py"))
    world.propose("s", modified("pkg/b.py"))
    await world.watched()
    for at in range(20):
        (world.folder / "a.py").write_text(f"{BASE}{at}\n")
    await world.until(lambda: world.told)
    await world.quiet()
    assert world.told == [("r", frozenset({"a.py"}))]
    assert world.logged == ["a.py changed on disk since the run began; applying merges"]
    (world.folder / "a.py").write_text(BASE + "more\n")
    (world.folder / "pkg" / "b.py").write_text(BASE + "more\n")
    await world.until(lambda: len(world.told) == 3)
    assert sorted(world.told[1:]) == [("r", frozenset({"a.py", "pkg/b.py"})), ("s", frozenset({"pkg/b.py"}))]
    assert len(world.logged) == 3, "once a run and file"


async def test_what_changes_nothing_is_not_told(world: World) -> None:
    world.propose("r", modified("a.py"))
    await world.watched()
    (world.folder / "a.py").touch()
    (world.folder / "a.py").write_text(BASE)
    (world.folder / "pkg" / "b.py").write_text("other\n")
    (world.folder / "new.py").write_text("other\n")
    await world.quiet()
    assert (world.told, world.logged) == ([], [])


@pytest.mark.slow
async def test_our_own_edit_is_no_news_and_makes_no_loop(world: World) -> None:
    first, second = modified("a.py"), modified("pkg/b.py")
    record = world.propose("r", first, second)
    await world.watched()
    async with record.lock:
        (world.folder / "a.py").write_text(OURS + "merged\n")
        await world.quiet()
        assert world.told == [], "not in the middle of it"
        assert record.proposal is not None
        record.proposal = record.proposal.with_applied(["a.py"], [1])
        record.state = record.proposal.state.value
        world.application.runs.tell_changed()
    await world.quiet()
    assert world.logged == []
    n_told = len(world.told)
    await world.quiet()
    assert len(world.told) == n_told <= 1
    (world.folder / "a.py").write_text("what is in place is watched no more\n")
    await world.quiet()
    assert len(world.told) == n_told


@pytest.mark.slow
async def test_a_file_moved_by_hand_is_found_but_not_followed(world: World) -> None:
    record = world.propose("r", modified("a.py", BASE + "unique\n"))
    (world.folder / "a.py").write_text(BASE + "unique\n")
    await world.watched()
    (world.folder / "a.py").rename(world.folder / "pkg" / "moved.py")
    await world.until(lambda: world.told)
    assert world.logged == ["a.py is gone; it seems to be pkg/moved.py now"]
    assert record.seems_at == {"a.py": "pkg/moved.py"}
    assert record.path_now("a.py") == "a.py"
    (world.folder / "pkg" / "moved.py").rename(world.folder / "a.py")
    await world.until(lambda: len(world.told) == 2)
    assert record.seems_at == {}


@pytest.mark.slow
async def test_a_folder_that_is_removed(world: World) -> None:
    world.propose("r", modified("pkg/b.py"))
    await world.watched()
    (world.folder / "pkg" / "b.py").unlink()
    (world.folder / "pkg").rmdir()
    await world.until(lambda: world.told)
    await world.watched()
    (world.folder / "pkg").mkdir()
    await world.quiet()
    (world.folder / "pkg" / "b.py").write_text("again\n")
    await world.until(lambda: len(world.told) == 2)


@pytest.mark.slow
async def test_a_renamed_file_is_watched_where_it_is(world: World) -> None:
    world.propose("r", modified("a.py"))
    await world.watched()
    (world.folder / "a.py").rename(world.folder / "c.py")
    world.application.runs.follow_rename(str(world.folder / "a.py"), str(world.folder / "c.py"))
    await world.quiet()
    assert (world.told, world.logged) == ([], [])
    (world.folder / "c.py").write_text("other\n")
    await world.until(lambda: world.told)
    assert world.told == [("r", frozenset({"a.py"}))], "by its name in the snapshot"


@pytest.mark.slow
async def test_typing_is_told_and_not_said(world: World) -> None:
    world.propose("r", modified("a.py"))
    await world.watched()
    uri = to_uri(world.folder / "a.py")
    buffers = world.application.session.buffers
    buffers.open(uri, "python", 1, BASE)
    for version in range(2, 30):
        buffers.change(uri, version, [{"text": f"{BASE}{version}\n"}], "utf-16")
    buffers.open(to_uri(world.folder / "other.py"), "python", 1, "x")
    await world.until(lambda: world.told)
    await world.quiet()
    assert (world.told, world.logged) == ([("r", frozenset({"a.py"}))], [])


async def test_nothing_is_watched_when_nothing_waits(world: World) -> None:
    record = world.propose("r", modified("a.py"))
    await world.watched()
    way = world.watching._way
    assert isinstance(way, SystemWatch)
    assert way._watches
    record.state = "discarded"
    record.proposal = None
    world.application.runs.tell_changed()
    await world.watched()
    assert way._watches == {}


# --- the client's watching ----------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_client_watches_where_it_offers_to(folder: Path) -> None:
    world = World(folder, Wire(), REGISTERS)
    record = world.propose("r", modified("a.py"))
    await world.watched()
    ((_, params),) = [item for item in world.wire.sent if item[0] == "client/registerCapability"]
    (registration,) = params["registrations"]
    assert registration["registerOptions"] == {"watchers": [{"globPattern": f"{folder}/a.py", "kind": 7}]}
    (folder / "a.py").write_text("other\n")
    await world.quiet()
    assert world.told == [], "nobody else watches"
    world.watching.take(str(folder / "a.py"), False)
    world.watching.take(str(folder / "not watched.py"), False)
    await world.until(lambda: world.told)
    assert world.logged == ["a.py changed on disk since the run began; applying merges"]
    record.state = "applied"
    world.application.runs.tell_changed()
    await world.watched()
    (gone,) = world.wire.sent[-1][1]["unregisterations"]
    assert gone["id"] == registration["id"]
    await world.application.stop()


async def test_files_that_are_touched_one_by_one_are_registered_together(folder: Path) -> None:
    world = World(folder, Wire(), REGISTERS)
    world.propose("r", modified("a.py"))
    await world.watched()
    living = RunRecord("living", world.application.session.folders[0], "t", state="running")
    world.application.runs.add(living)
    for name in ("b.py", "c.py", "d.py"):
        living.touched.add(f"pkg/{name}")
        world.application.runs.tell_changed()
        await asyncio.sleep(0.01)
    await world.watched()
    told = [params["registrations"] for method, params in world.wire.sent if method == "client/registerCapability"]
    watched = [[w["globPattern"] for w in item["registerOptions"]["watchers"]] for (item,) in told]
    assert watched == [
        [f"{folder}/a.py"],
        [f"{folder}/pkg", *(f"{folder}/pkg/{name}.py" for name in "bcd")],
    ], "and no file a second time"
    assert not [method for method, _ in world.wire.sent if method == "client/unregisterCapability"]
    await world.application.stop()


async def test_a_client_that_refuses_is_no_loss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsp_server.watch_disk.MAX_FOLDERS", 0)
    monkeypatch.setattr("lsp_server.watch_disk.POLL_S", 0.02)
    world = World(folder, Wire(RuntimeError("no")), REGISTERS)
    world.propose("r", modified("a.py"))
    await world.watched()
    assert [text.partition(":")[0] for text in world.logged] == ["Files are watched in another way"] * 2
    assert isinstance(world.watching._way, PollWatch)
    (folder / "a.py").write_text("other\n")
    await world.until(lambda: world.told)
    await world.application.stop()
    assert world.watching._way._task is None


@pytest.mark.slow
async def test_ending_stops_the_watching(world: World) -> None:
    world.propose("r", modified("a.py"))
    await world.watched()
    (world.folder / "a.py").write_text("other\n")
    await asyncio.sleep(0.05)
    await world.application.stop()
    await world.quiet()
    world.propose("s", modified("pkg/b.py"))
    await world.quiet()
    assert world.told == []
    assert len(asyncio.all_tasks()) == 1
