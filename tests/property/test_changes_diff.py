"""The patch, judged by git itself: `git apply` on the base gives the changed tree, and back."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.changes.changeset import assemble
from agent.changes.diff import hunks, patch, select
from agent.types import ChangeSet, FileState, PathDelta

Tree = dict[str, FileState]

# --- trees ----------------------------------------------------------------------------------------------------

lines = st.sampled_from(
    [b"a\n", b"b\n", b"c\n", b"\n", b"a\r\n", b"b\r\n", b"x\ry\r", b"\r", "é€😀\n".encode(), b"- a\n", b"+++ b\n",
     b"@@ -1 +1 @@\n", b"\\ No newline\n", b"\x0c\n", "u\u2028v\n".encode(), b"\t \n"]
)  # fmt: skip
tails = st.sampled_from([b"", b"", b"", b"end", b"\r", b"\xc3", b"\x00", b"a"])
texts = st.builds(lambda body, tail: b"".join(body) + tail, st.lists(lines, max_size=30), tails)
binaries = st.one_of(st.binary(max_size=200), st.binary(min_size=90, max_size=120).map(lambda b: b * 40))
contents = st.one_of(texts, texts, texts, binaries)
files = st.builds(lambda data, mode: FileState(data=data, mode=mode), contents, st.sampled_from([0o644, 0o644, 0o755]))
links = st.sampled_from(["a", "../x", "tärget", "no newline", "bad\udcff"]).map(
    lambda target: FileState(data=None, mode=0o777, link=target)
)
states = st.one_of(files, files, files, links)
names = st.sampled_from(
    [
        "a",
        "b.py",
        "d",
        "d/f",
        "d/e.txt",
        "d/f/g",
        "with space",
        "d/tab\there",
        'quo"te',
        "back\\slash",
        "ünï.py",
        "new\nline",
        "-x",
    ]
)


def without_clashes(tree: Tree) -> Tree:
    """A file cannot be the folder of another."""
    return {
        name: state for name, state in tree.items() if not any(name != n and n.startswith(name + "/") for n in tree)
    }


trees = st.dictionaries(names, states, max_size=6).map(without_clashes)


@st.composite
def edited(draw: st.DrawFn) -> tuple[Tree, Tree]:
    """A tree and what became of it: files edited, moved, removed, made, turned into links."""
    before = draw(trees)
    after = dict(draw(trees)) if draw(st.booleans()) else {}
    for name, state in before.items():
        fate = draw(st.sampled_from(["keep", "edit", "edit", "mode", "drop", "move", "new"]))
        if fate == "edit" and state.data is not None:
            kept = state.data.splitlines(keepends=True)
            at = draw(st.integers(0, len(kept)))
            n_gone = draw(st.integers(0, 3))
            kept[at : at + n_gone] = draw(st.lists(lines, max_size=3))
            after[name] = FileState(data=b"".join(kept), mode=state.mode)
        elif fate == "mode" and state.data is not None:
            after[name] = FileState(data=state.data, mode=state.mode ^ 0o111)
        elif fate == "move":
            after.setdefault("moved/" + name, state)
        elif fate in ("keep", "edit", "mode"):
            after[name] = state
    return before, without_clashes(after)


def delta(before: Tree, after: Tree) -> ChangeSet:
    return assemble(
        PathDelta(path=name, before=before.get(name), after=after.get(name))
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    )


def write(root: str, tree: Tree) -> None:
    for name, state in tree.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if state.link is not None:
            os.symlink(state.link, path)
        else:
            with open(path, "wb") as file:
                file.write(state.data or b"")
            os.chmod(path, state.mode)


def read(root: str) -> Tree:
    tree: Tree = {}
    for folder, folders, found in os.walk(root):
        if ".git" in folders:
            folders.remove(".git")
        for name in found + [f for f in folders if os.path.islink(os.path.join(folder, f))]:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, root)
            if os.path.islink(path):
                tree[relative] = FileState(data=None, mode=0o777, link=os.readlink(path))
            else:
                mode = 0o755 if os.stat(path).st_mode & stat.S_IXUSR else 0o644
                with open(path, "rb") as file:
                    tree[relative] = FileState(data=file.read(), mode=mode)
    return tree


def git_apply(root: str, text: str, *options: str) -> None:
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", *options], cwd=root, input=text.encode("utf-8"), capture_output=True,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(root), "GIT_CONFIG_NOSYSTEM": "1", "HOME": root},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode() + "\n" + text


GIT = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@GIT
@given(edited())
def test_git_apply_gives_the_changed_tree_and_back(pair: tuple[Tree, Tree]) -> None:
    before, after = pair
    text = patch(delta(before, after))
    with tempfile.TemporaryDirectory() as root:
        write(root, before)
        if not text:
            assert before == after
            return
        git_apply(root, text)
        assert read(root) == after
        git_apply(root, text, "-R")
        assert read(root) == before


@GIT
@given(contents, contents, st.data())
def test_hunks_taken_one_by_one_apply_alone_and_add_up(before: bytes, after: bytes, data: st.DataObject) -> None:
    whole = delta({"f": FileState(data=before)}, {"f": FileState(data=after)})
    numbers = [hunk.number for hunk in hunks(whole)]
    assert numbers == list(range(1, len(numbers) + 1))
    if not numbers:
        return
    some = set(data.draw(st.lists(st.sampled_from(numbers), min_size=1)))
    part = select(whole, hunks=some)
    assert len(hunks(part)) == len(some)
    made = part.changes[0].after
    assert made is not None
    assert made.data is not None
    with tempfile.TemporaryDirectory() as root:
        write(root, {"f": FileState(data=before)})
        git_apply(root, patch(part))
        assert read(root)["f"].data == made.data
    rest = delta({"f": made}, {"f": FileState(data=after)})
    assert {h.text.split("\n", 1)[1] for h in hunks(rest)} == {
        h.text.split("\n", 1)[1] for h in hunks(whole) if h.number not in some
    }


@pytest.mark.parametrize("n_lines", [200, 20_000])
def test_a_long_file_with_few_edits_has_small_hunks(n_lines: int) -> None:
    old = [b"line %d\n" % (i % 977) for i in range(n_lines)]
    new = [*old]
    for at in range(50, n_lines, n_lines // 5):
        new[at : at + 1] = [b"changed\n", b"and more\n"]
    whole = delta({"f": FileState(data=b"".join(old))}, {"f": FileState(data=b"".join(new))})
    assert sum(hunk.n_old for hunk in hunks(whole)) <= 7 * len(hunks(whole))
