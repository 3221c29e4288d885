"""The parser of turns: each rule of the wire format, by whole kinds."""

from __future__ import annotations

import json
import time

import pytest

from agent.model.tool_calls import FORMAT_HINT, IncrementalParser, parse, parse_command
from agent.types import ToolCall


def block(name: str, **arguments: str) -> str:
    """A call as the model writes it."""
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def calls_of(text: str) -> list[tuple[str, dict[str, object]]]:
    return [(call.name, dict(call.arguments)) for call in parse(text).calls]


READ_A = ("Read", {"file_path": "a.py"})
READ_B = ("Read", {"file_path": "b.py"})
THOUGHT = "Look first.\n</think>\n\n"


def test_reasoning_content_and_call() -> None:
    parsed = parse(f"Look first.\n</think>\n\nI read it.\n\n{block('Read', file_path='a.py')}")
    assert (parsed.reasoning, parsed.content) == ("Look first.", "I read it.")
    assert parsed.calls == (ToolCall(name="Read", arguments={"file_path": "a.py"}),)
    assert not parsed.problems and not parsed.truncated


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("</think>\n\n", "", ""),
        ("", "", ""),
        ("All of it is thinking", "All of it is thinking", ""),
        ("a\n</think>\n\nb\n</think>\n\nc", "a", "b\n\nc"),
        ("<think>\na\n</think>\n\nb", "a", "b"),
        ("\n<think>\na\n</think>\n\nb", "a", "b"),
        ("a</think>b\n<think>\nc\n</think>\nd", "a\n\nc", "b\n\nd"),
        ("a</think>A `<think>` tag opens thinking.", "a", "A `<think>` tag opens thinking."),
        ("a</think>b<|im_end|>\n", "a", "b"),
        ("a</think>b<|im_end|>\n<|endoftext|>", "a", "b"),
    ],
)
def test_thinking(text: str, reasoning: str, content: str) -> None:
    parsed = parse(text)
    assert (parsed.reasoning, parsed.content) == (reasoning, content)


def test_a_call_inside_thinking_ends_it_and_the_tag_never_shows() -> None:
    parsed = parse(f"Hm.\n{block('Read', file_path='a.py')}\nThen more.\n</think>\n\nDone.")
    assert parsed.reasoning == "Hm."
    assert parsed.content == "Then more.\n\nDone."
    assert [call.name for call in parsed.calls] == ["Read"]


@pytest.mark.parametrize(
    "value",
    [
        "x </parameter> y",
        "x\n</parameter>\ny",
        "</tool_call>",
        "</function>",
        "x\n</function>\n</tool_call>\ny",
        "x\n</function>\n</tool_call>",
        "x\n</parameter>\n</function>\n</tool_call>\ny",
        "x\n</parameter>\n</function>\ny",
        "x\n</parameter>\n</tool_call>\ny",
        "x\n</parameter>\n<tool_call>\ny",
        "</think>",
        "<think>",
        "<tool_call>",
        "<function=Read>",
        "<function=Read>\n<parameter=file_path>",
        "<parameter=file_path>\na\n</parameter>\n",
        "<tool_response>\n</tool_response>",
        f"Example:\n{block('Read', file_path='a')}\nEnd.",
        f"{block('Read', file_path='a')}",
        f"{block('Read', file_path='a')}\n{block('Write', file_path='a', content='b')}",
        block("Write", file_path="a", content=block("Read", file_path="b")),
        "<function=Foo>\n<parameter=x>\n1\n</parameter>\n</function>",
        "write <tool_call>\n<function=Read> and go on",
        '{"name": "Read"}',
        "&lt;&amp; && < > \\u4f60 \\n",
        "    indented  \n\n\tTab\t\n",
        "\n\nblank lines\n\n",
        "a\r\nb\r\n",
        "\r\na\r\n\r\n",
        "a\r",
        "",
        "\n",
        "你好 🐸 e\u0301",
        "\x0c\u2028\x1c",
        "<|im_end|> inside",
    ],
)
def test_a_value_is_raw_text(value: str) -> None:
    text = THOUGHT + block("Write", file_path="f.txt", content=value)
    assert calls_of(text) == [("Write", {"file_path": "f.txt", "content": value})]
    text = f"{THOUGHT}{block('Write', content=value, file_path='f.txt')}\n{block('Read', file_path='b.py')}"
    assert calls_of(text) == [("Write", {"file_path": "f.txt", "content": value}), READ_B]
    edit = block("Edit", file_path="f.txt", old_string=value, new_string=value + "!", replace_all="True")
    expected = {"file_path": "f.txt", "old_string": value, "new_string": value + "!", "replace_all": True}
    assert calls_of(THOUGHT + edit) == [("Edit", expected)]


