"""Private copies of trees: what is kept, what is left out, what is too much."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from agent.errors import WorkspaceError
from agent.jail.leftovers import remove_path
from agent.worktree import copying
from agent.worktree.copying import CopyBudget, PrivateCopy, copy_tree, count_tree
from agent.worktree.mounts import Mount, parse_mounts

ENOUGH = CopyBudget(size_bytes=1 << 30, entries=10_000)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.mkdir()
    return path


def copied(source: Path, **options: frozenset[str]) -> tuple[Path, PrivateCopy]:
    target = source.parent / "target"
    return target, copy_tree(str(source), str(target), ENOUGH, **options)


def facts(path: Path) -> tuple[int, int]:
    info = path.lstat()
    return info.st_mode, info.st_mtime_ns


def test_modes_times_links_and_names_are_kept(source: Path) -> None:
    (source / "d").mkdir()
    names = ["plain", "d/with space", "d/new\nline", "-dash", "e\u0301", "x" * 255]
    for name in names:
        (source / name).write_bytes(name.encode())
    os.close(os.open(os.fsencode(source) + b"/d/\xff\xfe", os.O_CREAT | os.O_WRONLY, 0o640))
    (source / "plain").chmod(0o4755)
    (source / "link").symlink_to("../outside")
    os.symlink(b"\xff", os.fsencode(source) + b"/odd link")
    (source / "d").chmod(0o750)
    for path in (source / "plain", source / "link", source / "d"):
        os.utime(path, ns=(1_111_111_111, 2_222_222_222), follow_symlinks=False)
    target, copy = copied(source)
    for path in [source, *source.rglob("*")]:
        twin = target / path.relative_to(source)
        assert facts(twin) == facts(path), path
        if path.is_symlink():
            assert os.readlink(twin) == os.readlink(path)
        elif path.is_file():
            assert twin.read_bytes() == path.read_bytes()
    assert facts(target / "plain") == (0o104755, 2_222_222_222)
    assert copy.left_out == ()
    assert set(copy.index) == {os.fsdecode(p.relative_to(source)) for p in source.rglob("*") if p.name != "d"}
    for name, (inode, changed_ns) in copy.index.items():
        info = os.lstat(target / name)
        assert (info.st_ino, info.st_ctime_ns) == (inode, changed_ns)


def test_no_file_is_shared_with_the_original(source: Path) -> None:
    (source / "a").write_text("a")
    (source / "twin").hardlink_to(source / "a")
    target, _ = copied(source)
    for name in ("a", "twin"):
        assert (target / name).stat().st_nlink == 1
        assert not (target / name).samefile(source / name)
    (target / "a").write_text("changed")
    assert (source / "a").read_text() == "a"


def test_holes_stay_holes(source: Path) -> None:
    with open(source / "sparse", "wb") as file:
        file.write(b"begin")
        file.seek(64 << 20)
        file.write(b"middle")
        file.truncate(128 << 20)
    (source / "all hole").touch()
    os.truncate(source / "all hole", 1 << 30)
    target, copy = copied(source)
    assert (target / "sparse").stat().st_size == 128 << 20
    assert (target / "all hole").stat().st_size == 1 << 30
    assert sum((target / name).stat().st_blocks for name in ("sparse", "all hole")) * 512 < 1 << 20
    with open(target / "sparse", "rb") as file:
        assert file.read(6) == b"begin\0"
        file.seek((64 << 20) - 1)
        assert file.read(8) == b"\0middle\0"
    assert copy.size_bytes < 1 << 20


def test_special_files_are_reported_and_nothing_blocks(source: Path) -> None:
    os.mkfifo(source / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(source / "s"))
        (source / "kept").touch()
        target, copy = copied(source)
    assert os.listdir(target) == ["kept"]
    assert sorted(copy.left_out) == ["fifo (a special file)", "s (a special file)"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_what_cannot_be_read_is_reported(source: Path) -> None:
    (source / "closed").touch(mode=0)
    _, copy = copied(source)
    assert copy.left_out == ("closed (Permission denied)",)


def test_a_skipped_folder_is_made_but_stays_empty(source: Path) -> None:
    (source / ".venv" / "lib").mkdir(parents=True)
    (source / ".venv" / "big").write_bytes(b"x" * 100_000)
    (source / "lib").mkdir()
    target, copy = copied(source, skipped=frozenset([".venv"]))
    assert os.listdir(target / ".venv") == []
    assert sorted(os.listdir(target)) == [".venv", "lib"]
    assert copy.size_bytes == 0


@pytest.mark.parametrize(("size_bytes", "entries"), [(50_000, 100), (1 << 30, 9)])
def test_too_much_is_refused_before_anything_is_written(source: Path, size_bytes: int, entries: int) -> None:
    for number in range(10):
        (source / str(number)).write_bytes(b"x" * 8192)
    with pytest.raises(WorkspaceError, match=r"too large .* more than \d+ MiB or \d+ files") as caught:
        copy_tree(str(source), str(source.parent / "target"), CopyBudget(size_bytes=size_bytes, entries=entries))
    assert caught.value.hint
    assert not (source.parent / "target").exists()


def test_counting_stops_at_the_first_excess(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (source / f"d{number}").mkdir()
        (source / f"d{number}" / "f").touch()
    stats: list[str] = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **options: (stats.append(str(path)), real(path, **options))[1])
    with pytest.raises(WorkspaceError):
        count_tree(str(source), CopyBudget(size_bytes=1 << 30, entries=5), frozenset())
    assert stats.count("f") == 0


def test_a_tree_that_is_nested_very_deep_is_copied_as_far_as_it_can_be(source: Path) -> None:
    here = os.open(source, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        _, copy = copied(source)
        assert copy.entries == 201
        assert [line.rpartition(" (")[2] for line in copy.left_out] == ["nested deeper than 200 folders)"]
    finally:
        remove_path(str(source))


def test_a_disk_without_space_is_refused_before_anything_is_written(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "f").write_bytes(b"x" * 10_000)
    full = os.statvfs_result((4096, 4096, 100, 1, 1, 100, 50, 50, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(WorkspaceError, match="which the disk does not have"):
        copied(source)
    assert not (source.parent / "target").exists()


def test_copying_can_be_stopped(source: Path) -> None:
    (source / "f").touch()
    with pytest.raises(WorkspaceError, match="stopped"):
        copy_tree(str(source), str(source.parent / "target"), ENOUGH, is_stopped=lambda: True)


def test_every_way_to_copy_gives_the_same(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(3_000_000) + bytes(3_000_000)
    (source / "f").write_bytes(data[:3_000_000])
    os.truncate(source / "f", len(data))

    def refuse(*_: int) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    target, _ = copied(source)
    assert (target / "f").read_bytes() == data
    monkeypatch.setattr(copying, "_extents", lambda _, size_bytes: [(0, size_bytes)])
    copy_tree(str(source), str(source.parent / "again"), ENOUGH)
    assert (source.parent / "again" / "f").read_bytes() == data


def test_a_user_who_edits_meanwhile_disturbs_nothing(source: Path) -> None:
    for number in range(300):
        (source / f"f{number}").write_text("text\n" * 100)
    stop = threading.Event()

    def edit() -> None:
        number = 0
        while not stop.is_set():
            number = (number + 7) % 300
            path = source / f"f{number}"
            path.unlink()
            path.write_text("other\n" * (number % 5))
            (source / "come and go").mkdir()
            (source / "come and go").rmdir()

    thread = threading.Thread(target=edit)
    thread.start()
    try:
        target, copy = copied(source)
    finally:
        stop.set()
        thread.join()
    assert copy.left_out == ()
    for path in target.iterdir():
        assert path.name == "come and go" or set(path.read_text().split()) <= {"text", "other"}


def test_an_entry_that_went_between_two_looks_is_no_error(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source / "stays").write_text("text\n")
    there = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: [*there(folder), "went"])
    target, copy = copied(source)
    assert copy.left_out == ()
    assert (target / "stays").read_text() == "text\n"


def test_a_deep_tree_ends_with_a_note(source: Path) -> None:
    here = os.open(source, os.O_RDONLY)
    for _ in range(copying.MAX_DEPTH + 5):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    _, copy = copied(source)
    (left_out,) = copy.left_out
    assert left_out.endswith("(nested deeper than 200 folders)")


def test_a_later_change_has_a_later_time(source: Path) -> None:
    for number in range(20):
        (source / str(number)).write_text("old")
    target, copy = copied(source)
    for number in range(20):
        path = target / str(number)
        info = path.stat()
        with open(path, "r+") as file:
            file.write("new")
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
        now = path.stat()
        assert (now.st_size, now.st_mtime_ns, now.st_ino) == (info.st_size, info.st_mtime_ns, info.st_ino)
        assert now.st_ctime_ns > copy.index[str(number)][1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_gives_the_copy_to_the_owner(source: Path) -> None:
    (source / "d").mkdir()
    (source / "d" / "f").touch(mode=0o755)
    (source / "link").symlink_to("d")
    target = source.parent / "target"
    copy_tree(str(source), str(target), ENOUGH, owner=(1234, 1235))
    for path in (target, *target.rglob("*")):
        assert (path.lstat().st_uid, path.lstat().st_gid) == (1234, 1235)
    assert stat.S_IMODE((target / "d" / "f").stat().st_mode) == 0o755


def test_mounts_are_read_from_the_kernels_table() -> None:
    table = (
        b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n"
        b"37 36 0:5 / /mnt2/with\\040space rw - proc proc rw\n"
        b"38 36 0:6 / /\xff rw,a shared:1 master:2 - fuse.sshfs me@there rw\n"
        b"rubbish\n\n"
    )
    assert parse_mounts(table) == (
        Mount("/mnt2", "ext3"),
        Mount("/mnt2/with space", "proc"),
        Mount("/\udcff", "fuse.sshfs"),
    )
    assert [mount.is_virtual for mount in parse_mounts(table)] == [False, True, False]
