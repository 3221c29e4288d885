"""When the window is nearly full the model writes a summary and the conversation goes on from that."""

from __future__ import annotations

from agent.errors import ContextOverflow
from agent.summary import SummarizedModel
from agent.types import ConversationRestarted, Issue, Observation, Turn, Usage
from tests.unit.test_loop import Events, Turns, bash

USAGE = Usage(prompt_tokens=3, completion_tokens=4)


def ignore(*_: object) -> None:
    pass


async def wrapped(*turns: Turn | Exception) -> tuple[SummarizedModel, Turns, Events]:
    inner, events = Turns(*turns), Events()
    model = SummarizedModel(inner, Issue(text="Fix it."), 1_000, events)
    await model.begin("system", [], "Fix it.")
    return model, inner, events


async def test_with_room_nothing_happens() -> None:
    model, inner, events = await wrapped(Turn(calls=(bash("a"),), context_tokens=500), Turn(content="done"))
    await model.generate((), ignore, ignore)
    assert (await model.generate([Observation(tool="Bash", text="x" * 300)], ignore, ignore)).content == "done"
    assert inner.begun == ["Fix it."]
    assert events.events == []


async def test_a_full_window_restarts_from_the_summary() -> None:
    first = Turn(calls=(bash("a"),), context_tokens=700)
    model, inner, events = await wrapped(
        first, Turn(content="I found the cause.", usage=USAGE), Turn(content="done", usage=USAGE, context_tokens=90)
    )
    await model.generate((), ignore, ignore)
    turn = await model.generate([Observation(tool="Bash", text="x" * 3_000, call_id="1")], ignore, ignore)
    assert turn.content == "done"
    assert turn.usage == USAGE + USAGE
    request = inner.seen[1][0]
    assert request.call_id == "1"
    assert len(request.text) < 1_500
    assert "summary" in request.text
    assert "at most 120 words" in request.text
    assert inner.begun[1].startswith("Fix it.\n\n")
    assert inner.begun[1].endswith("I found the cause.")
    assert inner.seen[2] == []
    assert inner.recalled == 1
    assert events.events == [ConversationRestarted(step=2, user=inner.begun[1], n_kept=1)]


async def test_where_the_model_writes_no_summary_its_calls_are_one() -> None:
    first = Turn(calls=(bash("a"),), context_tokens=900)
    model, inner, _ = await wrapped(first, Turn(calls=(bash("b"),)), Turn(content="done"))
    await model.generate((), ignore, ignore)
    turn = await model.generate([Observation(tool="Bash", text="Exit code: 0\nSTDOUT:")], ignore, ignore)
    assert turn.content == "done"
    assert inner.begun[1].endswith('What you did last:\n- Bash {"command": "a"}: Exit code: 0')


async def test_the_last_turns_stay_and_the_oldest_go_whole() -> None:
    def step(name: str, context_tokens: int) -> Turn:
        usage = Usage(prompt_tokens=1, completion_tokens=40)
        return Turn(calls=(bash(name),), raw="r" * 120, usage=usage, context_tokens=context_tokens)

    model, inner, events = await wrapped(
        *(step(name, 45 + 100 * i) for i, name in enumerate("abcdefg")),
        Turn(content="So far."),
        step("h", 400),
        Turn(content="done", context_tokens=500),
    )
    observations: list[Observation] = []
    for _ in range(9):
        turn = await model.generate(observations, ignore, ignore)
        observations = [Observation(tool="Bash", text="x" * 180)]
    assert turn.content == "done"
    assert events.events == [ConversationRestarted(step=8, user=inner.begun[1], n_kept=3)]  # of 100 tokens each
    assert inner.begun[1].endswith("So far.")
    assert inner.recalled == 3
    assert [len(seen) for seen in inner.seen] == [0, *[1] * 7, 0, 1]


async def test_an_observation_takes_only_its_share() -> None:
    model, inner, _ = await wrapped(Turn(calls=(bash("a"), bash("b"))), Turn(content="done"))
    await model.generate((), ignore, ignore)
    long = Observation(tool="Bash", text="x" * 5_000)
    await model.generate([long, Observation(tool="Bash", text="y")], ignore, ignore)
    assert [item.text[:2] for item in inner.seen[1]] == ["xx", "y"]
    assert inner.seen[1][0].text == "x" * 300 + "\n[truncated 4700 chars]"


async def test_an_estimate_that_was_too_low_ends_in_a_summary_too() -> None:
    model, inner, events = await wrapped(
        Turn(calls=(bash("a"),), context_tokens=300),
        ContextOverflow("full"),
        ContextOverflow("full with the request"),
        Turn(content="So far."),
        Turn(content="done"),
    )
    await model.generate((), ignore, ignore)
    turn = await model.generate([Observation(tool="Bash", text="x" * 500)], ignore, ignore)
    assert turn.content == "done"
    as_it_was, asked, asked_for_less = (len(seen[0].text) for seen in inner.seen[1:4])
    assert as_it_was == 500 and asked > asked_for_less
    assert len(events.events) == 1


async def test_a_turn_that_the_window_cuts_is_written_again_behind_a_summary() -> None:
    cut = Turn(truncated=True, context_tokens=1_000, usage=USAGE)
    model, inner, events = await wrapped(
        Turn(calls=(bash("a"),), context_tokens=300), cut, Turn(content="So far.", usage=USAGE), Turn(content="done")
    )
    await model.generate((), ignore, ignore)
    turn = await model.generate([Observation(tool="Bash", text="x")], ignore, ignore)
    assert (turn.content, turn.usage) == ("done", USAGE + USAGE)
    assert inner.begun[0] == inner.begun[1] == "Fix it." and inner.begun[2].endswith("So far.")
    assert len(events.events) == 1


async def test_a_resumed_run_whose_window_is_nearly_full_is_summarised_first() -> None:
    model, inner, events = await wrapped(Turn(content="So far."), Turn(content="done"))
    for name in "abc":
        turn = Turn(calls=(bash(name),), usage=Usage(completion_tokens=100))
        await model.recall(turn, [Observation(tool="Bash", text="x" * 590)])
    assert (await model.generate((), ignore, ignore)).content == "done"
    assert events.events == [ConversationRestarted(step=4, user=inner.begun[-1], n_kept=1)]


async def test_a_summary_is_cut_to_its_share_of_the_window() -> None:
    model, inner, _ = await wrapped(Turn(calls=(bash("a"),), context_tokens=900), Turn(content="s" * 9_000), Turn())
    await model.generate((), ignore, ignore)
    await model.generate([Observation(tool="Bash", text="x")], ignore, ignore)
    assert inner.begun[1].count("s" * 600) == 1
    assert "s" * 601 not in inner.begun[1]
