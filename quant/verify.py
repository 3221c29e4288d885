"""Checking the kept models against the hashes that were taken when they came."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent.errors import ModelFileError, UsageError
from agent.model.admission import admit
from agent.model.installed import InstalledModel, find_damage, installed_models
from quant.store import mark_checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome for one model. `problem` is None where the file is as it was."""

    model: InstalledModel
    problem: str | None


def verify(names: Iterable[str] = (), on_progress: Callable[[str, int, int], None] | None = None) -> list[Verdict]:
    """Hash the named models, or all. `on_progress` gets (name, bytes hashed, bytes in all).

    Raises UsageError where a name is not kept.
    """
    models = installed_models()
    chosen = list(names) or list(models)
    for name in chosen:
        if name not in models:
            raise UsageError(f"no model called {name} is kept", f"Kept: {', '.join(models) or 'none'}.")
    return [_verify(models[name], on_progress) for name in chosen]


def _verify(model: InstalledModel, on_progress: Callable[[str, int, int], None] | None) -> Verdict:
    def report(done: int, total: int) -> None:
        if on_progress is not None:
            on_progress(model.name, done, total)

    problem = find_damage(model, always_hash=True, on_progress=report)
    if problem is None:
        try:
            admit(model.path)
        except ModelFileError as error:
            problem = error.message
        else:
            mark_checked(model)
    return Verdict(model=model, problem=problem)
