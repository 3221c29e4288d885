"""The loop of a run: the model speaks, its calls run in order, until there is a reason to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from agent.errors import ContextOverflow, FrogError, ModelQueryError, ModelUnavailable, ToolRunnerDied
from agent.observations import INVALID_CALL, describe_problem, in_order, repeats_itself
from agent.protocols import ChatModel, Recorder, ToolExecutor
from agent.stuck import Circles
from agent.types import (
    CallProblem,
    ExitReason,
    Limits,
    Observation,
    Prefill,
    RunError,
    StepStarted,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolStarted,
    Turn,
    TurnFinished,
    TurnSteered,
    Usage,
)

_REASONS: tuple[tuple[type[FrogError], ExitReason], ...] = (
    (ContextOverflow, ExitReason.MAX_CONTEXT_LEN),
    (ModelQueryError, ExitReason.LLM_QUERY_ERROR),
    (ModelUnavailable, ExitReason.MODEL_UNAVAILABLE),
    (ToolRunnerDied, ExitReason.TOOL_ERROR),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOutcome:
    """How the loop ended. `n_steps` counts the model's turns, resumed ones included; `usage` the new ones."""

    exit_reason: ExitReason
    final_message: str
    n_steps: int
    usage: Usage
    error: RunError | None = None


@dataclass(slots=True)
class _Progress:
    """What must outlive an interruption of the loop."""

    n_steps: int
    usage: Usage


async def run_loop(
    model: ChatModel,
    tools: ToolExecutor,
    recorder: Recorder,
    limits: Limits,
    *,
    clock: Callable[[], float] = time.monotonic,
    n_steps: int = 0,
) -> LoopOutcome:
    """Let a model that has begun its conversation work until an exit reason of the Leaf contract.

    `n_steps` counts the turns of a resumed run. To cancel, cancel the task; everything else is in the outcome.
    """
    progress = _Progress(n_steps, Usage())
    end = clock() + limits.time_s
    message, error = "", None
    try:
        async with asyncio.timeout(limits.time_s) as deadline:
            reason, message = await _take_turns(model, tools, recorder, limits, progress, lambda: clock() >= end)
    except TimeoutError:
        if not deadline.expired():
            raise
        reason = ExitReason.MAX_TIME
    except tuple(kind for kind, _ in _REASONS) as trouble:
        reason = next(reason for kind, reason in _REASONS if isinstance(trouble, kind))
        error = RunError(kind=trouble.kind, message=trouble.message, hint=trouble.hint)
    return LoopOutcome(
        exit_reason=reason, final_message=message, n_steps=progress.n_steps, usage=progress.usage, error=error
    )


async def _take_turns(
    model: ChatModel,
    tools: ToolExecutor,
    recorder: Recorder,
    limits: Limits,
    progress: _Progress,
    is_late: Callable[[], bool],
) -> tuple[ExitReason, str]:
    observations: list[Observation] = []
    circles = Circles()
    while True:
        if is_late():
            return ExitReason.MAX_TIME, ""
        if progress.n_steps >= limits.max_steps:
            return ExitReason.MAX_TURNS, ""
        step = progress.n_steps + 1
        recorder.record(StepStarted(step=step))
        turn = await model.generate(
            observations,
            lambda text, step=step: recorder.record(TextDelta(step=step, text=text)),  # type: ignore[misc]
            lambda done, total, step=step: recorder.record(Prefill(step=step, done=done, total=total)),  # type: ignore[misc]
        )
        progress.n_steps, progress.usage = step, progress.usage + turn.usage
        recorder.record(TurnFinished(step=step, turn=turn))
        if turn.forced:
            recorder.record(TurnSteered(step=step, forced=turn.forced))
        if turn.truncated:
            return _cut(turn, limits), turn.content
        if circles.is_beyond_nudging(turn):
            return ExitReason.STUCK, turn.content
        if not turn.calls and not turn.problems:
            return ExitReason.AGENT, turn.content
        observations = []
        for item in in_order(turn):
            observation = await answer(item, tools, recorder, step)
            observations.append(observation)
            if circles.closes_with(item, turn, observation):
                return ExitReason.STUCK, turn.content


async def answer(item: ToolCall | CallProblem, tools: ToolExecutor, recorder: Recorder, step: int) -> Observation:
    """Run a call, or name the format where there is none. Raises ToolRunnerDied."""
    if isinstance(item, CallProblem):
        call, observation = INVALID_CALL, describe_problem(item)
    else:
        call = item
        recorder.record(ToolStarted(step=step, call=call))
        observation = await tools.execute(call)
    recorder.record(ToolFinished(step=step, call=call, observation=observation))
    return observation


def _cut(turn: Turn, limits: Limits) -> ExitReason:
    if max(turn.context_tokens, turn.usage.prompt_tokens + turn.usage.completion_tokens) >= limits.context_tokens:
        return ExitReason.MAX_CONTEXT_LEN
    text = turn.raw if turn.raw is not None else f"{turn.reasoning}\n{turn.content}"
    return ExitReason.STUCK if repeats_itself(text) else ExitReason.MAX_TOKENS_PER_TURN
