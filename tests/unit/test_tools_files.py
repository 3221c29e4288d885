"""Read, Write and Edit, in each way to reach the files."""

from __future__ import annotations

import codecs
import os
import stat
import sys

import pytest

from tests.runner_process import KINDS, FileTools, fill


@pytest.fixture(params=KINDS)
def tools(request, tmp_path, sealed):
    """Builds the tools over the given files; with a copy-on-write view the real folder must not change."""
    made = []

    def build(files=(), scratch=False, prepare=lambda root: None):
        root, upper, outside = (tmp_path / name for name in ("workspace", "upper", "scratch"))
        for folder in (root, upper, outside):
            folder.mkdir()
        fill(root, dict(files))
        prepare(root)
        fill(tmp_path, {"secret": b"top secret\n"})
        if request.param == "upper":
            sealed(root)
        made.append(FileTools(request.param, root, upper, outside if scratch else None))
        return made[-1]

    yield build
    for one in made:
        one.close()


def test_read(tools):
    run = tools({"d/a.py": b"x\r\n\ty\r\n", "empty": b"", "n": b"a", "odd": "a\x0cb\u2028c\rd\x85\n".encode()})
    assert run("Read", file_path="d/a.py") == "d/a.py\n1. x\n2. \ty"
    assert run("Read", file_path="empty") == "empty"
    assert run("Read", file_path="n") == "n\n1. a"
    assert run("Read", file_path="odd") == "odd\n1. a\x0cb\u2028c\n2. d\x85"
    assert run("Read", file_path="d/a.py", offset=2) == "d/a.py\n2. \ty"
    assert run("Read", file_path="d/a.py", offset=0, limit=1) == "d/a.py\n1. x"
    assert run("Read", file_path="d/a.py", offset=9) == "d/a.py"


def test_every_way_to_write_a_path(tools):
    run = tools({"d/a.py": b"x"})
    shown = "d/a.py\n1. x"
    for path in ("./d/a.py", "d//a.py", "d/../d/a.py", f"{run.root}/d/a.py", f"{run.root}//d/../d/./a.py", "d/./a.py"):
        assert run("Read", file_path=path) == shown
    assert run("Read", file_path=f"../{run.root.name}/d/a.py") == shown


def test_read_is_cut_at_20000_characters(tools):
    run = tools({"big": "é😀x\n".encode() * 10_000, "line": b"y" * 50_000, "fits": b"z" * (20_000 - len("fits\n1. "))})
    whole = "big\n" + "\n".join(f"{i}. é😀x" for i in range(1, 10_001))
    assert run("Read", file_path="big") == f"{whole[:20_000]}\n[truncated {len(whole) - 20_000} chars]"
    assert run("Read", file_path="line") == f"line\n1. {'y' * (20_000 - 8)}\n[truncated {50_008 - 20_000} chars]"
    assert run("Read", file_path="fits").endswith("zzz")


def test_what_cannot_be_read(tools):
    files = {"d/x": b"", "bin": b"a\0b", "png": b"\x89PNG\r\n\x1a\n"}
    run = tools(files, prepare=lambda root: os.mkfifo(root / "pipe"))
    assert run("Read", file_path="d") == "IsADirectoryError: [Errno 21] Is a directory: 'd'"
    assert run("Read", file_path=".").startswith("IsADirectoryError: ")
    assert run("Read", file_path="no/such") == "FileNotFoundError: [Errno 2] No such file or directory: 'no/such'"
    assert run("Read", file_path="bin") == "ValueError: binary file"
    assert run("Read", file_path="png") == "ValueError: binary file"
    assert run("Read", file_path="pipe") == "ValueError: not a plain file"
    assert run("Read", file_path="d/x/y").startswith("NotADirectoryError: ")
    assert run("Read", file_path="a\0b") == "ValueError: embedded null byte"
    assert run("Read", file_path="n" * 300).startswith("OSError: [Errno 36] File name too long")
    assert run("Read", file_path="\ud800").startswith("UnicodeEncodeError: ")


def test_read_decodes_by_mark_and_cookie(tools):
    files = {
        "u16": "é\r\n😀\n".encode("utf-16"),
        "bom": codecs.BOM_UTF8 + b"a\n",
        "l1": b"# coding: latin-1\n\xe9\n",
        "unknown": b"caf\xe9s and more\n",
    }
    run = tools(files)
    assert run("Read", file_path="u16") == "u16\n1. é\n2. 😀"
    assert run("Read", file_path="bom") == "bom\n1. a"
    assert run("Read", file_path="l1") == "l1\n1. # coding: latin-1\n2. é"
    assert run("Read", file_path="unknown") == "unknown\n1. caf\ufffds and more"
    edited = run("Edit", file_path="unknown", old_string="more", new_string="less")
    assert edited.startswith("ValueError: the file is not UTF-8")
    assert run.data("unknown") == files["unknown"]


