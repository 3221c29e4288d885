"""What a jailed run costs beside the work itself: its start, a call, collecting, in a tree of 100,000 files."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent.jail.session import JailSession, open_session
from agent.jail.spec import JailSpec
from agent.tools.bundle import runner_bundle
from agent.tools.host import ToolHost
from agent.types import ToolCall
from agent.worktree.baseline import Baseline
from agent.worktree.collect import collect
from tests.bench.table import Row, at_most, reported

N_FILES = 100_000
N_FOLDERS = 500
N_CHANGES = 10
ROUNDS = 9


def make_tree(root: Path) -> None:
    """Write a workspace of 100,000 small files in 500 folders."""
    for folder in range(N_FOLDERS):
        place = root / f"package_{folder:03}"
        place.mkdir()
        for number in range(N_FILES // N_FOLDERS):
            (place / f"module_{number:03}.py").write_bytes(b"value = %d\n" % number)


async def start_once(spec: JailSpec) -> tuple[float, JailSession, ToolHost]:
    """Seconds from nothing to a runner that answers, canaries included."""
    begun = time.perf_counter()
    session = await open_session(spec, runner_bundle(), backend="namespaces")
    host = ToolHost(session.reader, session.writer)
    await host.start()
    return time.perf_counter() - begun, session, host


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
    seconds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        subprocess.run(["bash", "-lc", "true"], cwd=root, env=environment, check=True, stdin=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def python_s() -> float:
    """Median seconds of a bare Python start: the machine's own measure, since a jailed run starts two."""
    seconds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        subprocess.run([os.path.realpath(sys.executable), "-I", "-S", "-c", "pass"], check=True)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


async def measure(root: Path) -> list[Row]:
    """Start, call, change, collect."""
    spec = JailSpec(workspace=str(root))
    starts = []
    for _ in range(ROUNDS + 1):
        seconds, session, host = await start_once(spec)
        starts.append(seconds)
        await host.close()
        await session.close()
    begun = time.perf_counter()
    baseline = Baseline(str(root), {})
    baseline_s = time.perf_counter() - begun
    _, session, host = await start_once(spec)
    read_s = await call_s(host, "Read", file_path="package_250/module_100.py")
    bash_s = await call_s(host, "Bash", command="true")
    for number in range(N_CHANGES):
        path = f"package_{number * 37:03}/module_{number:03}.py"
        edit = {"file_path": path, "old_string": f"value = {number}", "new_string": "value = None"}
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
    bound = f"{N_FILES} files"
    return [
        at_most(f"jail/start-{N_FILES}", (statistics.median(starts[1:]) + baseline_s) * 1e3, "ms", 100, bound),
        reported("jail/start-over-python", statistics.median(starts[1:]) / python_s(), "x", "python -I -S -c pass"),
        at_most("jail/read", read_s * 1e3, "ms", 3, bound),
        at_most("jail/bash-true", bash_s / plain_bash_s(root), "x", 3, "plain bash -lc true"),
        reported("jail/bash-true-ms", bash_s * 1e3, "ms"),
        at_most(f"jail/collect-{N_CHANGES}-of-{N_FILES}", collect_s * 1e3, "ms", 50, bound),
    ]


def rows() -> list[Row]:
    """Make the tree, measure, remove it."""
    with tempfile.TemporaryDirectory(prefix="frog-bench-") as folder:
        root = Path(folder, "workspace")
        root.mkdir()
        make_tree(root)
        return asyncio.run(measure(root))
