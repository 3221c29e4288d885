"""Run a project through the product itself: the engine, the loop, the tools and the jail that users get."""

import asyncio
import shutil
import tempfile
from pathlib import Path

from agent.run import Run
from agent.run_id import new_run_id
from agent.types import Issue, Limits, ModelSpec, RunResult, RunSpec
from quant.tadpole.project import Project

_LIMITS = Limits(max_steps=20, time_s=900.0)


def run_project(made: Project, model: Path) -> RunResult:
    """One run over a fresh workspace."""
    folder = Path(tempfile.mkdtemp(prefix="tadpole-")).resolve()
    try:
        for path, text in made.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
        spec = RunSpec(
            run_id=new_run_id(),
            workspace=str(folder),
            issue=Issue(text=made.issue),
            model=ModelSpec(kind="worker", path=str(model)),
            limits=_LIMITS,
            test_command=made.test_command,
            seed=0,
        )
        result = asyncio.run(Run(spec, lambda _: None).execute())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if result.error is not None and not result.n_steps:  # nothing ran: this says nothing about the model
        raise RuntimeError(f"{result.error.message} {result.error.hint}")
    return result


def is_repaired(result: RunResult) -> bool:
    """Whether the tests failed before and pass with the proposal."""
    before, after = result.tests_before, result.tests_after
    return before is not None and before.exit_code != 0 and after is not None and after.exit_code == 0
