"""Streams of an endpoint, in pieces of any size."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.endpoint_reply import assistant_message, read_reply, tool_messages, wire_text
from agent.model.endpoint_stream import CallPieces, Reply, SseDecoder, StreamError, read_arguments
from agent.types import Observation


def decode(pieces: list[bytes]) -> list[tuple[str, str]]:
    decoder = SseDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return [*events, *decoder.finish()]


def delta(**message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": message, "finish_reason": None}]}


def call_delta(index: int, arguments: str = "", **more: Any) -> dict[str, Any]:
    function = {key: more.pop(key) for key in ("name",) if key in more}
    return delta(tool_calls=[{"index": index, "function": {**function, "arguments": arguments}, **more}])


def read(reply: Reply, tools: tuple[Any, ...] | None = None) -> Any:
    return read_reply(reply, tools or (), sent_chars=350, duration_s=0.0, seen_ids=set()).turn


STREAM = (
    ": keep-alive\r\n\r\n"
    'data: {"a": "é\u2028\x0c"}\n\n'
    "event: error\rdata: {\rdata: }\r\r"
    "id: 7\ndata:no space\n\n"
    "data: last without an end"
).encode()
EVENTS = [("", '{"a": "é\u2028\x0c"}'), ("error", "{\n}"), ("", "no space"), ("", "last without an end")]


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_do_not_depend_on_the_pieces(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(STREAM)]
    assert decode([STREAM[a:b] for a, b in itertools.pairwise(ends)]) == EVENTS


def test_one_byte_at_a_time() -> None:
    assert decode([bytes([byte]) for byte in STREAM]) == EVENTS


def test_an_endless_line_is_refused() -> None:
    decoder = SseDecoder()
    with pytest.raises(StreamError, match="16 MiB"):
        for _ in range(20):
            list(decoder.feed(b"x" * 1024 * 1024))


def test_calls_are_assembled_by_index() -> None:
    reply = Reply()
    reply.add(call_delta(0, name="Read", id="a"))
    reply.add(call_delta(1, '{"pat', name="Glob", id="b"))
    reply.add(call_delta(0, '{"file_path": "x"}'))
    reply.add(call_delta(1, 'tern": "*"}'))
    assert [(c.id, c.name, read_arguments(c)) for c in reply.calls] == [
        ("a", "Read", {"file_path": "x"}),
        ("b", "Glob", {"pattern": "*"}),
    ]


def test_another_id_at_the_same_index_is_another_call() -> None:
    reply = Reply()
    reply.add(call_delta(0, '{"pattern": "a"}', name="Glob", id="a"))
    reply.add(call_delta(0, '{"pattern": "b"}', name="Glob", id="b"))
    assert [read_arguments(call)["pattern"] for call in reply.calls] == ["a", "b"]


def test_a_name_that_is_repeated_or_split() -> None:
    reply = Reply()
    reply.add(call_delta(0, "{", name="Read", id="a"))
    reply.add(call_delta(0, "}", name="Read", id="a"))
    reply.add(call_delta(1, "", name="Gl", id="b"))
    reply.add(call_delta(1, "{}", name="ob"))
    assert [call.name for call in reply.calls] == ["Read", "Glob"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("[1]", {}),
        ('"text"', {}),
        ("null", {}),
        ('{"a": ', {}),
        ("[" * 100_000, {}),
        (json.dumps('{"a": "\\u00e9"}'), {"a": "é"}),
        ('{"a": 1, "a": 2}', {"a": 2}),
    ],
)
def test_arguments_that_are_no_object_are_empty(text: str, expected: dict[str, Any]) -> None:
    assert read_arguments(CallPieces(key=0, arguments=text)) == expected


def test_arguments_as_an_object() -> None:
    reply = Reply()
    reply.add(delta(tool_calls=[{"function": {"name": "Glob", "arguments": {"pattern": "*"}}}]))
    assert read_arguments(reply.calls[0]) == {"pattern": "*"}


@pytest.mark.parametrize("chunk", [{}, {"choices": "x"}, {"choices": [1]}, {"choices": [{"delta": 1}]}])
def test_rubbish_chunks(chunk: dict[str, Any]) -> None:
    with pytest.raises(StreamError):
        Reply().add(chunk)


def test_both_names_of_reasoning_count_once() -> None:
    reply = Reply()
    assert reply.add(delta(reasoning="a", reasoning_content="a")) == "a"
    assert (reply.reasoning, reply.reasoning_field) == ("a", "reasoning_content")


@settings(deadline=None)
@given(st.text(alphabet='ab<>/=\n é\u2028\\"', max_size=40), st.integers(1, 7))
def test_content_in_pieces_is_content(text: str, n: int) -> None:
    reply = Reply()
    for at in range(0, len(text), n):
        reply.add(delta(content=text[at : at + n]))
    assert reply.content == text


def test_a_cut_reply_runs_nothing() -> None:
    reply = Reply(finish_reason="length", content="x")
    reply.add(call_delta(0, '{"command": "rm', name="Bash", id="a"))
    turn = read(reply)
    assert turn.truncated and turn.calls == () and turn.problems == ()


def test_a_cut_reply_of_tags_runs_nothing() -> None:
    text = "r</think><tool_call>\n<function=Bash>\n<parameter=command>\nrm\n</parameter>\n</function>\n</tool_call>"
    turn = read(Reply(finish_reason="length", content=text))
    assert turn.truncated and turn.calls == () and turn.reasoning == "r"


CALL = "<tool_call>\n<function=Bash>\n<parameter=command>\na &amp;&amp; b\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(content=f"why\n</think>\n\n{CALL}"),
        Reply(content=f"<think>\nwhy\n</think>\n\n{CALL}"),
        Reply(reasoning="why", content=CALL),
        Reply(reasoning=f"why\n{CALL}"),
    ],
)
def test_tags_are_read_by_the_parser(reply: Reply) -> None:
    turn = read(reply)
    assert [(c.name, c.arguments) for c in turn.calls] == [("Bash", {"command": "a &amp;&amp; b"})]
    assert turn.reasoning == "why" and turn.content == "" and turn.raw is not None


def test_plain_text_that_never_thought_is_content() -> None:
    turn = read(Reply(content="All is well."))
    assert (turn.reasoning, turn.content) == ("", "All is well.")
    assert wire_text(Reply(content="x")).startswith("</think>")


def test_a_tag_beside_structured_calls_is_no_problem() -> None:
    reply = Reply(content="I will write <tool_call> in the docs.")
    reply.add(call_delta(0, '{"pattern": "*"}', name="Glob", id="a"))
    turn = read(reply)
    assert [call.name for call in turn.calls] == ["Glob"] and turn.problems == ()


def test_ids_are_unique_in_a_conversation() -> None:
    seen: set[str] = set()
    ids = []
    for _ in range(3):
        reply = Reply()
        reply.add(call_delta(0, "{}", name="Glob", id="call_0"))
        reply.add(call_delta(1, "{}", name="Read"))
        turn = read_reply(reply, (), sent_chars=0, duration_s=0.0, seen_ids=seen).turn
        ids += [call.id for call in turn.calls]
    assert len(set(ids)) == 6 and all(ids)


def test_arguments_are_coerced_by_the_schema() -> None:
    tools = (
        {
            "type": "function",
            "function": {"name": "Read", "parameters": {"properties": {"offset": {"type": "integer"}}}},
        },
    )
    reply = Reply()
    reply.add(call_delta(0, '{"offset": " 5 "}', name="Read", id="a"))
    reply.add(call_delta(1, '{"offset": "five"}', name="Read", id="b"))
    turn = read(reply, tools)
    assert [call.arguments["offset"] for call in turn.calls] == [5, "five"]
    assert [(problem.index, problem.call) for problem in turn.problems] == [(1, 1)]


def test_history_keeps_text_as_it_is() -> None:
    reply = Reply(reasoning="é", content="ü")
    reply.add(call_delta(0, json.dumps({"command": "echo 'ß' \\u00e9"}), name="Bash", id="a"))
    turn = read(reply)
    message = assistant_message(turn, ("reasoning_content", "reasoning"))
    assert message["reasoning_content"] == message["reasoning"] == "é" and message["content"] == "ü"
    assert message["tool_calls"][0]["function"]["arguments"] == '{"command": "echo \'ß\' \\\\u00e9"}'
    answers = tool_messages(turn, [Observation(tool="Bash", text="ok")])
    assert answers == [{"role": "tool", "tool_call_id": "a", "content": "ok"}]


def test_history_shows_a_block_that_could_not_be_read() -> None:
    turn = read(Reply(content="r\n</think>\n\n<tool_call>\nnonsense\n</tool_call>"))
    assert turn.calls == () and turn.problems
    message = assistant_message(turn, ("reasoning_content",))
    assert "nonsense" in message["content"] and "tool_calls" not in message
    assert tool_messages(turn, [Observation(tool="invalid", text="ValueError: x")])[0]["role"] == "tool"


def test_usage_is_estimated_where_none_is_reported() -> None:
    read_one = read_reply(Reply(content="x" * 70), (), sent_chars=350, duration_s=0.0, seen_ids=set())
    assert read_one.usage_is_estimate
    assert (read_one.turn.usage.prompt_tokens, read_one.turn.usage.completion_tokens) == (100, 20)
    assert read_one.turn.usage.evaluated_tokens is None
