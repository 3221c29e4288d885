"""Names and kinds of files that a hostile command may leave: what is collected of each, and what is applied.

The control of each is the view itself: the command made it there, or its answer says why not.
"""

# ruff: noqa: E501 - small programs, better read in one line

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.changes.changeset import assemble
from agent.jail.risk import flag
from agent.jail.session import JailSession, open_session
from agent.jail.spec import GIB, JailLimits, JailSpec
from agent.types import ChangeSet
from agent.worktree.baseline import Baseline
from agent.worktree.collect import Collected, collect
from tests.conftest import Seal
from tests.jail.test_jail_session import alive, zipapp

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

Deleted = None
Special = object()


@dataclass(frozen=True)
class Case:
    """`make` is Python, run in the jail in the folder of the case. `expected` are the paths there, and what follows.

    A value is the new bytes, `Deleted`, `Special` (neither bytes nor link), or a link's target as a string.
    `before` is in the real workspace; `kept_back` says that nothing of it is ever applied.
    """

    make: str
    expected: dict[str, object]
    before: dict[str, bytes] = field(default_factory=dict)
    kept_back: bool = False
    note: str = ""


CASES = {
    "newline": Case("write('new\\nline')", {"new\nline": b"x"}),
    "escape": Case("write('esc\\x1b[31m')", {"esc\x1b[31m": b"x"}),
    "dash": Case("write('-rf')", {"-rf": b"x"}),
    "direction": Case("write('\\u202egnp.py')", {"\u202egnp.py": b"x"}),
    "255-bytes": Case("write('n' * 255)", {"n" * 255: b"x"}),
    "past-path-max": Case("[(os.mkdir('d' * 50), os.chdir('d' * 50)) for _ in range(300)]; write('deep')", {}, note="nested deeper than 200"),
    "not-utf-8": Case("write(b'bad\\xff')", {"bad\udcff": b"x"}, kept_back=True),
    "case-twins": Case("write('Twin'); write('twin')", {"Twin": b"x", "twin": b"x"}),
    "fifo": Case("os.mkfifo('pipe')", {"pipe": Special}, kept_back=True),
    "socket": Case("__import__('socket').socket(1).bind('sock')", {"sock": Special}, kept_back=True),
    "mode-000-file": Case("write('closed'); os.chmod('closed', 0)", {"closed": b"x"}),
    "mode-000-folder": Case("os.mkdir('shut'); write('shut/in'); os.chmod('shut', 0)", {"shut/in": b"x"}),
    "file-to-folder": Case("os.unlink('a'); os.mkdir('a'); write('a/in')", {"a": Deleted, "a/in": b"x"}, {"a": b"old"}),
    "folder-to-file": Case("shutil.rmtree('a'); write('a')", {"a": b"x", "a/in": Deleted}, {"a/in": b"old"}),
    "folder-to-link": Case("shutil.rmtree('a'); os.symlink('/', 'a')", {"a": "/", "a/in": Deleted}, {"a/in": b"old"}),
    "file-to-link": Case("os.unlink('a'); os.symlink('/etc/passwd', 'a')", {"a": "/etc/passwd"}, {"a": b"old"}),
    "link-loop": Case("os.symlink('b', 'a'); os.symlink('a', 'b')", {"a": "b", "b": "a"}),
    "hard-link-inside": Case("os.link('a', 'b'); write('b')", {"a": b"x", "b": b"x"}, {"a": b"old"}),
    "5-gigabytes": Case("os.truncate(os.open('big', os.O_CREAT | os.O_RDWR), 5 << 30)", {"big": Special}, kept_back=True, note="too many for a proposal"),
    "under-git": Case("os.makedirs('.git/hooks'); write('.git/hooks/pre-commit')", {".git/hooks/pre-commit": Special}, kept_back=True),
}  # fmt: skip

