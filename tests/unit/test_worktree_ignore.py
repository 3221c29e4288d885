"""The rules of `.gitignore`, judged by git itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent.worktree.ignore import ignore_rules
from agent.worktree.installed import installed_modules

RULES = {
    ".gitignore": "*.log\n!keep.log\nbuild/\n/only_here\nfoo/*\n!foo/keep\ndoc/**/x\n# comment\n\\#hash\ntrail \\ \n"
    "[ab].tmp\nüml.txt\n!deep/back.log\n*.d\n",
    "sub/.gitignore": "!*.log\n*.txt\n/a/b\n",
    "sub/inner/.gitignore": "*.log\r\n!q.txt\r\n",
    "build/.gitignore": "!*\n",
    ".git/info/exclude": "secret*\n",
}  # fmt: skip
PATHS = """
a.log keep.log x/keep.log build/x sub/build/y only_here sub/only_here foo/a foo/keep foo/keep/z
doc/x doc/a/b/x #hash a.tmp c.tmp üml.txt deep/back.log sub/z.log sub/t.txt sub/a/b sub/x/a/b sub/inner/w.log
sub/inner/q.txt secret secret/file sub/secrets pack.d/file plain.py sub/plain.py tracked.log
"""


def git(root: Path, *arguments: str, text: str | None = None) -> str:
    environment = {**os.environ, "HOME": str(root), "XDG_CONFIG_HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *arguments], cwd=root, input=text, capture_output=True, text=True, env=environment)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "tracked.log").write_text("x")
    git(tmp_path, "add", "-f", "tracked.log")
    for name, text in RULES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return tmp_path


def test_as_git_says(repository: Path) -> None:
    said = git(repository, "check-ignore", "-z", "--stdin", text="\0".join(PATHS.split())).split("\0")[:-1]
    is_ignored = ignore_rules(str(repository))
    assert [path for path in PATHS.split() if is_ignored(path)] == said
    assert "tracked.log" not in said


def test_a_workspace_below_the_root_of_its_repository(repository: Path) -> None:
    is_ignored = ignore_rules(str(repository / "sub"))
    assert is_ignored("t.txt")
    assert is_ignored("secrets")
    assert is_ignored("build/y")
    assert not is_ignored("z.log")


def test_no_repository_no_rules_and_bad_rules(tmp_path: Path) -> None:
    assert not ignore_rules(str(tmp_path))("a/b.log")
    (tmp_path / ".gitignore").write_bytes(b"!\n\xff\n//\n*.log\n")
    assert ignore_rules(str(tmp_path))("a/b.log")
    (tmp_path / ".gitignore").unlink()
    os.mkfifo(tmp_path / ".gitignore")
    assert not ignore_rules(str(tmp_path))("a/b.log")


def test_a_linked_working_tree_uses_the_exclude_file_of_its_repository(repository: Path, tmp_path: Path) -> None:
    git(repository, "-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "x")
    git(repository, "worktree", "add", "-q", str(repository / "wt"))
    is_ignored = ignore_rules(str(repository / "wt"))
    assert is_ignored("secret")
    assert not is_ignored("plain.py")


def test_modules_of_the_environment(tmp_path: Path) -> None:
    assert installed_modules(str(tmp_path)) == frozenset()
    packages = tmp_path / ".venv" / "lib" / "python3.11" / "site-packages"
    for name in ("alpha", "alpha-1.0.dist-info", "__pycache__", "_private"):
        (packages / name).mkdir(parents=True)
    for name in ("beta.py", "gamma.cpython-311-x86_64-linux-gnu.so", "x.pth", "README.txt"):
        (packages / name).touch()
    assert installed_modules(str(tmp_path)) == {"alpha", "beta", "gamma", "_private"}
