"""Measure a model file on the test set, or on issues that are not for it, in the product's own loop and jail."""

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.model.locate import BUNDLED
from agent.models import DEMONSTRATION_TURN_TOKENS
from agent.run import Run
from agent.run_id import new_run_id
from agent.types import Issue, Limits, ModelSpec, RunEvent, RunResult, RunSpec, Turn, TurnFinished
from quant.tadpole import foreign, tasks
from quant.tadpole.product import is_repaired
from quant.tadpole.project import TEST_COMMAND
from quant.tadpole.tasks import Task

_LIMITS = Limits(max_steps=20, time_s=600.0, tokens_per_turn=DEMONSTRATION_TURN_TOKENS)  # as the bundled model has


@dataclass(frozen=True)
class Outcome:
    """What came of one task."""

    name: str
    kind: str
    by_hand: bool
    solved: bool  # the tests failed before, pass now, and nothing but the faulty line changed
    repaired: bool  # the tests failed before and pass now
    claimed: bool  # the last message says that the tests pass
    changed: bool
    n_turns: int
    n_valid: int  # turns that are a call which can be run, or the last message
    seconds: float
    reason: str
    message: str


def run(files: dict[str, str], issue: str, model: Path) -> tuple[RunResult, list[Turn]]:
    """One run over a fresh workspace, and what the model said."""
    folder = Path(tempfile.mkdtemp(prefix="tadpole-")).resolve()
    turns: list[Turn] = []

    def listen(event: RunEvent) -> None:
        if isinstance(event, TurnFinished):
            turns.append(event.turn)

    try:
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
        spec = RunSpec(
            run_id=new_run_id(), workspace=str(folder), issue=Issue(text=issue),
            model=ModelSpec(kind="worker", path=str(model)), limits=_LIMITS, test_command=TEST_COMMAND, seed=0,
        )  # fmt: skip
        result = asyncio.run(Run(spec, listen).execute())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if result.error is not None and not result.n_steps:  # nothing ran: this says nothing about the model
        raise RuntimeError(f"{result.error.message} {result.error.hint}")
    return result, turns


def _is_valid(turn: Turn) -> bool:
    return not turn.problems and not turn.truncated and bool(turn.calls or turn.content.strip())


def attempt(task: Task, model: Path = BUNDLED) -> Outcome:
    """Let a model work on a task."""
    begun = time.monotonic()
    result, turns = run(task.files, task.issue, model)
    repaired = is_repaired(result)
    changes = result.changes.changes
    clean = [c.path for c in changes] == [task.path] and task.is_clean(_after(result))
    return _outcome(task.name, task.kind, task.by_hand, repaired and clean, result, turns, time.monotonic() - begun)


def attempt_foreign(case: foreign.Case, model: Path = BUNDLED) -> Outcome:
    """Let a model look at an issue that is not for it."""
    begun = time.monotonic()
    result, turns = run(case.files, case.issue, model)
    return _outcome(case.name, case.kind, True, False, result, turns, time.monotonic() - begun)


def _after(result: RunResult) -> str:
    state = result.changes.changes[0].after
    return "" if state is None or state.data is None else state.data.decode("utf-8", "replace")


def _outcome(
    name: str, kind: str, by_hand: bool, solved: bool, result: RunResult, turns: list[Turn], seconds: float
) -> Outcome:  # fmt: skip
    claimed = "the tests pass" in result.final_message
    n_valid = sum(_is_valid(turn) for turn in turns)
    return Outcome(
        name, kind, by_hand, solved, is_repaired(result), claimed, bool(result.changes.changes), len(turns), n_valid,
        round(seconds, 2), result.exit_reason.value, result.final_message,
    )  # fmt: skip


def table(outcomes: Iterable[Outcome]) -> str:
    """The counts by kind, as Markdown."""
    all_of = list(outcomes)
    lines = ["| kind | solved | by hand | generated |", "|---|---|---|---|"]
    for kind in [*dict.fromkeys(o.kind for o in all_of), "all"]:
        cells = []
        for wanted in ((True, False), (True,), (False,)):
            chosen = [o for o in all_of if kind in (o.kind, "all") and o.by_hand in wanted]
            cells.append(f"{sum(o.solved for o in chosen)} of {len(chosen)}")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    n_turns, n_valid = sum(o.n_turns for o in all_of), sum(o.n_valid for o in all_of)
    false = sum(o.claimed and not o.repaired for o in all_of)
    lines.append(f"\nvalid turns: {n_valid} of {n_turns} ({n_valid / max(n_turns, 1):.1%}); false claims: {false}")
    return "\n".join(lines)


def main() -> None:
    """Measure on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?", default=BUNDLED)
    parser.add_argument("--foreign", action="store_true", help="the issues that are not for it")
    parser.add_argument("--sample", action="store_true", help="the twenty of the tests only")
    parser.add_argument("--json", type=Path, help="write the outcomes there, one a line, and go on from what is there")
    args = parser.parse_args()
    done: dict[str, Outcome] = {}
    if args.json and args.json.exists():
        done = {o.name: o for o in (Outcome(**json.loads(line)) for line in args.json.read_text("utf-8").splitlines())}
    cases = foreign.cases() if args.foreign else tasks.sample() if args.sample else tasks.all_tasks()
    for case in cases:
        if case.name in done:
            continue
        outcome = attempt(case, args.model) if isinstance(case, Task) else attempt_foreign(case, args.model)
        done[case.name] = outcome
        if args.json:
            with args.json.open("a", encoding="utf-8") as out:
                out.write(json.dumps(vars(outcome)) + "\n")
        good = outcome.solved if isinstance(case, Task) else not outcome.changed
        print(f"{'+' if good else '-'} {outcome.name:14} {outcome.seconds:5.1f} s  {outcome.message!r}", flush=True)
    print(table(done[case.name] for case in cases))


if __name__ == "__main__":
    main()
