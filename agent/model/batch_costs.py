"""What batches were measured to cost on this machine, kept in the cache folder: small files, one a model and build.

A drafting that does not pay is measured again when the model is loaded the next times, since the machine may have been
busy; what pays stays as it is, so that a run that is repeated drafts as before.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.config import cache_dir, load_json_object, write_json_atomically
from agent.errors import UsageError
from agent.model.speculation import BatchCosts

MOST_FILES = 32
MOST_MEASUREMENTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Costs, how often they were measured, and the day of the last time (ISO, of this machine's clock)."""

    costs: BatchCosts
    n_times: int
    day: str

    @property
    def is_final(self) -> bool:
        """Whether it is not measured again."""
        return self.costs.pays or self.n_times >= MOST_MEASUREMENTS


class CostStore:
    """The costs of one model file, in one build of the engine, with one number of threads: what `facts` say."""

    def __init__(self, folder: Path, model_path: str, facts: Mapping[str, Any]) -> None:
        self._folder = folder
        self._model_path = os.path.realpath(model_path)
        key = json.dumps([self._model_path, dict(facts)], sort_keys=True)
        self._path = folder / f"{_model_key(self._model_path)}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"

    def load(self) -> Measured | None:
        """What is kept; None where there is nothing that can be read."""
        return _read(self._path)

    def store(self, costs: BatchCosts) -> Measured:
        """Keep them, joined with what is kept already: of each size the least. A disk that is full keeps nothing."""
        before = self.load()
        if before is not None:
            least = {size: min(cost, before.costs.cost(size)) for size, cost in costs.by_size.items()}
            costs = BatchCosts(by_size=least)
        # As they will be read again: the next load drafts as this one.
        costs = BatchCosts(by_size={size: round(cost, 3) for size, cost in costs.by_size.items()})
        n_times = 1 + (before.n_times if before is not None else 0)
        made = Measured(costs=costs, n_times=n_times, day=datetime.now().astimezone().date().isoformat())
        sizes = {str(size): cost for size, cost in costs.by_size.items()}
        try:
            write_json_atomically(self._path, {"costs": sizes, "n_times": n_times, "day": made.day})
            for path in _files(self._folder, "*")[:-MOST_FILES]:
                path.unlink(missing_ok=True)
        except (UsageError, OSError):
            return made  # it is measured again
        return made


def costs_folder() -> Path:
    """Where they are kept."""
    return cache_dir() / "costs"


def last_measured(model_path: str) -> Measured | None:
    """The newest costs of a model file, whatever the build and the threads were; None where nothing was measured."""
    for path in reversed(_files(costs_folder(), f"{_model_key(os.path.realpath(model_path))}-*")):
        if (found := _read(path)) is not None:
            return found
    return None


def _model_key(real_path: str) -> str:
    return hashlib.sha256(os.fsencode(real_path)).hexdigest()[:16]


def _files(folder: Path, pattern: str) -> list[Path]:
    """The files, the oldest first."""
    dated = []
    for path in folder.glob(f"{pattern}.json"):
        try:
            dated.append((path.stat().st_mtime_ns, path))
        except OSError:
            continue
    return [path for _, path in sorted(dated)]


def _read(path: Path) -> Measured | None:
    try:
        said = load_json_object(path)
        by_size = {int(size): float(cost) for size, cost in said["costs"].items()}
        if 1 not in by_size or any(not 1.0 <= cost < 1e6 for cost in by_size.values()):
            return None
        return Measured(costs=BatchCosts(by_size=by_size), n_times=int(said["n_times"]), day=str(said["day"]))
    except (UsageError, KeyError, ValueError, TypeError, AttributeError):
        return None
