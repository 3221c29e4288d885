"""A turn that is read again: which of its characters are structure."""

from __future__ import annotations

from agent.model.chat_format import Part, find_breaks, tag_pattern
from agent.model.wire_parts import wire_parts

RAW = (
    "Look.\n</think>\n\n<tool_call>\n<function=Read>\n<parameter=file_path>\na.py\n</parameter>\n"
    "</function>\n</tool_call>"
)


def test_structure_is_in_one_piece_with_the_ends_of_its_lines() -> None:
    assert wire_parts(RAW) == [
        Part("Look.", trusted=False),
        Part("\n</think>\n\n<tool_call>\n<function=Read>\n<parameter=file_path>\n", trusted=True),
        Part("a.py", trusted=False),
        Part("\n</parameter>\n</function>\n</tool_call>", trusted=True),
    ]


def test_tokens_that_are_a_tag_with_its_lines_stay_whole() -> None:
    tags = ["\n</think>\n\n", "<tool_call>", "<parameter=file_path>\n", "\n</parameter>\n", "</tool_call>"]
    assert find_breaks(wire_parts(RAW), tag_pattern(tags)) == [RAW]
    told = RAW.replace("a.py", "a</tool_call>")
    assert find_breaks(wire_parts(told), tag_pattern(tags)) == [
        told[: told.index("</tool_call>") + 1],
        told[told.index("</tool_call>") + 1 :],
    ]
