"""From an upper layer, made by hand, to what changed."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent.types import FileState, PathDelta, PrivateView
from agent.worktree.baseline import Baseline
from agent.worktree.collect import Collected, CollectLimits, collect


class Trees:
    """A workspace and an upper layer."""

    def __init__(self, lower: Path, upper: Path) -> None:
        self.lower, self.upper = lower, upper
        self.touched: list[str] = []
        self.buffers: Mapping[str, bytes] = {}

    def whiteout(self, name: str) -> None:
        (self.upper / name).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(self.upper / name, stat.S_IFCHR | 0o600, os.makedev(0, 0))

    def opaque(self, name: str) -> None:
        (self.upper / name).mkdir(parents=True)
        try:
            os.setxattr(self.upper / name, "user.overlay.opaque", b"y")
        except OSError:
            pytest.skip("no user attributes on this file system")

    def baseline(self) -> Baseline:
        time.sleep(0.02)  # the clock of file systems has ticks
        return Baseline(str(self.lower), self.buffers)

    def collect(self, limits: CollectLimits | None = None) -> Collected:
        number = os.open(self.upper, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with self.baseline() as baseline:
                return collect(PrivateView(upper_fd=number, lower=str(self.lower)), baseline, limits)
        finally:
            os.close(number)


@pytest.fixture
def trees(tmp_path: Path) -> Iterator[Trees]:
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    lower.mkdir()
    upper.mkdir()
    yield Trees(lower, upper)


def write(path: Path, data: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)


def changed(path: str, before: bytes | None, after: bytes | None) -> PathDelta:
    return PathDelta(
        path=path,
        before=None if before is None else FileState(data=before),
        after=None if after is None else FileState(data=after),
    )


def test_created_modified_deleted(trees: Trees) -> None:
    write(trees.lower / "m", b"old")
    write(trees.lower / "d/gone", b"gone")
    write(trees.upper / "m", b"new")
    write(trees.upper / "n/c", b"made")
    trees.whiteout("d/gone")
    assert trees.collect() == Collected(
        deltas=(changed("d/gone", b"gone", None), changed("m", b"old", b"new"), changed("n/c", None, b"made"))
    )


def test_touching_is_no_change(trees: Trees) -> None:
    write(trees.lower / "f", b"same")
    write(trees.upper / "f", b"same")
    os.utime(trees.upper / "f", (1, 1))
    (trees.upper / "folder").mkdir()
    trees.whiteout("never-was")
    assert trees.collect().deltas == ()


def test_mode_and_link_changes(trees: Trees) -> None:
    write(trees.lower / "f", b"same")
    write(trees.upper / "f", b"same", 0o755)
    (trees.lower / "same").symlink_to("f")
    (trees.upper / "same").symlink_to("f")
    (trees.lower / "l").symlink_to("f")
    (trees.upper / "l").symlink_to("g")
    mode, link = trees.collect().deltas
    assert (mode.path, mode.before, mode.after) == ("f", FileState(data=b"same"), FileState(data=b"same", mode=0o755))
    assert link.before == FileState(data=None, mode=0o777, link="f")
    assert link.after == FileState(data=None, mode=0o777, link="g")


def test_a_folder_that_went(trees: Trees) -> None:
    write(trees.lower / "d/a", b"a")
    write(trees.lower / "d/e/b", b"b")
    trees.whiteout("d")
    assert trees.collect().deltas == (changed("d/a", b"a", None), changed("d/e/b", b"b", None))


def test_a_folder_that_was_made_anew(trees: Trees) -> None:
    write(trees.lower / "d/kept", b"same")
    write(trees.lower / "d/gone", b"x")
    write(trees.lower / "d/e/f", b"y")
    trees.opaque("d")
    write(trees.upper / "d/kept", b"same")
    write(trees.upper / "d/e/new", b"z")
    assert trees.collect().deltas == (
        changed("d/e/f", b"y", None),
        changed("d/e/new", None, b"z"),
        changed("d/gone", b"x", None),
    )


def test_files_folders_and_links_that_swapped(trees: Trees) -> None:
    write(trees.lower / "file", b"1")
    write(trees.lower / "folder/in", b"2")
    (trees.lower / "link").symlink_to("file")
    write(trees.upper / "file/in", b"3")
    write(trees.upper / "folder", b"4")
    write(trees.upper / "link", b"5")
    deltas = {delta.path: delta for delta in trees.collect().deltas}
    assert deltas["file"] == changed("file", b"1", None)
    assert deltas["file/in"] == changed("file/in", None, b"3")
    assert deltas["folder"] == changed("folder", None, b"4")
    assert deltas["folder/in"] == changed("folder/in", b"2", None)
    assert deltas["link"].before == FileState(data=None, mode=0o777, link="file")
    assert deltas["link"].after == FileState(data=b"5")


def test_special_files_block_nothing(trees: Trees) -> None:
    os.mkfifo(trees.upper / "fifo", 0o644)
    here = Path.cwd()
    os.chdir(trees.upper)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
    os.chdir(here)
    found = trees.collect().deltas
    assert [delta.path for delta in found] == ["fifo", "sock"]
    assert all(delta.after is not None and delta.after.data is delta.after.link is None for delta in found)


def test_files_without_permissions(trees: Trees) -> None:
    write(trees.upper / "closed", b"secret", 0)
    write(trees.upper / "folder/in", b"x")
    (trees.upper / "folder").chmod(0)
    try:
        found = {delta.path: delta.after for delta in trees.collect().deltas}
    finally:
        mode = stat.S_IMODE((trees.upper / "folder").stat().st_mode)
        (trees.upper / "folder").chmod(0o755)
    assert found == {"closed": FileState(data=b"secret", mode=0), "folder/in": FileState(data=b"x")}
    assert mode == 0


def test_odd_names(trees: Trees) -> None:
    names = [b"\xff\xfe", b"new\nline", b"-dash", b"\x1b[31m", "‮rtl".encode(), b"x" * 255, b"Case", b"case"]
    for name in names:
        (trees.upper / os.fsdecode(name)).write_bytes(b"1")
    assert sorted(os.fsencode(delta.path) for delta in trees.collect().deltas) == sorted(names)


def test_links_are_never_followed(trees: Trees, tmp_path: Path) -> None:
    write(tmp_path / "outside/secret", b"secret")
    (trees.lower / "d").symlink_to(tmp_path / "outside")
    write(trees.upper / "d/secret", b"new")
    (trees.upper / "l").symlink_to(tmp_path / "outside")
    deltas = {delta.path: delta for delta in trees.collect().deltas}
    assert deltas["d/secret"].before is None
    assert deltas["d"].after is None
    assert deltas["l"].after == FileState(data=None, mode=0o777, link=str(tmp_path / "outside"))


def test_git_is_listed_without_its_bytes(trees: Trees) -> None:
    write(trees.lower / ".git/index", b"old")
    write(trees.upper / ".git/index", b"new")
    write(trees.upper / "sub/.git/hooks/x", b"#!")
    trees.whiteout(".git/HEAD")
    found = trees.collect().deltas
    assert [delta.path for delta in found] == [".git/index", "sub/.git/hooks/x"]
    assert all(delta.after is not None and delta.after.data is None for delta in found)


def test_bounds(trees: Trees) -> None:
    for number in range(30):
        write(trees.upper / f"f{number:02}", b"x" * 100)
    limited = trees.collect(CollectLimits(paths=10))
    assert len(limited.deltas) == 10
    assert "More than 10 paths" in limited.notes[0]
    limited = trees.collect(CollectLimits(file_bytes=50))
    assert len(limited.deltas) == len(limited.notes) == 30
    assert all(delta.after is not None and delta.after.data is None for delta in limited.deltas)
    limited = trees.collect(CollectLimits(total_bytes=550))
    assert sum(delta.after is not None and delta.after.data is not None for delta in limited.deltas) == 5


def test_depth_past_the_longest_path(trees: Trees) -> None:
    here = os.open(trees.upper, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d" * 20, dir_fd=here)
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    found = trees.collect()
    assert found.deltas == ()
    assert "nested deeper" in found.notes[0]


def test_sparse_giants_are_not_read(trees: Trees) -> None:
    with open(trees.upper / "giant", "wb") as file:
        file.truncate(5 << 30)
    found = trees.collect()
    assert found.deltas[0].after == FileState(data=None)
    assert "giant" in found.notes[0]


def test_buffers_are_the_base(trees: Trees) -> None:
    trees.buffers = {"f": b"typed", "new": b"unsaved", "gone": b"unsaved too"}
    write(trees.lower / "f", b"saved", 0o755)
    write(trees.upper / "f", b"fixed", 0o755)
    write(trees.upper / "new", b"unsaved")
    changed_file, gone = trees.collect().deltas
    assert changed_file.before == FileState(data=b"typed", mode=0o755)
    assert changed_file.base_known
    assert gone == changed("gone", b"unsaved too", None)


def test_cost_follows_the_change(trees: Trees) -> None:
    for folder in range(20):
        for number in range(50):
            write(trees.lower / f"d{folder}/f{number}", b"")
    for number in range(10):
        write(trees.upper / f"d{number}/f{number}", b"new")
    with trees.baseline() as baseline:
        number = os.open(trees.upper, os.O_RDONLY)
        began = time.process_time()
        found = collect(PrivateView(upper_fd=number, lower=str(trees.lower)), baseline)
        took_s = time.process_time() - began
        os.close(number)
    assert len(found.deltas) == 10
    assert took_s < 0.05
