"""What a run costs beside the model: a scripted model answers at once, so all that is left is ours."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from unittest import mock

from agent.run import Run
from agent.types import ExitReason, Issue, ModelSpec, RunSpec
from tests.bench.table import Row, reported

N_STEPS = 20
ROUNDS = 5


def script(folder: Path, n_reads: int) -> Path:
    """A file of turns: reads, then one edit, then the end."""
    turns: list[dict[str, object]] = [
        {"calls": [{"name": "Read", "arguments": {"file_path": "a.py", "offset": n + 1}}]} for n in range(n_reads)
    ]
    edit = {"file_path": "a.py", "old_string": "value_1 = 1", "new_string": "value_1 = 2"}
    turns += [{"calls": [{"name": "Edit", "arguments": edit}]}, {"content": "Done."}]
    path = folder / f"turns-{n_reads}.json"
    path.write_text(json.dumps(turns))
    return path


def run_s(workspace: Path, turns: Path) -> float:
    """Seconds of one whole run: jail, loop, collecting, proposal."""
    spec = RunSpec(
        run_id=f"bench-{time.monotonic_ns()}",
        workspace=str(workspace),
        issue=Issue(text="Set value_1 to 2."),
        model=ModelSpec(kind="scripted", path=str(turns)),
    )
    begun = time.perf_counter()
    result = asyncio.run(Run(spec, lambda _event: None).execute())
    assert result.exit_reason is ExitReason.AGENT, result
    assert len(result.changes.changes) == 1, result
    return time.perf_counter() - begun


def rows() -> list[Row]:
    """A run with one step more or less tells the cost of a step; the shortest run that of the frame."""
    with tempfile.TemporaryDirectory(prefix="frog-bench-") as name:
        folder = Path(name)
        workspace = folder / "workspace"
        workspace.mkdir()
        (workspace / "a.py").write_text("".join(f"value_{n} = {n}\n" for n in range(100)))
        short, long = script(folder, 1), script(folder, N_STEPS)
        with mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(folder / "state")}):
            run_s(workspace, short)
            shorts = [run_s(workspace, short) for _ in range(ROUNDS)]
            longs = [run_s(workspace, long) for _ in range(ROUNDS)]
    frame, whole = statistics.median(shorts), statistics.median(longs)
    return [
        reported("agent/run-without-model", frame * 1e3, "ms", "3 steps: jail, tools, collecting, proposal"),
        reported("agent/step", (whole - frame) / (N_STEPS - 1) * 1e3, "ms", "one Read, recorded and flushed"),
    ]
