"""A trajectory as text: what `frog-lsp replay` shows."""

from __future__ import annotations

import io

from rich.console import Console

from agent.cli_show import Presenter, describe_place
from agent.observations import INVALID_CALL, in_order
from agent.trajectory import Restart, Trajectory, step_json
from agent.types import (
    CallProblem,
    ConversationRestarted,
    JsonObject,
    Observation,
    StepStarted,
    ToolFinished,
    TurnFinished,
)
from agent.visible import visible, visible_line

_WIDTH = 80


def describe(trajectory: Trajectory, *, when: str, full: bool) -> str:
    """The run again, step by step, within 80 columns; `full` gives whole thoughts and observations."""
    out = io.StringIO()
    console = Console(file=out, width=_WIDTH, highlight=False, markup=False, emoji=False, no_color=True)
    presenter = Presenter(console, with_estimate=False)
    model = trajectory.header.get("model") or {}
    workspace = describe_place(str(trajectory.header.get("workspace", "")))
    console.print(f"run {visible_line(str(trajectory.header.get('trajectory_id')))} {when}".rstrip())
    console.print(f"model {visible_line(str(model.get('name')))} in {visible_line(workspace)}")
    console.print(f"issue: {visible(trajectory.issue.text if full else trajectory.issue.title)}", soft_wrap=full)
    number = 0
    for entry in trajectory.entries:
        if isinstance(entry, Restart):
            presenter.show(ConversationRestarted(step=number + 1, user=entry.user))
            continue
        number += 1
        presenter.show(StepStarted(step=number))
        for text in (entry.turn.reasoning, entry.turn.content) if full else ():
            if text.strip():
                console.print(visible(text.strip()), soft_wrap=True)
        presenter.show(TurnFinished(step=number, turn=entry.turn))
        for item, observation in zip(in_order(entry.turn), entry.observations, strict=False):
            call = INVALID_CALL if isinstance(item, CallProblem) else item
            presenter.show(ToolFinished(step=number, call=call, observation=observation))
            if full:
                _print_whole(console, observation)
    console.print(_end(trajectory))
    return out.getvalue()


def _print_whole(console: Console, observation: Observation) -> None:
    for line in visible(observation.text).split("\n"):
        console.print(f"      | {line}", soft_wrap=True)


def _end(trajectory: Trajectory) -> str:
    outcome = trajectory.outcome
    if outcome is None:
        return "The run did not come to its end: go on with `frog-lsp fix WORKSPACE --resume FILE`."
    message = visible(str(outcome.get("final_message") or "")).strip()
    end = f"ended: {outcome.get('exit_reason')} after {outcome.get('n_steps')} steps, {outcome.get('elapsed_sec')} s"
    patch = visible(str(outcome.get("output_patch") or "")).rstrip()
    return "\n".join(part for part in (end, message, patch) if part)


def trajectory_json(trajectory: Trajectory) -> JsonObject:
    """The trajectory as one object."""
    return {
        "header": trajectory.header,
        "system": trajectory.system,
        "user": trajectory.user,
        "steps": [step_json(n, step.turn, step.observations) for n, step in enumerate(trajectory.steps, 1)],
        "outcome": trajectory.outcome,
    }
