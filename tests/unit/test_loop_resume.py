"""A trajectory played again: the same answers, or it is refused; a restart of the conversation is one again."""

from __future__ import annotations

import pytest

from agent.errors import ResumeError, UsageError
from agent.resume import check_resumable, replay
from agent.trajectory import Restart, Step, Trajectory
from agent.types import ConversationRestarted, Observation, ToolCall, Turn
from tests.unit.test_loop import Echo, Events, Turns, bash


def trajectory(*entries: Step | Restart) -> Trajectory:
    return Trajectory(header={}, system="S", user="Fix.", entries=entries)


def step(call: ToolCall, *texts: str) -> Step:
    return Step(turn=Turn(calls=(call,)), observations=tuple(Observation(tool=call.name, text=text) for text in texts))


async def play(what: Trajectory) -> tuple[int, Turns, Echo, Events]:
    model, tools, events = Turns(), Echo(), Events()
    n_steps = await replay(what, model, tools, events, "S", ())
    return n_steps, model, tools, events


async def test_calls_run_again_and_the_model_recalls_them() -> None:
    entries = (
        step(bash("a"), "{'command': 'a'} 1"),
        Restart(user="Fix. Summary"),
        step(bash("b"), "{'command': 'b'} 2"),
    )
    n_steps, model, tools, events = await play(trajectory(*entries))
    assert (n_steps, model.recalled, len(tools.calls)) == (2, 2, 2)
    assert model.begun == ["Fix. Summary"]
    assert events.of(ConversationRestarted) == [ConversationRestarted(step=2, user="Fix. Summary")]


async def test_the_turns_that_a_restart_kept_are_recalled_again() -> None:
    entries = (
        step(bash("a"), "{'command': 'a'} 1"),
        step(bash("b"), "{'command': 'b'} 2"),
        Restart(user="Fix. Summary", n_kept=1),
        step(bash("c"), "{'command': 'c'} 3"),
    )
    n_steps, model, tools, events = await play(trajectory(*entries))
    assert (n_steps, model.recalled, len(tools.calls)) == (3, 4, 3)
    assert events.of(ConversationRestarted) == [ConversationRestarted(step=3, user="Fix. Summary", n_kept=1)]


async def test_an_interrupted_step_is_finished() -> None:
    n_steps, model, tools, _ = await play(trajectory(step(bash("a"))))
    assert (n_steps, model.recalled, len(tools.calls)) == (1, 1, 1)


async def test_another_outcome_is_refused() -> None:
    with pytest.raises(ResumeError, match="step 1, Bash"):
        await play(trajectory(step(bash("a"), "something else")))


async def test_durations_aside() -> None:
    class Timed(Echo):
        async def execute(self, call: ToolCall) -> Observation:
            return Observation(tool="Bash", text="Ran 1 test in 0.002s")

    model = Turns()
    before = step(bash("a"), "Ran 1 test in 7.100s")
    assert await replay(trajectory(before), model, Timed(), Events(), "S", ()) == 1


def test_what_cannot_be_resumed() -> None:
    check_resumable(trajectory())
    check_resumable(trajectory(step(bash("a"), "x")))
    with pytest.raises(UsageError):
        check_resumable(trajectory(Step(turn=Turn(content="Done."), observations=())))
    with pytest.raises(UsageError):
        check_resumable(Trajectory(header={}, system="", user="", entries=()))