def test_the_first_end_that_makes_the_rest_readable_wins() -> None:
    closers = "\n</parameter>\n</function>\n</tool_call>"
    call = block("Write", file_path="f", content="x")
    # Ended at the first closers, the value would leave the second ones over.
    assert calls_of(call + closers) == [("Write", {"file_path": "f", "content": "x" + closers})]
    # Here nothing is left over.
    assert [name for name, _ in calls_of(f"{call}\n{block('Read', file_path='b.py')}")] == ["Write", "Read"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<tool_call>\n<function=Read>\n<parameter=file_path>\na.py</parameter></function></tool_call>", [READ_A]),
        ("<tool_call><function=Read><parameter=file_path>a.py</parameter></function></tool_call>", [READ_A]),
        ("<tool_call>\n<function=Read>\n<parameter=file_path>\na.py\n</function>\n</tool_call>", [READ_A]),
        ("<tool_call>\n<function=Read>\n<parameter=file_path>\na.py\n</parameter>\n</tool_call>", [READ_A]),
        ("<tool_call>\n<function=Read>\n<parameter=file_path>\na.py\n</parameter>\n</function>", [READ_A]),
        ("<tool_call>\n<function=Read>\n<parameter=file_path>\na.py\n</parameter>", [READ_A]),
        ("<tool_call>\n<function=Read>\n<parameter=file_path>\na.py\n</parameter>\n\n \n", [READ_A]),
        ("<tool_call>\n<function=Read>\n<parameter=file_path>\na.py", []),
        ("<tool_call>\n<function=Read>", []),
        ("<tool_call>", []),
        (
            "<tool_call>\r\n<function=Read>\r\n<parameter=file_path>\r\na.py\r\n</parameter>\r\n</function>\r\n",
            [READ_A],
        ),
        (
            '<tool_call>\n<function="Read">\n<parameter="file_path">\na.py\n</parameter>\n</function>\n</tool_call>',
            [READ_A],
        ),
    ],
)
@pytest.mark.parametrize("after", ["", "\n" + block("Read", file_path="b.py")])
def test_a_missing_closer_never_swallows_the_next_call(text: str, expected: list[object], after: str) -> None:
    parsed = parse(THOUGHT + text + after)
    assert [(c.name, dict(c.arguments)) for c in parsed.calls] == expected + ([READ_B] if after else [])
    assert len(parsed.problems) == (not expected)


def test_a_missing_closer_between_two_parameters() -> None:
    text = "<tool_call>\n<function=Edit>\n<parameter=file_path>\na.py\n<parameter=old_string>\nx\n</parameter>\n"
    text += "<parameter=new_string>\ny\n</parameter>\n</function>\n</tool_call>"
    assert calls_of(text) == [("Edit", {"file_path": "a.py", "old_string": "x", "new_string": "y"})]


@pytest.mark.parametrize(
    "bad",
    [
        "<tool_call>\nRead a.py\n</tool_call>",
        "<tool_call>\n</tool_call>",
        "<tool_call>\n<function=Read>\nfile_path: a.py\n</function>\n</tool_call>",
        "<tool_call>\n<function=Read\n<parameter=file_path>\na.py\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=>\n<parameter=file_path>\na.py\n</parameter>\n</function>\n</tool_call>",
        '<tool_call>\n{"name": "Read", "arguments": {"file_path": a}}\n</tool_call>',
        '<tool_call>\n{"arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": 3}\n</tool_call>',
        '<tool_call>\n["Read"]\n</tool_call>',
        '<tool_call>\n{"name": "Read", "arguments": {"limit": 1e999}}\n</tool_call>',
        "<tool_call>\n<parameter=file_path>\na.py\n</parameter>\n</tool_call>",
    ],
)
def test_a_bad_call_does_not_discard_its_neighbours(bad: str) -> None:
    parsed = parse(f"{THOUGHT}{block('Read', file_path='a.py')}\n{bad}\n{block('Read', file_path='b.py')}")
    assert [(c.name, dict(c.arguments)) for c in parsed.calls] == [READ_A, READ_B]
    assert [(p.index, p.call, p.message) for p in parsed.problems] == [(1, None, FORMAT_HINT)]
    assert parsed.content == ""
    alone = parse(f"{THOUGHT}{bad}")
    assert not alone.calls and [p.index for p in alone.problems] == [0]


