"""The loop of the Leaf contract: order, truncation, problems, and every reason to end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agent.errors import ContextOverflow, FrogError, ModelQueryError, ModelUnavailable, ToolRunnerDied
from agent.loop import LoopOutcome, run_loop
from agent.observations import in_order, repeats_itself, with_nudge, without_durations
from agent.protocols import OnPrefill, OnText
from agent.types import (
    CallProblem,
    ExitReason,
    Forced,
    Limits,
    ModelInfo,
    Observation,
    RunEvent,
    StepStarted,
    ToolCall,
    ToolFinished,
    ToolStarted,
    Turn,
    TurnFinished,
    TurnSteered,
    Usage,
)


def bash(command: str, **more: Any) -> ToolCall:
    return ToolCall(name="Bash", arguments={"command": command, **more})


def turn(*calls: ToolCall, **more: Any) -> Turn:
    return Turn(calls=calls, usage=Usage(prompt_tokens=10, completion_tokens=2), **more)


class Turns:
    """A ChatModel that plays turns, raises what is an exception, and remembers what it was told."""

    def __init__(self, *turns: Turn | Exception | float) -> None:
        self.turns = list(turns)
        self.seen: list[list[Observation]] = []
        self.begun: list[str] = []
        self.recalled = 0

    async def open(self, limits: Limits) -> ModelInfo:
        return ModelInfo(kind="scripted", name="turns")

    async def begin(self, system: str, tools: Sequence[Any], user: str) -> None:
        self.begun.append(user)

    async def recall(self, turn: Turn, observations: Sequence[Observation]) -> None:
        self.recalled += 1

    async def generate(self, observations: Sequence[Observation], on_text: OnText, on_prefill: OnPrefill) -> Turn:
        self.seen.append(list(observations))
        item = self.turns.pop(0)
        if isinstance(item, Exception):
            raise item
        if isinstance(item, (int, float)):
            await asyncio.sleep(item)
            return turn()
        on_prefill(1, 1)
        on_text(item.content)
        return item

    async def close(self) -> None:
        pass


class Echo:
    """Answers each call with its arguments, numbered where `numbered`."""

    def __init__(self, numbered: bool = True) -> None:
        self.calls: list[ToolCall] = []
        self.numbered = numbered

    async def execute(self, call: ToolCall) -> Observation:
        self.calls.append(call)
        if call.arguments.get("command") == "die":
            raise ToolRunnerDied("the runner ended")
        if call.arguments.get("command") == "sleep":
            await asyncio.sleep(30)
        number = f" {len(self.calls)}" if self.numbered else ""
        return Observation(tool=call.name, text=f"{dict(call.arguments)}{number}", call_id=call.id)


class Events:
    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def record(self, event: RunEvent) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


async def play(
    *turns: Turn | Exception | float, tools: Echo | None = None, limits: Limits | None = None, **more: Any
) -> tuple[LoopOutcome, Turns, Echo, Events]:
    model, tools, events = Turns(*turns), tools or Echo(), Events()
    outcome = await run_loop(model, tools, events, limits or Limits(), **more)
    return outcome, model, tools, events


async def test_a_reply_without_calls_ends_the_run() -> None:
    outcome, model, _, events = await play(turn(bash("ls")), turn(content="Done."))
    assert outcome == LoopOutcome(
        exit_reason=ExitReason.AGENT,
        final_message="Done.",
        n_steps=2,
        usage=Usage(prompt_tokens=20, completion_tokens=4),
    )
    assert model.seen == [[], [Observation(tool="Bash", text="{'command': 'ls'} 1")]]
    assert [event.step for event in events.of(StepStarted)] == [1, 2]
    assert len(events.of(TurnFinished)) == 2


async def test_an_empty_reply_ends_the_run_too() -> None:
    outcome, *_ = await play(turn())
    assert (outcome.exit_reason, outcome.final_message) == (ExitReason.AGENT, "")


async def test_many_calls_of_a_turn_run_in_order() -> None:
    _, model, tools, events = await play(turn(bash("a"), bash("b"), bash("c")), turn())
    assert [call.arguments["command"] for call in tools.calls] == ["a", "b", "c"]
    assert [item.text[-1] for item in model.seen[1]] == ["1", "2", "3"]
    kinds = [type(event) for event in events.events if isinstance(event, ToolStarted | ToolFinished)]
    assert kinds == [ToolStarted, ToolFinished] * 3


async def test_a_cut_turn_runs_nothing() -> None:
    outcome, _, tools, _ = await play(turn(truncated=True, content="half", context_tokens=50))
    assert (outcome.exit_reason, outcome.final_message) == (ExitReason.MAX_TOKENS_PER_TURN, "half")
    assert tools.calls == []


async def test_a_turn_cut_by_the_context_limit() -> None:
    limits = Limits(context_tokens=100)
    outcome, *_ = await play(turn(truncated=True, context_tokens=100), limits=limits)
    assert outcome.exit_reason is ExitReason.MAX_CONTEXT_LEN
    full = Turn(truncated=True, usage=Usage(prompt_tokens=90, completion_tokens=10))
    assert (await play(full, limits=limits))[0].exit_reason is ExitReason.MAX_CONTEXT_LEN


async def test_a_cut_turn_that_repeats_its_lines_is_stuck() -> None:
    raw = "Let me think.\n" + "Wait, maybe not.\nActually, yes.\n" * 200 + "Wait, may"
    outcome, *_ = await play(turn(truncated=True, raw=raw))
    assert outcome.exit_reason is ExitReason.STUCK


async def test_the_same_call_with_the_same_result_three_times_is_stuck() -> None:
    outcome, _, tools, _ = await play(turn(bash("x")), turn(bash("x"), bash("x")), turn(), tools=Echo(numbered=False))
    assert outcome.exit_reason is ExitReason.STUCK
    assert len(tools.calls) == 3
    assert outcome.n_steps == 2


async def test_the_same_call_with_other_results_goes_on() -> None:
    outcome, *_ = await play(*[turn(bash("x"))] * 5, turn(content="ok"))
    assert outcome.exit_reason is ExitReason.AGENT


@pytest.mark.parametrize("n", [2, 3])
async def test_a_round_of_calls_three_times_is_stuck(n: int) -> None:
    """A file that is not where the issue says: read, look for it, read, look for it."""
    a_round = [turn(bash(str(i))) for i in range(n)]
    outcome, _, tools, _ = await play(turn(bash("x")), *a_round * 5, tools=Echo(numbered=False))
    assert outcome.exit_reason is ExitReason.STUCK
    assert len(tools.calls) == 1 + 3 * n


async def test_a_longer_round_or_one_with_another_result_goes_on() -> None:
    outcome, *_ = await play(*[turn(bash(str(i))) for i in range(4)] * 4, turn(), tools=Echo(numbered=False))
    assert outcome.exit_reason is ExitReason.AGENT
    outcome, *_ = await play(*[turn(bash("edit")), turn(bash("test"))] * 5, turn())
    assert outcome.exit_reason is ExitReason.AGENT


async def test_a_call_between_breaks_the_row() -> None:
    turns = [turn(bash("x")), turn(bash("x")), turn(bash("y")), turn(bash("x")), turn(bash("x")), turn()]
    outcome, *_ = await play(*turns, tools=Echo(numbered=False))
    assert outcome.exit_reason is ExitReason.AGENT


async def test_limits_of_steps_and_time() -> None:
    outcome, *_ = await play(*[turn(bash("x"))] * 4, limits=Limits(max_steps=3))
    assert (outcome.exit_reason, outcome.n_steps) == (ExitReason.MAX_TURNS, 3)
    outcome, *_ = await play(30.0, limits=Limits(time_s=0.05))
    assert (outcome.exit_reason, outcome.n_steps) == (ExitReason.MAX_TIME, 0)
    outcome, *_ = await play(turn(bash("sleep")), limits=Limits(time_s=0.05))
    assert (outcome.exit_reason, outcome.n_steps) == (ExitReason.MAX_TIME, 1)


async def test_the_clock_is_the_given_one() -> None:
    ticks = iter([0.0, 1.0, 10.0])
    outcome, *_ = await play(turn(bash("x")), limits=Limits(time_s=9.0), clock=lambda: next(ticks))
    assert (outcome.exit_reason, outcome.n_steps) == (ExitReason.MAX_TIME, 1)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ContextOverflow("full"), ExitReason.MAX_CONTEXT_LEN),
        (ModelQueryError("401", "Set the key."), ExitReason.LLM_QUERY_ERROR),
        (ModelUnavailable("the worker died"), ExitReason.MODEL_UNAVAILABLE),
    ],
)
async def test_trouble_of_the_model(error: FrogError, reason: ExitReason) -> None:
    outcome, *_ = await play(turn(bash("x")), error)
    assert (outcome.exit_reason, outcome.n_steps) == (reason, 1)
    assert outcome.error is not None
    assert (outcome.error.message, outcome.error.hint) == (error.message, error.hint)


async def test_a_dead_runner() -> None:
    outcome, *_ = await play(turn(bash("die")))
    assert outcome.exit_reason is ExitReason.TOOL_ERROR


async def test_other_exceptions_are_not_swallowed() -> None:
    with pytest.raises(TimeoutError):
        await play(TimeoutError())


async def test_cancel_is_cancelling_the_task() -> None:
    task = asyncio.create_task(play(30.0))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_bad_call_becomes_an_observation_and_its_neighbours_run() -> None:
    problem = CallProblem(index=1, call=None, message="the block does not close")
    _, model, tools, _ = await play(turn(bash("a"), bash("b"), problems=(problem,)), turn())
    texts = [item.text for item in model.seen[1]]
    assert len(texts) == 3
    assert "the block does not close" in texts[1]
    assert "<tool_call>\n<function=NAME>\n<parameter=KEY>" in texts[1]
    assert [call.arguments["command"] for call in tools.calls] == ["a", "b"]


async def test_a_turn_with_problems_only_is_answered_and_goes_on() -> None:
    problem = CallProblem(index=0, call=None, message="no closing tag")
    outcome, model, *_ = await play(turn(problems=(problem,)), turn(content="ok"))
    assert (outcome.exit_reason, outcome.n_steps) == (ExitReason.AGENT, 2)
    assert len(model.seen[1]) == 1


async def test_the_same_unreadable_turn_three_times_is_stuck_and_others_are_not() -> None:
    problem = CallProblem(index=0, call=None, message="no closing tag")
    same = turn(problems=(problem,), raw="<tool_call>")
    assert (await play(*[same] * 4))[0].exit_reason is ExitReason.STUCK
    others = [turn(problems=(problem,), raw=f"<tool_call>{n}") for n in range(4)]
    assert (await play(*others, turn()))[0].exit_reason is ExitReason.AGENT


async def test_a_problem_of_a_listed_call_leaves_the_answer_to_the_tool() -> None:
    problem = CallProblem(index=0, call=0, message="timeout is no number")
    _, model, tools, _ = await play(turn(bash("a", timeout="soon"), problems=(problem,)), turn())
    assert len(tools.calls) == len(model.seen[1]) == 1


async def test_a_resumed_run_counts_on() -> None:
    outcome, _, _, events = await play(turn(bash("x")), turn(), n_steps=7)
    assert outcome.n_steps == 9
    assert [event.step for event in events.of(StepStarted)] == [8, 9]


def stopped(kind: str, **more: Any) -> Turn:
    return with_nudge(
        turn(forced=(Forced(kind=kind, text="", n_tokens=0),), truncated=kind == "answer_repeats", **more)
    )


async def test_a_turn_in_circles_is_nudged_once_and_then_stuck() -> None:
    circle = stopped("answer_repeats", raw="again\nagain\n")
    outcome, model, tools, events = await play(circle, turn(bash("ls")), turn(content="Done."))
    assert (outcome.exit_reason, outcome.n_steps) == (ExitReason.AGENT, 3)
    assert "repeated the same lines" in model.seen[1][0].text
    assert [call.arguments["command"] for call in tools.calls] == ["ls"]
    assert events.of(TurnSteered) == [TurnSteered(step=1, forced=circle.forced)]
    assert (await play(circle, circle))[0].exit_reason is ExitReason.STUCK
    between = await play(circle, turn(bash("ls")), circle, turn(content="Done."))
    assert between[0].exit_reason is ExitReason.AGENT


@pytest.mark.parametrize("kind", ["thought_limit", "thought_repeats"])
async def test_a_closed_thought_with_nothing_behind_it_is_never_an_empty_done(kind: str) -> None:
    empty = stopped(kind, reasoning="Well,")
    outcome, model, *_ = await play(empty, turn(content="Done."))
    assert (outcome.exit_reason, outcome.final_message) == (ExitReason.AGENT, "Done.")
    assert "no tool call followed" in model.seen[1][0].text
    assert (await play(empty, empty))[0].exit_reason is ExitReason.STUCK
    said = stopped(kind, content="It works.")
    assert (await play(said))[0].final_message == "It works."
    called = with_nudge(turn(bash("ls"), forced=empty.forced))
    assert (await play(called, turn(content="ok")))[2].calls


def test_blocks_in_order_whatever_the_indices() -> None:
    first, last = (CallProblem(index=index, call=None, message="?") for index in (0, 9))
    assert in_order(turn(bash("a"), problems=(first, last))) == [first, bash("a"), last]


def test_durations_do_not_make_a_difference() -> None:
    assert without_durations("Ran 3 tests in 0.004s\n3 passed in 12.1 seconds") == "Ran 3 tests in #s\n3 passed in #s"
    assert without_durations("x = 5\n2 items") == "x = 5\n2 items"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("same\n" * 40, True),
        ("intro\n" + "a\nb\nc\n" * 20 + "a\nb", True),
        ("\n".join(f"line {n}" for n in range(100)), False),
        ("same\n" * 5, False),
        ("", False),
        ("\n".join(f"line {n}" for n in range(100)) + "\nsame" * 14, False),
    ],
)
def test_what_repeats_itself(text: str, expected: bool) -> None:
    assert repeats_itself(text) is expected
