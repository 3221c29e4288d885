"""What counts as a change, and of which kind."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agent.changes.changeset import assemble, changes_json
from agent.changes.diff import patch, select
from agent.errors import UsageError
from agent.types import ChangeKind, FileState, PathDelta

A, B = FileState(data=b"a\n"), FileState(data=b"b\n")
EXECUTABLE = FileState(data=b"a\n", mode=0o755)
LINK, OTHER = FileState(data=None, mode=0o777, link="a"), FileState(data=None, mode=0o777, link="b")


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (None, A, ChangeKind.CREATED), (A, B, ChangeKind.MODIFIED), (A, None, ChangeKind.DELETED),
        (A, EXECUTABLE, ChangeKind.MODE), (EXECUTABLE, B, ChangeKind.MODIFIED), (None, LINK, ChangeKind.LINK),
        (LINK, OTHER, ChangeKind.LINK), (A, LINK, ChangeKind.LINK), (LINK, A, ChangeKind.LINK),
        (LINK, None, ChangeKind.DELETED), (A, A, None), (LINK, FileState(data=None, mode=0o644, link="a"), None),
        (None, FileState(data=b""), ChangeKind.CREATED), (A, FileState(data=None), ChangeKind.MODIFIED),
    ],
)  # fmt: skip
def test_kinds(before: FileState | None, after: FileState | None, kind: ChangeKind | None) -> None:
    changes = assemble([PathDelta(path="p", before=before, after=after)]).changes
    assert [change.kind for change in changes] == ([] if kind is None else [kind])


def test_a_rename_needs_the_very_same_bytes() -> None:
    def renames(*deltas: tuple[str, FileState | None, FileState | None]) -> list[tuple[str | None, str]]:
        made = assemble(PathDelta(path=path, before=before, after=after) for path, before, after in deltas)
        return [(change.old_path, change.path) for change in made.changes if change.kind is ChangeKind.RENAMED]

    assert renames(("old", A, None), ("new", None, A)) == [("old", "new")]
    assert renames(("old", A, None), ("new", None, EXECUTABLE)) == [("old", "new")]
    assert renames(("old", A, None), ("new", None, B)) == []
    assert renames(("old", A, None), ("new", B, A)) == [], "it was there before"
    assert renames(("old", LINK, None), ("new", None, LINK)) == []
    two = renames(("x/a", A, None), ("x/b", A, None), ("y/b", None, A), ("y/c", None, A), ("y/d", None, A))
    assert two == [("x/b", "y/b"), ("x/a", "y/c")], "same names first"


def test_caches_are_counted_and_git_is_named() -> None:
    paths = ["a/__pycache__/x.pyc", "b.pyc", ".pytest_cache/v", ".mypy_cache/x", "sub/.ruff_cache/y"]
    inside = [".git/config", "sub/.git/hooks/x", "wt/.git", ".GIT/config"]
    changes = assemble((PathDelta(path=path, before=None, after=A) for path in [*paths, *inside, "z", "c"]), ["n"])
    assert [change.path for change in changes.changes] == ["c", "z"]
    assert changes.n_generated == 5
    assert changes.omitted == tuple(sorted(inside))
    assert changes.notes[0] == "n"
    assert all(path in changes.notes[1] for path in inside)
    assert [c.path for c in assemble([PathDelta(path=".gitignore", before=None, after=A)]).changes] == [".gitignore"]


def test_the_rows_of_json_are_valid_unicode() -> None:
    made = assemble([
        PathDelta(path="b\udcff", before=None, after=B), PathDelta(path="old", before=A, after=None),
        PathDelta(path="new", before=None, after=A),
    ])  # fmt: skip
    rows = changes_json(made)
    assert rows == [
        {"path": "b\\xff", "kind": "created", "flags": [], "applied_by_default": True},
        {"path": "new", "kind": "renamed", "old_path": "old", "flags": [], "applied_by_default": True},
    ]
    json.dumps(rows, ensure_ascii=False).encode()


def test_git_reads_a_mode_that_it_does_not_keep(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\n")
    text = patch(assemble([PathDelta(path="f", before=A, after=FileState(data=b"a\n", mode=0o600))]))
    assert "f" in text
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    done = subprocess.run(["git", "apply"], cwd=tmp_path, input=text.encode(), capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_the_patch_is_what_git_writes(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments: str) -> bytes:
        command = ["git", "-c", "core.abbrev=12", "-c", "core.autocrlf=false", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, env=environment).stdout

    before = {"a b": FileState(data=b"1\n2\n3"), "gone": A, "moved": FileState(data=b"m\n" * 9), "to_link": A}
    after = {
        "a b": FileState(data=b"1\r\n2\n3\n", mode=0o755), "\u00e9": FileState(data=b""), "l": LINK,
        "to": FileState(data=b"m\n" * 9, mode=0o755), "to_link": OTHER,
    }  # fmt: skip
    for tree in (before, after):
        git("init", "-q")
        for path in tmp_path.iterdir():
            if path.name != ".git":
                path.unlink()
        for name, state in tree.items():
            if state.link is not None:
                (tmp_path / name).symlink_to(state.link)
            else:
                (tmp_path / name).write_bytes(state.data or b"")
                (tmp_path / name).chmod(state.mode)
        git("add", "-A")
        if tree is before:
            git("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "x")
    deltas = [
        PathDelta(path=name, before=before.get(name), after=after.get(name)) for name in before.keys() | after.keys()
    ]
    assert patch(assemble(deltas)).encode() == git("diff", "--cached", "-M100%", "--no-color", "--no-ext-diff")
    assert patch(assemble([])) == ""


def test_parts_are_named_as_people_write_them() -> None:
    made = assemble([PathDelta(path="d/a", before=A, after=B), PathDelta(path="d/b", before=A, after=B)])
    assert [change.path for change in select(made, files=["./d//a"]).changes] == ["d/a"]
    with pytest.raises(UsageError, match="d/c"):
        select(made, files=["d/c"])
    assert [change.path for change in select(made, files=["d/a"], hunks=[1, 2]).changes] == ["d/a"]
    assert select(made, files=["d/a"], hunks=[2]).changes == ()
    assert select(made, files=[], hunks=None).changes == ()