def test_write(tools):
    run = tools({"w.txt": b"a\r\nb\r\n", "u": codecs.BOM_UTF16_BE + "x\n".encode("utf-16-be"), "d/x": b""})
    assert run("Write", file_path="p/q/é.txt", content="héllo😀\n") == "Wrote p/q/é.txt (7 bytes)."
    assert run.data("p/q/é.txt") == "héllo😀\n".encode()
    assert run("Write", file_path="w.txt", content="c\nd\n") == "Wrote w.txt (4 bytes)."
    assert run.data("w.txt") == b"c\r\nd\r\n"
    assert run("Write", file_path="u", content="é\n") == "Wrote u (2 bytes)."
    assert run.data("u") == codecs.BOM_UTF16_BE + "é\n".encode("utf-16-be")
    assert run("Write", file_path="w.txt", content="") == "Wrote w.txt (0 bytes)."
    assert run.data("w.txt") == b""
    assert run("Write", file_path="d", content="x") == "IsADirectoryError: [Errno 21] Is a directory: 'd'"
    assert run("Write", file_path="d/new/", content="x").startswith("IsADirectoryError: ")
    assert run("Write", file_path="w.txt/below", content="x").startswith("NotADirectoryError: ")
    assert run("Write", file_path="lone", content="\ud800") == (
        "ValueError: U+D800 cannot be written in the file's encoding, utf-8"
    )
    assert run("Read", file_path="lone").startswith("FileNotFoundError: ")
    assert run("Write", path="by path", content="x") == "Wrote by path (1 bytes)."


def test_modes(tools):
    run = tools({"s.sh": b"#!/bin/sh\necho 1\n"}, prepare=lambda root: (root / "s.sh").chmod(0o755))
    run("Edit", file_path="s.sh", old_string="1", new_string="2")
    assert stat.S_IMODE(run.view.lstat(("s.sh",)).st_mode) == 0o755
    run("Write", file_path="s.sh", content="x")
    assert stat.S_IMODE(run.view.lstat(("s.sh",)).st_mode) == 0o755
    mask = os.umask(0)
    os.umask(mask)
    run("Write", file_path="new/file", content="x")
    assert stat.S_IMODE(run.view.lstat(("new", "file")).st_mode) == 0o666 & ~mask


def test_edit(tools):
    run = tools({"a.py": b"x = 1\r\nx = 2\n", "e": b""})
    assert run("Edit", file_path="a.py", old_string="x = 1\nx", new_string="y\nx") == "Edited a.py (1 replacement)."
    assert run.data("a.py") == b"y\r\nx = 2\n"
    answer = run("Edit", file_path="a.py", old_string="\n", new_string="\n\n", replace_all="yes")
    assert answer == "Edited a.py (2 replacements)."
    assert run.data("a.py") == b"y\r\n\r\nx = 2\n\n"
    assert run("Edit", file_path="a.py", old_string="", new_string="b") == "ValueError: old_string must be non-empty"
    assert run("Edit", file_path="a.py", old_string="b", new_string="b") == (
        "ValueError: old_string and new_string are the same"
    )
    assert run("Edit", file_path="e", old_string="zq", new_string="b") == "ValueError: old_string was not found"
    assert run("Edit", file_path="no", old_string="b", new_string="c").startswith("FileNotFoundError: ")
    assert run("Edit", file_path="a.py", old_string="\n", new_string="").startswith(
        "ValueError: old_string matched 4 times; set replace_all=true or use a more specific old_string\n"
    )


def test_links_that_stay_inside_are_followed(tools):
    run = tools(
        {
            "real/a.py": b"1\n",
            "file": "real/a.py",
            "folder": "real",
            "deep/up": "../folder/a.py",
            "two": "file",
            "new": "real/made.py",
        },
        prepare=lambda root: (root / "absolute").symlink_to(root / "real" / "a.py"),
    )
    for path in ("file", "folder/a.py", "deep/up", "two", "absolute", "folder/../real/a.py", "deep/../file"):
        assert run("Read", file_path=path) == "real/a.py\n1. 1"
    assert run("Edit", file_path="two", old_string="1", new_string="2") == "Edited real/a.py (1 replacement)."
    assert run.data("real/a.py") == b"2\n"
    assert stat.S_ISLNK(run.view.lstat(("two",)).st_mode)
    assert run("Write", file_path="new", content="x") == "Wrote real/made.py (1 bytes)."


