"""The same operations on an overlay and on a private copy make the same changes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.jail import namespaces
from agent.jail.spec import JailSpec
from agent.types import PathDelta, PrivateView
from agent.worktree.baseline import Baseline
from agent.worktree.collect import collect

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail"), pytest.mark.slow]

# Does the operations of its first argument; those that cannot be done are left out.
SCRIPT = r"""
import json, os, shutil, sys

def move(a, b):
    if os.path.lexists(b):
        return
    try:
        os.rename(a, b)
    except OSError as error:
        if error.errno != 18:
            raise
        shutil.copytree(a, b, symlinks=True)  # an overlay does not rename folders
        shutil.rmtree(a)

def swap(a, b):
    move(a, "swap.tmp"); move(b, a); move("swap.tmp", b)

def write(path, text):
    with open(path, "w") as file:
        file.write(text)

def touch_back(path, text):
    # the same size and the old times: what a hostile process does to hide a change
    info = os.lstat(path)
    with open(path, "r+") as file:
        file.write(text[: info.st_size])
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))

def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)

CALLS = {
    "write": write, "touch_back": touch_back, "remove": remove, "move": move, "swap": swap,
    "mkdir": lambda a: os.makedirs(a), "symlink": lambda a, b: os.symlink(a, b), "link": lambda a, b: os.link(a, b),
    "chmod": lambda a, mode: os.chmod(a, mode), "touch": lambda a: os.utime(a), "truncate": lambda a: os.truncate(a, 0),
}
for name, *arguments in json.loads(sys.argv[1]):
    try:
        CALLS[name](*arguments)
    except (OSError, shutil.Error):
        continue
"""
FILES = {"a": "one\n", "b": "two\n", "d/x": "three\n", "d/y": "four\n", "d/e/z": "five\n", "f/x": "six!!\n"}
PATHS = ["a", "b", "new", "d", "d/x", "d/y", "d/e", "d/e/z", "d/e/new", "f", "f/x", "f/x/deep", "link", ".git/config"]
paths = st.sampled_from(PATHS)
texts = st.text("abc\n", max_size=8)
operations = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "touch_back"]), paths, texts),
        st.tuples(st.sampled_from(["remove", "mkdir", "touch", "truncate"]), paths),
        st.tuples(st.sampled_from(["move", "swap", "symlink", "link"]), paths, paths),
        st.tuples(st.just("chmod"), paths, st.sampled_from([0o644, 0o755, 0o600])),
    ),
    max_size=25,
)


def make_workspace(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("[core]\n")
    (folder / "link").symlink_to("d/x")


async def changes_of(workspace: Path, done: list[tuple[Any, ...]]) -> tuple[PathDelta, ...]:
    spec = JailSpec(workspace=str(workspace)).checked()
    null = os.open(os.devnull, os.O_WRONLY)
    with Baseline(spec.workspace, {}) as baseline:
        jail = await namespaces.start_namespaces(
            spec, b"", ("python3", "-c", SCRIPT, json.dumps(done)), outputs=(null, null)
        )
        os.close(null)
        try:
            await asyncio.wait_for(jail.finished(), 30)
            assert jail.wait_status == 0
            await jail.end()
            view = PrivateView(upper_fd=jail.view_fd(), lower=spec.workspace, copied=jail.copied)
            found = collect(view, baseline)
            assert found.notes == ()
            return found.deltas
        finally:
            await jail.end()
            jail.close()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(done=operations)
def test_a_copy_shows_what_an_overlay_shows(done: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(tempfile.mkdtemp(prefix="frog-lsp-test-"))
    try:
        make_workspace(folder)
        time.sleep(0.02)  # the clock of file systems has ticks
        by_overlay = asyncio.run(changes_of(folder, done))
        with monkeypatch.context() as patched:
            patched.setattr(namespaces, "can_have_overlay", lambda *_: False)
            by_copy = asyncio.run(changes_of(folder, done))
        assert by_copy == by_overlay
    finally:
        shutil.rmtree(folder)
