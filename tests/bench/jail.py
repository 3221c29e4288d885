"""What a jailed run costs beside the work itself: its start, a call, collecting, in trees of three sizes.

Beside each figure stands what the plain way costs in the same run: `cp -a` the tree, start bubblewrap over the
copy, compare the two with `git diff --no-index`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.jail.session import JailSession, open_session
from agent.jail.spec import JailSpec
from agent.tools.bundle import runner_bundle
from agent.tools.host import ToolHost
from agent.types import ToolCall
from agent.worktree.baseline import Baseline
from agent.worktree.collect import collect
from tests.bench.table import Row, at_most, reported

SIZES = (100, 10_000, 100_000)
FILES_IN_FOLDER = 200
N_CHANGES = 10
ROUNDS = 9


def make_tree(root: Path, n_files: int) -> list[Path]:
    """Write a workspace of small files, 200 in a folder; their paths relative to it."""
    paths = []
    for number in range(n_files):
        path = Path(f"package_{number // FILES_IN_FOLDER:03}", f"module_{number % FILES_IN_FOLDER:03}.py")
        if number % FILES_IN_FOLDER == 0:
            (root / path).parent.mkdir()
        (root / path).write_bytes(b"value = %d\n" % number)
        paths.append(path)
    return paths


def median_s(action: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Median seconds of an action."""
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


@dataclass(frozen=True, slots=True)
class PlainWay:
    """Seconds of the plain way over the same tree; None where bubblewrap is missing."""

    copy_s: float | None
    start_s: float | None
    bash_s: float | None
    read_s: float | None
    diff_s: float | None

    def named(self, words: str, *seconds: float | None) -> str:
        """`words` with the milliseconds that these take together."""
        if any(s is None for s in seconds):
            return "bubblewrap is missing"
        return f"{words}: {sum(s or 0.0 for s in seconds) * 1e3:,.0f} ms"


def plain_way(root: Path, paths: list[Path]) -> PlainWay:
    """Copy, jail with bubblewrap, change ten files, compare; the copy is removed."""
    if not shutil.which("bwrap"):
        return PlainWay(None, None, None, None, None)
    copy = root.with_name("copy")
    copy_s = median_s(lambda: subprocess.run(["cp", "-a", root, copy], check=True), 1)
    jail = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"]
    jail += ["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev"]
    jail += ["--bind", str(copy), str(root), "--chdir", str(root)]

    def run(*command: str) -> Callable[[], object]:
        return lambda: subprocess.run([*jail, *command], check=True, capture_output=True, stdin=subprocess.DEVNULL)

    try:
        start_s, bash_s, read_s = (
            median_s(run(*command)) for command in (["true"], ["bash", "-lc", "true"], ["cat", str(paths[-1])])
        )
        for path in paths[:: max(1, len(paths) // N_CHANGES)][:N_CHANGES]:
            (copy / path).write_bytes(b"value = None\n")
        diff = ["git", "diff", "--no-index", "--quiet", str(root), str(copy)]
        diff_s = median_s(lambda: subprocess.run(diff, capture_output=True), 1)
    finally:
        shutil.rmtree(copy)
    return PlainWay(copy_s, start_s, bash_s, read_s, diff_s)


async def start_once(spec: JailSpec) -> tuple[float, JailSession, ToolHost]:
    """Seconds from nothing to a runner that answers, canaries included."""
    begun = time.perf_counter()
    session = await open_session(spec, runner_bundle(), backend="namespaces")
    host = ToolHost(session.reader, session.writer)
    await host.start()
    return time.perf_counter() - begun, session, host


async def start_s(root: Path) -> float:
    """Median seconds of a start, with the snapshot of the tree that a run takes."""
    starts = []
    for _ in range(ROUNDS + 1):
        seconds, session, host = await start_once(JailSpec(workspace=str(root)))
        starts.append(seconds)
        await host.close()
        await session.close()
    begun = time.perf_counter()
    Baseline(str(root), {}).close()
    return statistics.median(starts[1:]) + time.perf_counter() - begun


async def call_s(host: ToolHost, name: str, **arguments: object) -> float:
    """Median seconds of one tool call."""
    seconds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        await host.execute(ToolCall(name=name, arguments=arguments))
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def plain_bash_s(root: Path) -> float:
    """Median seconds of `bash -lc true` outside, in the same folder; no profile of the person who measures."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(root)}
    command = ["bash", "-lc", "true"]
    return median_s(lambda: subprocess.run(command, cwd=root, env=environment, check=True, stdin=subprocess.DEVNULL))


async def work(root: Path, paths: list[Path], plain: PlainWay) -> list[Row]:
    """The rows of one run: calls, ten changes, collecting them."""
    baseline = Baseline(str(root), {})
    _, session, host = await start_once(JailSpec(workspace=str(root)))
    read_s = await call_s(host, "Read", file_path=str(paths[-1]))
    bash_s = await call_s(host, "Bash", command="true")
    for number, path in list(enumerate(paths))[:: len(paths) // N_CHANGES][:N_CHANGES]:
        edit = {"file_path": str(path), "old_string": f"value = {number}", "new_string": "value = None"}
        answer = await host.execute(ToolCall(name="Edit", arguments=edit))
        assert answer.text.startswith("Edited"), answer.text
    await host.close()
    view = await session.stop()
    try:
        begun = time.perf_counter()
        collected = collect(view, baseline)
        collect_s = time.perf_counter() - begun
    finally:
        os.close(view.upper_fd)
        await session.close()
    assert len(collected.deltas) == N_CHANGES, len(collected.deltas)
    by_bwrap = plain.named("bwrap bash -lc true", plain.bash_s)
    return [
        at_most("jail/read", read_s * 1e3, "ms", 3, plain.named("bwrap cat", plain.read_s)),
        at_most("jail/bash-true", bash_s / plain_bash_s(root), "x", 3, "plain bash -lc true"),
        reported("jail/bash-true-ms", bash_s * 1e3, "ms", by_bwrap),
        at_most(
            f"jail/collect-{N_CHANGES}-of-{len(paths)}",
            collect_s * 1e3,
            "ms",
            50,
            plain.named("git diff --no-index", plain.diff_s),
        ),
    ]


def rows() -> list[Row]:
    """For each size make the tree, measure both ways, remove it; then the calls in the largest one."""
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    python_s = median_s(lambda: subprocess.run([python, "-I", "-S", "-c", "pass"], check=True))
    found: list[Row] = []
    starts = []
    for n_files in SIZES:
        with tempfile.TemporaryDirectory(prefix="frog-bench-") as folder:
            root = Path(folder, "workspace")
            root.mkdir()
            paths = make_tree(root, n_files)
            plain = plain_way(root, paths)
            starts.append(asyncio.run(start_s(root)))
            baseline = plain.named("cp -a + bwrap true", plain.copy_s, plain.start_s)
            found.append(at_most(f"jail/start-{n_files}", starts[-1] * 1e3, "ms", 100, baseline))
            if n_files == SIZES[-1]:
                found += asyncio.run(work(root, paths, plain))
    growth = f"{SIZES[-1]} files over {SIZES[0]}"
    found.append(at_most("jail/start-growth", starts[-1] / starts[0], "x", 2, growth))
    found.append(reported("jail/start-over-python", starts[0] / python_s, "x", "python -I -S -c pass"))
    return found
