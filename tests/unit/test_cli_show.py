"""A run in a terminal: within 80 columns, safe to print, and honest about what was not checked."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from agent.cli_show import Presenter, describe_test, duration, is_failure, main_argument, summary_of
from agent.types import (
    JailInfo,
    Limits,
    ModelInfo,
    Note,
    Observation,
    RunStarted,
    StepStarted,
    TestOutcome,
    TestsFinished,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolStarted,
    Turn,
    TurnFinished,
    Usage,
)
from agent.visible import visible, visible_line


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(tool: str, arguments: dict[str, object], text: str, width: int = 80) -> str:
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, width=width, highlight=False, markup=False, emoji=False)
    presenter = Presenter(console, clock=clock)
    call = ToolCall(name=tool, arguments=arguments)
    presenter.show(
        RunStarted(
            run_id="r",
            model=ModelInfo(kind="worker", name="tadpole"),
            jail=JailInfo(backend="namespaces"),
            limits=Limits(max_steps=11, time_s=600),
        )
    )
    presenter.show(StepStarted(step=1))
    presenter.show(TextDelta(step=1, text="x"))
    clock.now = 2.0
    presenter.show(TurnFinished(step=1, turn=Turn(calls=(call,), usage=Usage(completion_tokens=100))))
    presenter.show(ToolStarted(step=1, call=call))
    presenter.show(ToolFinished(step=1, call=call, observation=Observation(tool=tool, text=text)))
    presenter.show(Note(text="a \x1b[31mnote"))
    presenter.show(TestsFinished(phase="after", command="t", outcome=TestOutcome(exit_code=1, tail="")))
    presenter.close()
    return out.getvalue()


def test_a_step_says_tool_argument_result_speed_and_time_left() -> None:
    text = shown("Read", {"file_path": "src/app.py", "limit": 3}, "src/app.py\n1. x = 1")
    assert "   1  Read   src/app.py\n" in text
    assert "50 tok/s · ≤ 20 s left" in text
    assert "tests after: failed (exit code 1)" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    text = shown("Bash", {"command": "echo " + "x" * 500}, "Exit code: 0\nSTDOUT:\n" + "y" * 500, width)
    assert max(map(len, text.split("\n"))) <= width


def test_control_characters_are_never_printed() -> None:
    evil = "\x1b]0;title\x07\x1b[2J\u202egnp.exe\r"
    text = shown("Bash" + evil, {"command": evil + "ls"}, "Exit code: 0\nSTDOUT:\n" + evil)
    assert not any(ord(character) < 32 and character != "\n" for character in text)
    assert "\u202e" not in text
    assert "\\x1b" in text


def test_markup_of_rich_is_no_markup() -> None:
    assert "[bold]x[/bold]" in shown("Bash", {"command": "[bold]x[/bold]"}, "Exit code: 0\nSTDOUT:\n")


def test_what_is_visible() -> None:
    assert visible("a\tb\r\nc\x00\x9b\ufeff") == "a    b\nc\\x00\\x9b\\ufeff"
    assert visible("é 漢 🐸") == "é 漢 🐸"
    assert visible_line("\n\n  x  \ny") == "  x"
    assert visible_line("abcdef", 4) == "abc…"


def test_results_in_one_line() -> None:
    bash = Observation(tool="Bash", text="Exit code: 1\nSTDOUT:\n\nSTDERR:\nRan 3 tests\nFAILED (failures=1)\n")
    assert summary_of(bash) == "Exit code: 1 · FAILED (failures=1)"
    assert is_failure(bash)
    assert not is_failure(Observation(tool="Edit", text="Edited a.py (1 replacement)."))
    assert is_failure(Observation(tool="Edit", text="ValueError: old_string was not found"))
    assert is_failure(Observation(tool="Nope", text="Unknown tool: Nope"))
    assert main_argument(ToolCall(name="Edit", arguments={"new_string": "x", "file_path": "a"})) == "a"
    assert main_argument(ToolCall(name="Read", arguments={"path": "p"})) == "p"
    assert main_argument(ToolCall(name="Nope", arguments={})) == ""


def test_words_for_tests_and_times() -> None:
    assert describe_test(None) == "not checked"
    assert describe_test(TestOutcome(exit_code=None, tail="")) == "timed out"
    assert describe_test(TestOutcome(exit_code=0, tail="")) == "passed (exit code 0)"
    assert [duration(value) for value in (0.2, 59, 61, 3600, 7500)] == [
        "1 s",
        "59 s",
        "2 min",
        "1 h 0 min",
        "2 h 5 min",
    ]
