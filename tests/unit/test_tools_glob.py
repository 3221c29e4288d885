from __future__ import annotations

import os

import pytest

from tests.runner_process import KINDS, FileTools, fill

FILES = {
    "a.py": b"",
    "b.txt": b"",
    "d/c.py": b"",
    "d/e/f.py": b"",
    "d/e/g.TXT": b"",
    ".hidden": b"",
    ".github/workflows/ci.yml": b"",
    "d/.dot/x.py": b"",
    ".git/config": b"",
    ".git/hooks/a.py": b"",
    "sub/.git": b"gitdir: x",
    "sub/[odd].py": b"",
    "sub/é😀.py": b"",
    "odd[1]/x": b"",
    "link.py": "a.py",
    "leaves.py": "/etc/passwd",
    "dangling.py": "nowhere.py",
    "folder": "d",
}


@pytest.fixture(params=KINDS)
def run(request, tmp_path):
    root, upper = tmp_path / "workspace", tmp_path / "upper"
    for folder in (root, upper):
        folder.mkdir()
    fill(root, FILES)
    os.mkfifo(root / "pipe.py")
    tools = FileTools(request.param, root, upper)
    yield tools
    tools.close()


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ["a.py", "link.py"]),
        ("**/*.py", ["a.py", "d/c.py", "d/e/f.py", "link.py", "sub/[odd].py", "sub/é😀.py"]),
        (
            "**",
            ["a.py", "b.txt", "d/c.py", "d/e/f.py", "d/e/g.TXT", "link.py", "odd[1]/x", "sub/[odd].py", "sub/é😀.py"],
        ),
        ("**/**/c.py", ["d/c.py"]),
        ("d/**", ["d/c.py", "d/e/f.py", "d/e/g.TXT"]),
        ("d/**/*.py", ["d/c.py", "d/e/f.py"]),
        ("**/e/*", ["d/e/f.py", "d/e/g.TXT"]),
        ("d/e/*.txt", []),
        ("?.py", ["a.py"]),
        ("[ab].*", ["a.py", "b.txt"]),
        ("[!a].*", ["b.txt"]),
        ("a.py", ["a.py"]),
        ("./a.py", ["a.py"]),
        ("d/../a.py", ["a.py"]),
        ("d/../*.txt", ["b.txt"]),
        ("d", []),
        ("d/", []),
        ("a.py/", []),
        ("*/*.py", ["d/c.py", "sub/[odd].py", "sub/é😀.py"]),
        (".*", [".hidden"]),
        (".github/**/*.yml", [".github/workflows/ci.yml"]),
        ("**/.dot/*", ["d/.dot/x.py"]),
        ("d/.*/*.py", ["d/.dot/x.py"]),
        (".git/*", []),
        (".git/**", []),
        (".git/config", []),
        ("**/.git/config", []),
        (".*/config", []),
        ("**/.git", []),
        ("folder/*.py", []),
        ("folder/**/*.py", []),
        ("nowhere/*.py", []),
        ("a.py/*", []),
        ("[z-a]", []),
        ("***.py", ["a.py", "link.py"]),
        ("**.py", ["a.py", "link.py"]),
        ("\n", []),
        (".", []),
        ("..", []),
        ("./", []),
    ],
)
def test_patterns(run, pattern, expected):
    assert run("Glob", pattern=pattern) == ("\n".join(expected) or "No files matched.")


def test_where_it_starts(run):
    assert run("Glob", pattern="*.py", path="d") == "d/c.py"
    assert run("Glob", pattern="*.py", path=str(run.root / "d")) == "d/c.py"
    assert run("Glob", pattern=f"{run.root}/d/*.py") == "d/c.py"
    assert run("Glob", pattern=f"{run.root}/a.py") == "a.py"
    assert run("Glob", pattern="../*.txt", path="d") == "b.txt"
    assert run("Glob", pattern="*", path="odd[1]") == "odd[1]/x"
    assert run("Glob", pattern="folder/*.py", path=".") == "No files matched."
    assert run("Glob", pattern="*.py", path="folder") == "d/c.py"
    assert run("Glob", pattern="*.py", path="no/such") == "No files matched."
    assert run("Glob", pattern="*.py", path="a.py") == "No files matched."
    assert run("Glob", pattern="*", path=".git") == "No files matched."
    assert run("Glob", pattern="*", path=".git/hooks") == "No files matched."


@pytest.mark.parametrize("pattern", ["../*", "/etc/*", "d/../../*", "/**"])
def test_never_outside(run, pattern):
    answer = run("Glob", pattern=pattern)
    assert answer.startswith("PermissionError: ")
    assert answer.endswith("is outside the workspace")


def test_at_most_a_thousand(tmp_path):
    for i in range(1_003):
        (tmp_path / f"{i:04}.t").touch()
    run = FileTools("openat2", tmp_path, tmp_path)
    lines = run("Glob", pattern="*.t").split("\n")
    assert (len(lines), lines[0], lines[999], lines[1000]) == (1001, "0000.t", "0999.t", "... 3 more files")
    run.close()


def test_deep_folders(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d" * 40, dir_fd=folder)
        below = os.open("d" * 40, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    (tmp_path / "x.py").touch()
    run = FileTools("components", tmp_path, tmp_path)
    assert run("Glob", pattern="**/*.py") == "x.py"
    run.close()
