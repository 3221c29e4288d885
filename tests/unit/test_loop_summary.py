"""When the window is nearly full the model writes a summary and the conversation goes on from that."""

from __future__ import annotations

import pytest

from agent.errors import ContextOverflow
from agent.summary import SummarizedModel
from agent.types import ConversationRestarted, Issue, Observation, Turn, Usage
from tests.unit.test_loop import Events, Turns, bash

USAGE = Usage(prompt_tokens=3, completion_tokens=4)


def ignore(*_: object) -> None:
    pass


async def wrapped(*turns: Turn) -> tuple[SummarizedModel, Turns, Events]:
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
    assert events.events == [ConversationRestarted(step=2, user=inner.begun[1])]


async def test_no_summary_is_an_overflow() -> None:
    model, *_ = await wrapped(Turn(calls=(bash("a"),), context_tokens=900), Turn(calls=(bash("b"),)))
    await model.generate((), ignore, ignore)
    with pytest.raises(ContextOverflow):
        await model.generate([Observation(tool="Bash", text="x")], ignore, ignore)


async def test_a_summary_is_cut_to_its_share_of_the_window() -> None:
    model, inner, _ = await wrapped(Turn(calls=(bash("a"),), context_tokens=900), Turn(content="s" * 9_000), Turn())
    await model.generate((), ignore, ignore)
    await model.generate([Observation(tool="Bash", text="x")], ignore, ignore)
    assert inner.begun[1].count("s" * 600) == 1
    assert "s" * 601 not in inner.begun[1]
