"""Whatever is done in the real view: the change set, applied to a copy of the base, gives the tree that was there.

Each example is a folder of one workspace, so that one jail serves many of them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import tempfile
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agent.changes.apply import apply_to_disk
from agent.changes.changeset import assemble
from agent.changes.proposals import Proposal
from agent.jail.risk import flag
from agent.jail.session import open_session
from agent.jail.spec import JailSpec
from agent.types import ExitReason, FileState, JailInfo, ModelInfo
from agent.worktree.baseline import Baseline
from agent.worktree.collect import Collected, collect
from tests.jail.test_jail_session import zipapp
from tests.property.test_changes_diff import Tree, read
from tests.support import workspace_hash

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail"), pytest.mark.slow]

N_FOLDERS = 12

# Does what it is told in each folder, passing over what the system refuses; answers with the trees that came of it.
RUNNER = """
import base64, json, os, shutil, stat, sys

def do(name, path, value):
    if name == "write": open(path, "wb").write(value.encode())
    elif name == "append": open(path, "ab").write(value.encode())
    elif name == "mkdir": os.makedirs(path)
    elif name == "rename": os.rename(path, value)
    elif name == "move": shutil.move(path, value)
    elif name == "delete": (shutil.rmtree if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)
    elif name == "chmod": os.path.isfile(path) and os.chmod(path, value)
    elif name == "link": os.symlink(value, path)
    elif name == "hard": os.link(path, value)

def tree():
    found = {}
    for folder, folders, files in os.walk("."):
        for name in files + [f for f in folders if os.path.islink(os.path.join(folder, f))]:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            link = os.readlink(path) if stat.S_ISLNK(info.st_mode) else None
            data = None if link is not None else base64.b64encode(open(path, "rb").read()).decode()
            found[os.path.normpath(path)] = [data, stat.S_IMODE(info.st_mode), link]
    return found

answers, root = [], os.getcwd()
for number, steps in enumerate(json.loads(sys.stdin.readline())):
    os.chdir(os.path.join(root, str(number)))
    for step in steps:
        try: do(*step)
        except (OSError, shutil.Error): pass
    answers.append(tree())
print(json.dumps(answers), flush=True)
sys.stdin.read()
"""

PATHS = ("a", "b.py", "d", "d/x", "d/y", "d/e", "d/e/z", "n", "n/m")
paths = st.sampled_from(PATHS)
texts = st.sampled_from(("", "one\n", "one\ntwo\n", "zwei\n", "\0binary", "no end"))
modes = st.sampled_from((0o644, 0o755, 0o600, 0o444))
steps = st.one_of(
    st.tuples(st.sampled_from(("write", "append")), paths, texts),
    st.tuples(st.sampled_from(("mkdir", "delete")), paths, st.none()),
    st.tuples(st.sampled_from(("rename", "move", "hard")), paths, paths),
    st.tuples(st.just("chmod"), paths, modes),
    st.tuples(st.just("link"), paths, st.sampled_from(("a", "b.py", "nowhere"))),
)
bases = st.dictionaries(st.sampled_from(("a", "b.py", "d/x", "d/e/z", "n")), st.tuples(texts, modes), max_size=5)
examples = st.lists(st.tuples(bases, st.lists(steps, max_size=8)), min_size=N_FOLDERS, max_size=N_FOLDERS)


def _make(folder: str, base: dict[str, tuple[str, int]]) -> None:
    os.mkdir(folder)
    for name, (text, mode) in base.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text.encode())
        os.chmod(path, mode)


async def _work(workspace: str, orders: list[Any]) -> tuple[list[dict[str, Any]], Collected]:
    with Baseline(workspace, {}) as baseline:
        session = await open_session(JailSpec(workspace=workspace), zipapp(RUNNER), backend="namespaces")
        session.writer.write(json.dumps(orders).encode() + b"\n")
        trees = json.loads(await asyncio.wait_for(session.reader.readline(), 60))
        view = await session.stop()
        try:
            return trees, collect(view, baseline)
        finally:
            os.close(view.upper_fd)
            await session.close()


def _expected(trees: list[dict[str, Any]]) -> Tree:
    """The trees in one, with the modes that are kept: whether a file can be executed."""
    return {
        f"{number}/{path}": FileState(
            data=None if data is None else base64.b64decode(data),
            mode=0o777 if link is not None else 0o755 if mode & 0o100 else 0o644,
            link=link,
        )
        for number, tree in enumerate(trees)
        for path, (data, mode, link) in tree.items()
    }


@settings(max_examples=8, phases=(Phase.explicit, Phase.generate))  # a smaller example would take minutes to find
@given(examples)
def test_applying_what_was_collected_gives_the_tree_of_the_view(cases: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as root:
        workspace, copy = os.path.join(root, "workspace"), os.path.join(root, "copy")
        for top in (workspace, copy):
            os.mkdir(top)
            for number, (base, _) in enumerate(cases):
                _make(os.path.join(top, str(number)), base)
        before = workspace_hash(workspace, times=True)
        trees, collected = asyncio.run(_work(workspace, [steps for _, steps in cases]))
        assert workspace_hash(workspace, times=True) == before
        assert collected.notes == ()
        changes = flag(assemble(collected.deltas), copy, lambda _: False)
        proposal = Proposal(
            run_id="r", title="t", workspace=copy, folder=root, created_s=0.0, exit_reason=ExitReason.AGENT,
            final_message="", changes=changes, patch="", model=ModelInfo(kind="scripted", name="s"),
            jail=JailInfo(backend="namespaces"),
        )  # fmt: skip
        outcome = apply_to_disk(proposal, include_flagged=True)
        assert outcome.conflicts == outcome.failed == outcome.skipped == ()
        assert read(copy) == _expected(trees)