# Makes each case in a folder and a process of its own; answers with what went wrong.
RUNNER = """
import json, os, shutil, sys
def write(name):
    with open(name, "wb") as file: file.write(b"x")
failed = {}
for folder, code in json.loads(sys.stdin.readline()).items():
    pid = os.fork()
    if pid == 0:
        try:
            os.makedirs(folder, exist_ok=True); os.chdir(folder); exec(code); os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{folder}: {error!r}\\n"); sys.stderr.flush(); os._exit(1)
    if os.waitpid(pid, 0)[1]: failed[folder] = "failed"
print(json.dumps(failed), flush=True)
"""


@dataclass(frozen=True)
class Found:
    collected: Collected
    changes: ChangeSet
    failed: dict[str, str]
    stderr: str


async def _make_all(workspace: Path) -> Found:
    spec = JailSpec(workspace=str(workspace), limits=JailLimits(file_bytes=8 * GIB))
    with Baseline(str(workspace), {}) as baseline:
        session = await open_session(spec, zipapp(RUNNER), backend="namespaces")
        session.writer.write(json.dumps({name: case.make for name, case in CASES.items()}).encode() + b"\n")
        failed = json.loads(await asyncio.wait_for(session.reader.readline(), 60))
        found = await _collected(session, baseline)
        await session.close()
    changes = flag(assemble(found.deltas), str(workspace), lambda _: False)
    return Found(found, changes, failed, session.stderr_tail())


async def _collected(session: JailSession, baseline: Baseline) -> Collected:
    view = await session.stop()
    try:
        return collect(view, baseline)
    finally:
        os.close(view.upper_fd)


@pytest.fixture(scope="module")
def found() -> Iterator[Found]:
    """All cases, made in one jail and collected at once; the real workspace is compared afterwards."""
    home = Path(tempfile.mkdtemp(prefix="frog-names-"))
    for name, case in CASES.items():
        for path, data in case.before.items():
            (home / name / path).parent.mkdir(parents=True, exist_ok=True)
            (home / name / path).write_bytes(data)
    seal = Seal()
    seal(home)
    yield asyncio.run(_make_all(home))
    seal.check()
    shutil.rmtree(home)


@pytest.mark.parametrize("name", CASES)
def test_name(name: str, found: Found) -> None:
    case = CASES[name]
    assert name not in found.failed, found.stderr
    deltas = {d.path.partition("/")[2]: d for d in found.collected.deltas if d.path.partition("/")[0] == name}
    assert set(deltas) == set(case.expected)
    for path, expected in case.expected.items():
        after = deltas[path].after
        if expected is Deleted:
            assert after is None
            continue
        assert after is not None
        if expected is Special:
            assert (after.data, after.link) == (None, None)
        elif isinstance(expected, str):
            assert after.link == expected
        else:
            assert after.data == expected
    if case.note:
        assert any(case.note in note for note in found.collected.notes), found.collected.notes
    changes = [change for change in found.changes.changes if change.path.partition("/")[0] == name]
    if case.kept_back:
        assert changes or any(name in note for note in found.changes.notes), "it is shown, or named"
        assert not any(change.applied_by_default for change in changes)
        assert all(any(known.level == "never" for known in change.flags) for change in changes)
    for change in changes:
        leaves = change.after is not None and (change.after.link or "").startswith("/")
        assert not (leaves and change.applied_by_default)


async def test_nothing_lives_while_changes_are_collected(workspace: Path) -> None:
    mark = f"7{os.getpid()}"
    source = (
        "import os, subprocess, sys\n"
        f"subprocess.Popen(['bash', '-c', 'while :; do echo $RANDOM$RANDOM >f; mv f g; mkdir -p d/e; rm -rf d; done', '{mark}'])\n"
        "while not os.path.exists('g'): pass\nprint('on', flush=True)\nsys.stdin.read()\n"
    )
    with Baseline(str(workspace), {}) as baseline:
        session = await open_session(JailSpec(workspace=str(workspace)), zipapp(source), backend="namespaces")
        assert await asyncio.wait_for(session.reader.readline(), 20) == b"on\n"
        assert alive(mark)
        first = await _collected(session, baseline)
        assert not alive(mark)
        await asyncio.sleep(0.05)
        assert await _collected(session, baseline) == first
        await session.close()
