"""Watching a few files: what is asked of the client, what the system tells, and what is left without both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lsp_server import watch_disk
from lsp_server.client import Client
from lsp_server.watch import ClientWatch, FileWatch, WatchedFile, WatchFailedError, watchers
from lsp_server.watch_disk import PollWatch, SystemWatch
from tests.conftest import skip_or_fail
from tests.unit.test_lsp_runs import Wire


def files(root: Path | str, *names: str) -> frozenset[WatchedFile]:
    return frozenset(WatchedFile(os.path.join(root, name), str(root)) for name in names)


def test_the_folders_above_a_file() -> None:
    assert list(WatchedFile("/ws/a/b/c.py", "/ws").folders()) == ["/ws/a/b", "/ws/a", "/ws"]
    assert list(WatchedFile("/ws/c.py", "/ws").folders()) == ["/ws"]
    assert list(WatchedFile("/a/c.py", "/").folders()) == ["/a", "/"]
    assert list(WatchedFile("/ws-2/c.py", "/ws").folders()) == []


# --- the client ---------------------------------------------------------------------------------------------------


def test_globs_match_what_they_should_and_little_else() -> None:
    odd = files("/ws", "a[1]/{x,y}*?.py", "ü b.py")
    assert watchers(odd, relative_patterns=False) == [
        {"globPattern": "/ws/a?1?", "kind": 5},
        {"globPattern": "/ws/a?1?/?x,y???.py", "kind": 7},
        {"globPattern": "/ws/ü b.py", "kind": 7},
    ]
    assert watchers(odd, relative_patterns=True) == [
        {"globPattern": {"baseUri": "file:///ws", "pattern": "a?1?"}, "kind": 5},
        {"globPattern": {"baseUri": "file:///ws/a%5B1%5D", "pattern": "?x,y???.py"}, "kind": 7},
        {"globPattern": {"baseUri": "file:///ws", "pattern": "ü b.py"}, "kind": 7},
    ]


async def test_each_file_is_registered_once_and_a_registration_goes_with_its_last() -> None:
    wire = Wire()
    watch = ClientWatch(Client(wire), relative_patterns=False)
    await watch.watch(frozenset())
    assert wire.sent == []
    for names in (["a.py"], ["a.py"], ["a.py", "b.py", "c.py"], ["c.py"], []):
        await watch.watch(files("/ws", *names))
    told = [
        (method, [item["id"] for item in params.get("registrations", params.get("unregisterations"))])
        for method, params in wire.sent
    ]
    assert told == [
        ("client/registerCapability", ["frog-watched-files-1"]),
        ("client/registerCapability", ["frog-watched-files-2"]),
        ("client/unregisterCapability", ["frog-watched-files-1"]),
        ("client/unregisterCapability", ["frog-watched-files-2"]),
    ]
    watchers = wire.sent[1][1]["registrations"][0]["registerOptions"]["watchers"]
    assert [watcher["globPattern"] for watcher in watchers] == ["/ws/b.py", "/ws/c.py"]


async def test_a_client_that_refuses_says_so() -> None:
    watch = ClientWatch(Client(Wire(RuntimeError("no"))), relative_patterns=False)
    with pytest.raises(WatchFailedError, match="no"):
        await watch.watch(files("/ws", "a.py"))


# --- the system, and asking the disk ------------------------------------------------------------------------------


class Told:
    def __init__(self) -> None:
        self.paths: list[tuple[str, bool]] = []
        self.threads: set[int] = set()
        self.news = asyncio.Event()

    def __call__(self, path: str, is_folder: bool) -> None:
        self.paths.append((path, is_folder))
        self.threads.add(threading.get_ident())
        self.news.set()

    async def until(self, path: Path, is_folder: bool = False) -> None:
        async with asyncio.timeout(20):
            while (str(path), is_folder) not in self.paths:
                await self.news.wait()
                self.news.clear()
        self.paths.clear()


@contextlib.contextmanager
def watching(made: FileWatch) -> Iterator[None]:
    try:
        yield
    finally:
        made.close()


def change(path: Path) -> None:
    path.write_text("changed\n")


def save_as_editors_do(path: Path) -> None:
    path.with_suffix(".tmp").write_text("saved\n")
    path.with_suffix(".tmp").rename(path)


@pytest.mark.slow
@pytest.mark.parametrize("way", [SystemWatch, PollWatch])
@pytest.mark.parametrize("how", [change, save_as_editors_do, Path.unlink])
async def test_a_change_is_told(tmp_path: Path, way: Any, how: Callable[[Path], object]) -> None:
    path = tmp_path / "odd [*] é\n\udcff.py"
    path.write_text("x\n")
    told = Told()
    watch = way(told)
    with watching(watch):
        await watch.watch(files(tmp_path, path.name))
        how(path)
        await told.until(path)
        assert told.threads == {threading.get_ident()}, "only the loop is told"


async def test_a_folder_moved_made_and_removed(tmp_path: Path) -> None:
    (tmp_path / "pkg" / "sub").mkdir(parents=True)
    path = tmp_path / "pkg" / "sub" / "a.py"
    path.write_text("x\n")
    told = Told()
    watch = SystemWatch(told)
    wanted = files(tmp_path, "pkg/sub/a.py", "later/b.py")
    with watching(watch):
        await watch.watch(wanted)
        (tmp_path / "pkg").rename(tmp_path / "lib")
        await told.until(tmp_path / "pkg", True)
        await watch.watch(wanted)
        (tmp_path / "lib").rename(tmp_path / "pkg")
        await told.until(tmp_path / "pkg", True)
        await watch.watch(wanted)
        change(path)
        await told.until(path)
        (tmp_path / "later").mkdir()
        await told.until(tmp_path / "later", True)
        await watch.watch(wanted)
        change(tmp_path / "later" / "b.py")
        await told.until(tmp_path / "later" / "b.py")
        shutil.rmtree(tmp_path / "pkg")
        await told.until(tmp_path / "pkg", True)


async def test_a_folder_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    told = Told()
    watch = SystemWatch(told)
    with watching(watch):
        await watch.watch(files(tmp_path / "link", "a.py") | files(tmp_path / "real", "b.py"))
        change(tmp_path / "real" / "a.py")
        await told.until(tmp_path / "link" / "a.py")
        change(tmp_path / "link" / "b.py")
        await told.until(tmp_path / "real" / "b.py")


async def test_other_files_of_the_folder_do_not_reach_the_loop(tmp_path: Path) -> None:
    told = Told()
    watch = SystemWatch(told)
    with watching(watch):
        await watch.watch(files(tmp_path, "a.py"))
        for at in range(1_000):
            change(tmp_path / f"{at}.py")
        change(tmp_path / "a.py")
        await asyncio.wait_for(told.news.wait(), 20)
        assert {path for path, _ in told.paths} == {str(tmp_path / "a.py")}


async def test_what_lies_below_is_never_observed(tmp_path: Path) -> None:
    for at in range(50):
        (tmp_path / "tree" / f"{at}").mkdir(parents=True)
    (tmp_path / "pkg").mkdir()
    watch = SystemWatch(Told())
    with watching(watch):
        await watch.watch(files(tmp_path, "pkg/a.py"))
        assert sorted(watch._watches) == [str(tmp_path), str(tmp_path / "pkg")]
        await watch.watch(frozenset())
        assert watch._watches == {}


async def test_closing_does_not_wait(tmp_path: Path) -> None:
    for at in range(30):
        (tmp_path / f"{at}").mkdir()
    watch = SystemWatch(Told())
    await watch.watch(files(tmp_path, *(f"{at}/a.py" for at in range(30))))
    begun = time.monotonic()
    watch.close()
    assert time.monotonic() - begun < 0.2
    await watch.watch(files(tmp_path, "0/a.py"))
    assert watch._observer is None, "closed is closed"


async def test_more_folders_than_are_observed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_disk, "MAX_FOLDERS", 1)
    (tmp_path / "pkg").mkdir()
    with pytest.raises(WatchFailedError, match="2 folders"):
        await SystemWatch(Told()).watch(files(tmp_path, "pkg/a.py"))


async def test_polling_looks_at_its_files_alone_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_disk, "POLL_S", 0.02)
    told = Told()
    watch = PollWatch(told)
    with watching(watch):
        await watch.watch(files(tmp_path, "a.py", "b.py"))
        change(tmp_path / "a.py")
        await told.until(tmp_path / "a.py")
        await watch.watch(files(tmp_path, "b.py"))
        change(tmp_path / "a.py")
        change(tmp_path / "b.py")
        await told.until(tmp_path / "b.py")
        await watch.watch(frozenset())
        assert watch._task is None


EXHAUSTED = """
import asyncio, sys
from lsp_server.watch import WatchedFile, WatchFailedError
from lsp_server.watch_disk import SystemWatch
async def main():
    try:
        await SystemWatch(print).watch(frozenset({WatchedFile(sys.argv[1] + "/a.py", sys.argv[1])}))
    except WatchFailedError as error:
        print(error)
asyncio.run(main())
"""


def test_a_system_without_watches_left_is_a_failure_in_words(tmp_path: Path) -> None:
    """In a user namespace of its own, whose limit is really 0."""
    apart = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False, timeout=60).returncode:
        skip_or_fail("a user namespace cannot be had here: unshare --user failed")
    limit = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"'
    command = [*apart, "sh", "-c", limit, "sh", sys.executable, "-c", EXHAUSTED]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, check=True, timeout=60)
    assert done.stdout == b"the system watches no more files (inotify instance limit reached)\n"
