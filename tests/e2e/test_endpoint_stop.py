"""Replies of an endpoint that go round in circles or think too long are stopped from this side, and answered."""

from __future__ import annotations

import pytest

from agent.types import Limits
from tests.e2e.test_endpoint_model import talk
from tests.openai_server import OpenAiServer, turn

LOOP = "Wait, maybe the parser is wrong here.\nActually, let me look at it again.\n" * 400


@pytest.mark.parametrize(
    ("said", "limits", "kind"),
    [
        ({"content": LOOP}, Limits(), "answer_repeats"),
        ({"reasoning": LOOP}, Limits(), "thought_repeats"),
        (
            {"reasoning": "".join(f"{n} is one more.\n" for n in range(2000))},
            Limits(thought_tokens=100),
            "thought_limit",
        ),
    ],
)
async def test_it_is_stopped_and_the_next_message_says_so(said: dict[str, str], limits: Limits, kind: str) -> None:
    with OpenAiServer([turn(**said), turn(content="Done.")]) as server:
        async with talk(server.base_url, limits=limits) as conversation:
            reply = await conversation.say()
            assert [item.kind for item in reply.forced] == [kind]
            assert (reply.calls, reply.truncated) == ((), False)
            (problem,) = reply.problems
            assert problem.is_nudge
            assert len(reply.reasoning + reply.content) < len("".join(said.values())) / 2
            assert (await conversation.say(problem.message)).content == "Done."
    last = server.requests[-1].json["messages"][-1]
    assert last == {"role": "user", "content": problem.message}


async def test_the_value_of_a_call_is_not_judged_and_no_limit_is_made_up() -> None:
    calls = [("Read", {"file_path": LOOP})]
    with OpenAiServer([turn(reasoning="x1 y2. " * 40, calls=calls, style="tags")]) as server:
        async with talk(server.base_url) as conversation:
            reply = await conversation.say()
    assert reply.forced == ()
    assert len(str(reply.calls[0].arguments["file_path"])) >= len(LOOP) - 1
