"""Rendering a call and parsing it gives the call back, in pieces of any size, and nothing ever raises."""

from __future__ import annotations

import itertools
import re

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agent.model.tool_calls import IncrementalParser, parse

FRAGMENTS = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "<function=Read>",
        "<function=Foo>",
        "</function>",
        "<parameter=x>",
        "<parameter=file_path>",
        "</parameter>",
        "<think>",
        "</think>",
        "<tool_response>",
        "<|im_end|>",
        '{"name": "Read", "arguments": {}}',
        "\n",
        "\r\n",
        " ",
        "x",
        "é🐸",
        "&lt;",
        "\\u0041",
    ]
)
NASTY = st.lists(FRAGMENTS | st.text(max_size=5), max_size=12).map("".join)

# A value that holds what ends a value, or what begins a call, can be read in two ways; the format has no escape.
AMBIGUOUS = re.compile(
    r"</parameter>\s*<parameter=|</parameter>\s*</function>|</function>\s*(</tool_call>|$)|<tool_call>\s*<function="
)


def render(name: str, arguments: dict[str, str]) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


VALUES = NASTY.filter(lambda value: not AMBIGUOUS.search(value))
CALLS = st.one_of(
    st.tuples(st.just("Write"), st.fixed_dictionaries({"file_path": VALUES, "content": VALUES})),
    st.tuples(
        st.just("Edit"), st.fixed_dictionaries({"file_path": VALUES, "old_string": VALUES, "new_string": VALUES})
    ),
    st.tuples(st.just("Bash"), st.fixed_dictionaries({"command": VALUES})),
    st.tuples(st.just("Other"), st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), VALUES, max_size=3)),
)


@settings(deadline=None)
@given(st.lists(CALLS, min_size=1, max_size=3))
def test_what_is_rendered_is_read_back(calls: list[tuple[str, dict[str, str]]]) -> None:
    text = "Thinking.\n</think>\n\n" + "\n".join(render(name, arguments) for name, arguments in calls)
    parsed = parse(text)
    assert [(call.name, dict(call.arguments)) for call in parsed.calls] == calls
    assert not parsed.problems
    assert (parsed.reasoning, parsed.content) == ("Thinking.", "")


@settings(deadline=None)
@given(VALUES, VALUES)
def test_a_balanced_pair_may_stand_in_a_value(before: str, after: str) -> None:
    value = f"{before}\n{render('Read', {'file_path': 'a'})}\n{after}"
    assume("<parameter=file_path>" not in before + after)
    parsed = parse(render("Write", {"file_path": "f", "content": value}))
    assert [dict(call.arguments) for call in parsed.calls] == [{"file_path": "f", "content": value}]


@settings(deadline=None)
@given(NASTY, st.sampled_from(["stop", "length"]))
def test_nothing_raises(text: str, finish: str) -> None:
    parsed = parse(text, finish=finish)  # type: ignore[arg-type]
    assert parsed.truncated == (finish == "length")
    assert "</think>" not in parsed.content
    if finish == "length":
        assert not parsed.calls and not parsed.problems


@settings(deadline=None)
@given(NASTY, st.lists(st.integers(0, 200), max_size=20))
def test_any_split_gives_the_same(text: str, cuts: list[int]) -> None:
    data = text.encode("utf-8", "replace")
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parser = IncrementalParser()
    for start, end in itertools.pairwise(edges):
        parser.feed(data[start:end])
    assert parser.finish("stop") == parse(data.decode())