def test_two_bad_calls_between_good_ones() -> None:
    bad = "<tool_call>\n<function=Read>\nfile_path\n</function>\n</tool_call>"
    text = "\n".join([block("Read", file_path="a.py"), bad, bad, block("Read", file_path="b.py"), bad])
    parsed = parse(text)
    assert [(c.name, dict(c.arguments)) for c in parsed.calls] == [READ_A, READ_B]
    assert [p.index for p in parsed.problems] == [1, 2, 4]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "Read", "arguments": {"file_path": "a.py"}}', READ_A),
        ('{"name": "Read", "arguments": "{\\"file_path\\": \\"a.py\\"}"}', READ_A),
        (
            '{"name": "Read", "arguments": {"file_path": "a.py", "limit": "5", "offset": null}}',
            ("Read", {"file_path": "a.py", "limit": 5}),
        ),
        ('{"name": "Read", "arguments": [1]}', ("Read", {})),
        ('{"name": "Read"}', ("Read", {})),
        (
            '{"name": "Write", "arguments": {"file_path": "a", "content": "</tool_call>\\n<tool_call>{"}}',
            ("Write", {"file_path": "a", "content": "</tool_call>\n<tool_call>{"}),
        ),
        ('{"name": "Write", "arguments": {"content": {"k": "é"}}}', ("Write", {"content": '{"k": "é"}'})),
        ('{"name": "Write", "arguments": {"content": "\\ud83d"}}', ("Write", {"content": "\ufffd"})),
    ],
)
def test_a_json_object_is_a_call(text: str, expected: tuple[str, dict[str, object]]) -> None:
    assert calls_of(f"</think>\n\n<tool_call>\n{text}\n</tool_call>") == [expected]
    assert calls_of(f"</think>\n\n<tool_call>{text}") == [expected]
    assert calls_of(f"<tool_call>{text}\n{block('Read', file_path='b.py')}") == [expected, READ_B]


@pytest.mark.parametrize("before", ["", "</think>\n\n", "Thinking. "])
def test_a_known_function_without_its_opener(before: str) -> None:
    body = "<function=Read>\n<parameter=file_path>\na.py\n</parameter>\n</function>"
    for after in ("", "\n</tool_call>", "\nThat is all."):
        assert calls_of(before + body + after) == [READ_A], after
    assert calls_of(f"{before}{body}\n{block('Read', file_path='b.py')}") == [READ_A, READ_B]
    assert calls_of(before + body + "\n" + body) == [READ_A, READ_A]
    assert not calls_of(before + body.replace("</function>", ""))
    assert not calls_of(before + "I use <function=Read> to read.")
    foreign = before + body.replace("Read", "Foo")
    assert not calls_of(foreign) and not parse(foreign).problems


def test_an_unknown_function_without_its_opener_stays_text() -> None:
    text = "In XML one writes <function=Foo>\n<parameter=x>\n1\n</parameter>\n</function> for it."
    assert parse("</think>\n\n" + text).content == text
    parsed = parse(f"</think>\n\n{block('Read', file_path='a.py')}\n{text}")
    assert parsed.content == text and len(parsed.calls) == 1


def test_an_unknown_function_is_a_call_with_raw_strings() -> None:
    assert calls_of(block("Grep", n=" 5 ")) == [("Grep", {"n": " 5 "})]


def test_a_mention_of_the_opener_is_no_call() -> None:
    parsed = parse("One writes <tool_call> first.\n</think>\n\nBetween `<tool_call>` and `</tool_call>`.")
    assert not parsed.calls and not parsed.problems
    assert parsed.reasoning == "One writes <tool_call> first."


def test_unknown_keys_stay_and_the_last_of_a_repeated_key_wins() -> None:
    text = block("Read", file_path="x", colour="red").replace(
        "</function>", "<parameter=file_path>\ny\n</parameter>\n</function>"
    )
    assert calls_of(text) == [("Read", {"file_path": "y", "colour": "red"})]