@pytest.mark.parametrize(
    "target",
    ["../secret", "/etc/passwd", "d/../../secret", "{root}/../secret", "/proc/self/cwd/../secret", "out", "{root}x"],
)
def test_links_that_leave_are_refused(tools, target):
    files = {"d/x": b"", "out": "../secret", "outfolder": ".."}
    run = tools(files, prepare=lambda root: (root / "link").symlink_to(target.format(root=root)))
    for name, arguments in (
        ("Read", {}),
        ("Write", {"content": "overwritten"}),
        ("Edit", {"old_string": "top", "new_string": "no"}),
    ):
        for path in ("link", "outfolder/secret", "d/../link"):
            answer = run(name, file_path=path, **arguments)
            assert answer.startswith("PermissionError: ")
            assert "is a link that leaves the workspace; it is not followed" in answer
    assert (run.root.parent / "secret").read_bytes() == b"top secret\n"


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "{root}/../secret",
        "/etc/passwd",
        "{root}/d/../../secret",
        "d/../../secret",
        "{root}x/y",
        "/",
        "//etc",
    ],
)
def test_paths_that_leave_are_refused(tools, path):
    run = tools({"d/x": b""})
    path = path.format(root=run.root)
    assert run("Read", file_path=path) == f"PermissionError: {path} is outside the workspace"
    assert run("Write", file_path=path, content="x") == f"PermissionError: {path} is outside the workspace"
    assert run("Glob", pattern="*", path=path) == f"PermissionError: {path} is outside the workspace"


def test_loops_of_links_end(tools):
    run = tools({"a": "b", "b": "a", "self": "self/x"})
    for path in ("a", "self"):
        assert run("Read", file_path=path).startswith("OSError: [Errno 40] Too many levels of symbolic links")


def test_a_dangling_link_is_missing(tools):
    assert tools({"a": "nowhere"})("Read", file_path="a").startswith("FileNotFoundError: ")


def test_the_scratch_folder(tools):
    run = tools({"a": b"", "out": "../scratch/made"}, scratch=True)
    path = f"{run.root.parent}/scratch/sub/made"
    assert run("Write", file_path=path, content="x\n") == f"Wrote {path} (2 bytes)."
    assert run("Read", file_path=path) == f"{path}\n1. x"
    assert run("Edit", file_path=path, old_string="x", new_string="y") == f"Edited {path} (1 replacement)."
    assert run("Glob", pattern="**/m*", path=f"{run.root.parent}/scratch") == path
    assert run("Glob", pattern=f"{run.root.parent}/scratch/sub/*") == path
    assert run("Read", file_path=f"{run.root.parent}/scratch/../secret").endswith("is outside the workspace")
    (run.root.parent / "scratch" / "link").symlink_to("../secret")
    assert "leaves" in run("Read", file_path=f"{run.root.parent}/scratch/link")
    assert "leaves" in run("Read", file_path="out")


def test_names_that_are_not_utf8_are_shown_and_nothing_breaks(tools):
    name = os.fsdecode(b"caf\xe9")
    run = tools(prepare=lambda root: (root / name).write_bytes(b"x"))
    assert run("Read", file_path=name) == "caf\ufffd\n1. x"
    assert run("Glob", pattern="*") == "caf\ufffd"


@pytest.mark.skipif(sys.platform != "linux", reason="the file is of Linux alone")
def test_a_full_disk_leaves_the_old_bytes(tmp_path, monkeypatch):
    from agent.tools.runner import view as module

    fill(tmp_path, {"root/a": b"old text\n", "upper/x": b""})
    run = FileTools("openat2", tmp_path / "root", tmp_path / "upper")
    real = os.write

    def write(descriptor, data):
        if len(data) > 100:
            real(descriptor, bytes(data[:50]))
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(module.os, "write", write)
    for path in ("a", "new"):
        answer = run("Write", file_path=path, content="y" * 200)
        assert answer == f"OSError: [Errno 28] No space left on device: '{path}'"
    assert (tmp_path / "root" / "a").read_bytes() == b"old text\n"
    assert not (tmp_path / "root" / "new").exists()
    run.close()
