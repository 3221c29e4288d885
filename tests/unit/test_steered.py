"""What a person reads of turns that were steered, when a text goes in circles, and which tool a name means."""

from __future__ import annotations

import pytest

from agent.model.repetition import goes_in_circles
from agent.model.tool_names import nearest_name
from agent.steered import describe_forced, forced_notes
from agent.types import Forced

TOOLS = ("Read", "Write", "Edit", "Glob", "Bash")


def forced(*kinds: str) -> list[Forced]:
    return [Forced(kind=kind, text="", n_tokens=3) for kind in kinds]


def test_words_for_a_person() -> None:
    assert describe_forced(forced("name", "close")) == "a call was put right"
    assert describe_forced(forced("thought_limit", "close")) == (
        "a call was put right; the thought was too long and was ended"
    )
    assert forced_notes([]) == []
    assert forced_notes(forced("name", "close", "answer_repeats")) == [
        "Tool calls: 2 slips of form put right while they were written (6 tokens forced).",
        "A reply repeated itself and was stopped.",
    ]
    assert forced_notes(forced("thought_limit") * 3) == ["A thought was too long and was ended (3 times)."]


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("read", "Read"),
        ("READ", "Read"),
        ("read_file", "Read"),
        ("ReadFile", "Read"),
        ("Raed", "Read"),
        ("Reed", None),
        ("Reads", "Read"),
        ("Writ", "Write"),
        (" Bash", "Bash"),
        ('"Edit"', "Edit"),
        ("bash_tool", "Bash"),
        ("Read", None),
        ("Head", None),
        ("Search", None),
        ("str_replace", None),
        ("Readme", None),
        ("", None),
    ],
)
def test_which_tool_a_name_means(name: str, tool: str | None) -> None:
    assert nearest_name(name, TOOLS) == tool


def test_a_name_near_two_tools_means_neither() -> None:
    assert nearest_name("Reads", ("Read", "Readss")) is None


TABLE = "".join(f"| {n} | value | {n * n} |\n" for n in range(200))
CODE = "".join(f"    assert compute({n}) == {n * n}\n    print('ok')\n" for n in range(200))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Wait, maybe not.\nActually, yes it is.\n" * 60, True),
        ("Let me look.\n" + "no, wait, " * 200, True),  # without a line's end
        ("I see the bug now and " * 100 + "I see", True),  # in the middle of a round
        ("\n".join(f"{n}. Wait, maybe not." for n in range(200)), False),
        ("Wait, maybe not.\n" * 20, False),  # too short
        ("A paragraph of some length that comes back. " * 30 + "And an end that is something else.", False),
        (TABLE, False),
        (CODE, False),
        ("| yes | no |\n" * 200, False),
        ("| yes | no |\n" * 600, True),
        ("0, 0, 0,\n" * 300, False),
        ("-" * 3000, False),
        ("-" * 8000, True),
        ("```python\n" + "check(value)\n" * 200, False),
        ("```python\n" + "check(value)\n" * 600, True),
        ("```\nx\n```\n" + "check it again\n" * 200, True),
        ("", False),
    ],
)
def test_what_goes_in_circles(text: str, expected: bool) -> None:
    assert goes_in_circles(text) is expected