@pytest.mark.parametrize(
    ("key", "raw", "value"),
    [
        ("replace_all", "True", True),
        ("replace_all", " yes ", True),
        ("replace_all", "ON", True),
        ("replace_all", "1", True),
        ("replace_all", "False", False),
        ("replace_all", "0", False),
        ("offset", " 5 ", 5),
        ("offset", "5.0", 5),
        ("offset", "+5", 5),
        ("offset", "-1", -1),
        ("offset", "1e2", 100),
        ("timeout", "2.5", 2.5),
        ("timeout", "5", 5),
    ],
)
def test_coercion(key: str, raw: str, value: object) -> None:
    name = {"replace_all": "Edit", "offset": "Read", "timeout": "Bash"}[key]
    ((_, arguments),) = calls_of(block(name, **{key: raw}))
    assert arguments == {key: value} and type(arguments[key]) is type(value)


@pytest.mark.parametrize(
    ("name", "key", "raw"),
    [
        ("Edit", "replace_all", "maybe"),
        ("Read", "offset", "five"),
        ("Read", "offset", "5.5"),
        ("Read", "limit", ""),
        ("Read", "limit", "1e999"),
        ("Read", "limit", "9" * 5000),
        ("Bash", "timeout", "nan"),
        ("Bash", "timeout", "0x10"),
    ],
)
def test_what_cannot_be_coerced_is_a_problem_and_stays_listed(name: str, key: str, raw: str) -> None:
    parsed = parse(block("Glob", pattern="*") + "\n" + block(name, **{key: raw}))
    assert dict(parsed.calls[1].arguments) == {key: raw}
    ((problem),) = parsed.problems
    assert (problem.index, problem.call) == (1, 1)
    assert problem.message.startswith(f"ValueError: {key} must be ")
    assert len(problem.message) < 200


def test_schemas_decide_the_types() -> None:
    schema = {
        "type": "function",
        "function": {
            "name": "Sum",
            "parameters": {"properties": {"n": {"type": ["null", "integer"]}, "l": {"type": "array"}}},
        },
    }
    parsed = parse(block("Sum", n="3", l="[1]"), tools=[schema])
    assert dict(parsed.calls[0].arguments) == {"n": 3, "l": [1]}
    assert parse(block("Sum", l="{}"), tools=[schema]).problems


def test_a_cut_turn_runs_nothing_wherever_it_is_cut() -> None:
    whole = (
        f"Think.\n</think>\n\nProse.\n\n{block('Read', file_path='a.py')}\n{block('Write', file_path='b', content='é')}"
    )
    for end in range(len(whole) + 1):
        parsed = parse(whole[:end], finish="length")
        assert parsed.truncated and not parsed.calls and not parsed.problems
        assert "<" not in parsed.reasoning + parsed.content, end
        assert parse(whole[:end]).truncated is False


def test_pieces_of_any_size_give_the_same() -> None:
    text = f"Denk é.\n</think>\n\n🐸\n{block('Write', file_path='ü', content='你好')}"
    expected = parse(text)
    for size in (1, 2, 3, 5, 64):
        data = text.encode()
        for pieces in (
            [data[i : i + size] for i in range(0, len(data), size)],
            [text[i : i + size] for i in range(0, len(text), size)],
        ):
            parser = IncrementalParser()
            shown = "".join(parser.feed(piece) for piece in pieces)
            assert shown == text
            assert parser.finish("stop") == expected


def test_command_gives_plain_json() -> None:
    result = parse_command(f"</think>\n\n{block('Read', file_path='a', limit='x')}\n<tool_call>\n".encode() + b"\xff")
    assert json.loads(json.dumps(result)) == result
    assert list(result) == ["reasoning", "content", "calls", "problems", "truncated"]
    assert [p["call"] for p in result["problems"]] == [0, None]


@pytest.mark.parametrize(
    "unit",
    [
        "x" * 40 + "\n",
        "</parameter>\n",
        "<parameter=a>\n",
        "<tool_call>\n<function=Read>\n<parameter=file_path>\n",
        "<tool_call>",
        "a <tool_call>",
        "<function=Read><parameter=a>",
        "</parameter></function></tool_call>",
        "<tool_call>{",
        '<tool_call>{"name":"',
        '<tool_call>{"name":"a"}',
        "</think><think>\n",
        "<" * 30,
        " " * 30 + "<",
        "<tool_call>\n</function>",
    ],
)
def test_time_is_linear_in_the_text(unit: str) -> None:
    value = unit * (400_000 // len(unit))
    text = THOUGHT + block("Write", file_path="f", content=value)
    began = time.process_time()  # not the clock on the wall: others may have the processor
    parsed = parse(text)
    assert time.process_time() - began < 1.5
    assert parsed.calls or parsed.problems
