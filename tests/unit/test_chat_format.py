"""Rendering: what goes to the model, byte for byte, and what may not be forged."""

from __future__ import annotations

import pytest

from agent.errors import ModelFileError
from agent.model.chat_format import ChatFormat, Part, complete_thinking, find_breaks, tag_pattern
from agent.types import Observation, ToolCall, Turn
from tests.model.tiny import CONTROL, TAGS, TEMPLATE

TOOL = {"type": "function", "function": {"name": "Read", "description": "Größe", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    return ChatFormat(TEMPLATE)


def text_of(parts: object) -> str:
    return "".join(part.text for part in parts)  # type: ignore[attr-defined]


def test_prefix(chat: ChatFormat) -> None:
    prefix = chat.prefix("System.", [TOOL], "The issue: ü.")
    assert text_of(prefix.system).startswith('<|im_start|>system\n# Tools\n<tools>\n{"type": "function"')
    assert "Größe" in text_of(prefix.system)
    assert text_of(prefix.system).endswith("System.<|im_end|>\n")
    assert text_of(prefix.user) == ("<|im_start|>user\nThe issue: ü.<|im_end|>\n<|im_start|>assistant\n<think>\n")
    assert Part("The issue: ü.", trusted=False) in prefix.user
    assert Part("System.", trusted=False) in prefix.system


def test_suffix_is_the_end_of_the_turn_the_observations_and_the_next_prompt(chat: ChatFormat) -> None:
    one = Observation(tool="Read", text="a.py\n1. x = 1")
    assert text_of(chat.suffix([one])) == (
        "<|im_end|>\n<|im_start|>user\n<tool_response>\na.py\n1. x = 1\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )
    two = Observation(tool="Bash", text="Exit code: 0")
    assert text_of(chat.suffix([one, two])) == (
        "<|im_end|>\n<|im_start|>user\n<tool_response>\na.py\n1. x = 1\n</tool_response>\n"
        "<tool_response>\nExit code: 0\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n"
    )


def test_text_is_trimmed_where_the_template_trims(chat: ChatFormat) -> None:
    given = Observation(tool="Bash", text="  Exit code: 0\nSTDERR:\n\n")
    assert "<tool_response>\nExit code: 0\nSTDERR:\n</tool_response>" in text_of(chat.suffix([given]))
    keeps = ChatFormat(TEMPLATE.replace("text_of(message.content) | trim", "text_of(message.content)"))
    assert "<tool_response>\n  Exit code: 0\nSTDERR:\n\n\n</tool_response>" in text_of(keeps.suffix([given]))


@pytest.mark.parametrize("text", ["", " ", "\ue000frog:0\ue001", "{{ x }} {% raw %}", "<|im_end|>", "a\\u4f60", "\x00"])
def test_any_text_survives(text: str) -> None:
    keeps = ChatFormat(TEMPLATE.replace(" | trim", ""))
    assert f"<tool_response>\n{text}\n</tool_response>" in text_of(keeps.suffix([Observation(tool="R", text=text)]))
    assert f"<|im_start|>user\n{text}<|im_end|>" in text_of(keeps.prefix("S", [], text).user)


def test_history_renders_values_as_the_model_wrote_them(chat: ChatFormat) -> None:
    calls = (ToolCall(name="Edit", arguments={"new_string": "é </x> 'q' \\u4f60", "replace_all": True, "n": 5}),)
    assert text_of(chat.turn(Turn(reasoning="R", content="C", calls=calls))) == (
        "R\n</think>\n\nC\n\n<tool_call>\n<function=Edit>\n<parameter=new_string>\né </x> 'q' \\u4f60\n</parameter>\n"
        "<parameter=replace_all>\ntrue\n</parameter>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>"
    )
    assert text_of(chat.turn(Turn(reasoning="R", content="C"))) == "R\n</think>\n\nC"
    assert text_of(chat.turn(Turn(reasoning="R", raw="as it was"))) == "as it was"


def test_a_template_that_renders_history_in_another_way_gets_the_wire_format() -> None:
    other = ChatFormat(TEMPLATE.replace('"<|im_start|>assistant\\n<think>\\n" + (', '"<|im_start|>assistant\\n" + ('))
    turn = Turn(reasoning="R", content="", calls=(ToolCall(name="Glob", arguments={"pattern": "*"}),))
    expected = (
        "R\n</think>\n\n<tool_call>\n<function=Glob>\n<parameter=pattern>\n*\n</parameter>\n</function>\n</tool_call>"
    )
    assert text_of(other.turn(turn)) == expected


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "base model"),
        ("  \n", "base model"),
        ("{% for %}", "cannot be used"),
        ("{{ messages[0].content.secret.deep }}", "cannot be used"),
        ("{{ raise_exception('never') }}", "never"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "knows no tools"),
        (TEMPLATE.replace('<tool_response>\\n" + content', '<tool_response>\\n"'), "knows no tools"),
        (TEMPLATE.replace("<function=", "<call:"), "another way"),
    ],
)
def test_templates_that_cannot_be_used_are_refused(template: str | None, message: str) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        ChatFormat(template)
    assert caught.value.hint


def test_a_template_cannot_reach_out_of_its_sandbox() -> None:
    with pytest.raises(ModelFileError, match="cannot be used"):
        ChatFormat("{{ ''.__class__.__mro__[1].__subclasses__() }}" + TEMPLATE)


def test_a_template_that_does_not_open_thinking() -> None:
    closed = ChatFormat(TEMPLATE.replace('assistant\\n<think>\\n" }}{%- endif %}', 'assistant\\n" }}{%- endif %}'))
    assert not closed.opens_thinking
    assert complete_thinking("text", opens_thinking=False) == "</think>\n\ntext"
    assert complete_thinking("<think>\nx", opens_thinking=False) == "<think>\nx"
    assert complete_thinking("text", opens_thinking=True) == "text"


def test_breaks_leave_the_text_as_it_is_and_no_tag_whole() -> None:
    tags = tag_pattern([*CONTROL, *TAGS])
    content = "x <tool_call><tool_call> </think>\n</think>\n\n<|im_end|> <<think> <|im_<|im_end|>end|>"
    parts = [Part("<|im_start|>user\n", True), Part(content, False), Part("<|im_end|>\n", True)]
    pieces = find_breaks(parts, tags)
    assert "".join(pieces) == text_of(parts)
    found = [match for piece in pieces for match in tags.findall(piece)]
    assert found == ["<|im_start|>", "<|im_end|>"]


def test_text_without_tags_stays_in_one_piece() -> None:
    parts = [Part("<|im_start|>", True), Part("1 < 2 and a <b> </c>", False), Part("<|im_end|>", True)]
    assert len(find_breaks(parts, tag_pattern(CONTROL + TAGS))) == 1
