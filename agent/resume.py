"""A trajectory played again: the same calls in a fresh private view, and the same answers, or it is refused."""

from __future__ import annotations

from dataclasses import replace

from agent.errors import ResumeError, UsageError
from agent.loop import answer
from agent.observations import in_order, without_durations
from agent.protocols import ChatModel, Recorder, ToolExecutor
from agent.trajectory import Restart, Step, Trajectory
from agent.types import CallProblem, ConversationRestarted, JsonObject, Observation, StepStarted, Turn, TurnFinished


def check_resumable(trajectory: Trajectory) -> None:
    """Raises UsageError for a trajectory with nothing to go on from."""
    if not trajectory.user:
        raise UsageError("the trajectory has no issue", "Start the run anew with `frog-lsp fix`.")
    steps = trajectory.steps
    if steps and not in_order(steps[-1].turn):
        raise UsageError("the run of this trajectory had come to its end", "Start a new run with `frog-lsp fix`.")


async def replay(
    trajectory: Trajectory,
    model: ChatModel,
    tools: ToolExecutor,
    recorder: Recorder,
    system: str,
    schemas: tuple[JsonObject, ...],
) -> int:
    """Bring tools and model to where the trajectory ends; gives the number of steps.

    The model has begun with the trajectory's first user turn. The last step may lack observations: its other
    calls run now. Raises ResumeError where an answer differs (durations aside).
    """
    n_steps = 0
    played: list[tuple[Turn, list[Observation]]] = []
    for entry in trajectory.entries:
        if isinstance(entry, Restart):
            await model.begin(system, schemas, entry.user)
            for turn, observations in played[len(played) - entry.n_kept :]:
                await model.recall(turn, observations)
            recorder.record(ConversationRestarted(step=n_steps + 1, user=entry.user, n_kept=entry.n_kept))
            continue
        n_steps += 1
        recorder.record(StepStarted(step=n_steps))
        recorder.record(TurnFinished(step=n_steps, turn=entry.turn))
        observations = await _run_again(entry, n_steps, tools, recorder)
        await model.recall(entry.turn, observations)
        played.append((entry.turn, observations))
    return n_steps


async def _run_again(step: Step, number: int, tools: ToolExecutor, recorder: Recorder) -> list[Observation]:
    observations: list[Observation] = []
    for index, item in enumerate(in_order(step.turn)):
        now = await answer(item, tools, recorder, number)
        then = step.observations[index] if index < len(step.observations) else now
        if without_durations(now.text) != without_durations(then.text):
            what = "an unreadable call" if isinstance(item, CallProblem) else item.name
            raise ResumeError(
                f"step {number}, {what}: the outcome differs from the trajectory's",
                "The workspace or the machine has changed since. Start the run anew with `frog-lsp fix`.",
            )
        observations.append(replace(now, text=then.text))
    return observations
