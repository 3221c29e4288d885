"""What the bundled model is worth: its size, and how many projects it solves that it never saw."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from agent.model.locate import locate
from quant.tadpole.measure import attempt
from quant.tadpole.tasks import all_tasks
from tests.bench.table import Row, at_least, at_most, reported

N_SEEDS = 20
DEMO_TIMEOUT_S = 300


def solved(seed: int) -> bool:
    """Whether `frog-lsp demo --seed N` ends with tests that pass, through the real loop and the real jail."""
    command = [str(Path(sys.executable).parent / "frog-lsp"), "demo", "--seed", str(seed)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEMO_TIMEOUT_S, check=False)
    return done.returncode == 0


def rows() -> list[Row]:
    """Run the demonstration projects with the seeds 1 to 20, and the 200 tasks of the test set."""
    begun = time.perf_counter()
    n_solved = sum(solved(seed) for seed in range(1, N_SEEDS + 1))
    seconds = time.perf_counter() - begun
    outcomes = [attempt(task) for task in all_tasks()]
    n_turns = sum(o.n_turns for o in outcomes)
    n_valid = sum(o.n_valid for o in outcomes)
    return [
        at_least("agent/tadpole-200", sum(o.solved for o in outcomes), "tasks", 180, "the bar is 90 %; see its card"),
        at_least("agent/tadpole-valid-turns", 100 * n_valid / n_turns, "%", 97),
        at_most("agent/tadpole-false-claims", sum(o.claimed and not o.repaired for o in outcomes), "tasks", 0),
        at_most("weights/tadpole-size", Path(locate(None).path).stat().st_size / (1 << 20), "MiB", 16),
        at_least(f"weights/tadpole-solved-of-{N_SEEDS}", n_solved, "projects", 10, "seeds 1 to 20, never in training"),
        reported("weights/tadpole-project-s", seconds / N_SEEDS, "s"),
    ]
