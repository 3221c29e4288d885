"""Observations as texts: the answer to a call that could not be read, and when two texts say the same."""

from __future__ import annotations

import re
from dataclasses import replace

from agent.types import CallProblem, Observation, ToolCall, Turn

INVALID_CALL = ToolCall(name="invalid", arguments={})
"""Stands for a block of a turn that is no call."""

_FORMAT = (
    "<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>\n"
    "with NAME one of Read, Write, Edit, Glob, Bash."
)
STOPPED = (
    "[Your reply repeated the same lines and was stopped; nothing of it ran. Do not repeat it. "
    "Make the one tool call that is the next step, or say in a few sentences that you are done.]"
)
CLOSED = (
    "[Your thought was ended because it was too long or went round in circles, and no tool call followed. "
    "Make the one tool call that is the next step, or say in a few sentences that you are done.]"
)
_CLOSED_THOUGHTS = frozenset({"thought_limit", "thought_repeats"})
_SECONDS = re.compile(r"\b\d+(?:\.\d+)? ?(?:m?s|sec(?:ond)?s?|minutes?)\b")
_MAX_PERIOD = 64  # lines; longer cycles are not looked for
_MIN_REPEATED_LINES = 12


def with_nudge(turn: Turn) -> Turn:
    """A turn that was stopped, or that said nothing once its thought had been closed, with a problem that says so.

    None of its calls run: it was cut.
    """
    kinds = {item.kind for item in turn.forced}
    if "answer_repeats" in kinds:
        message = STOPPED
    elif kinds & _CLOSED_THOUGHTS and not (turn.calls or turn.problems or turn.truncated or turn.content.strip()):
        message = CLOSED
    else:
        return turn
    nudge = CallProblem(index=0, call=None, message=message, is_nudge=True)
    return replace(turn, calls=(), problems=(nudge,), truncated=False)


def is_nudged(turn: Turn) -> bool:
    """Whether the turn is answered with a nudge (`with_nudge`)."""
    return any(problem.is_nudge for problem in turn.problems)


def in_order(turn: Turn) -> list[ToolCall | CallProblem]:
    """The blocks of a turn in the order they were written; a problem stands where there is no call."""
    unread = {problem.index: problem for problem in turn.problems if problem.call is None}
    calls = list(turn.calls)
    n_blocks = max([len(calls) + len(unread), *(index + 1 for index in unread)])
    slots = [unread.get(index) or (calls.pop(0) if calls else None) for index in range(n_blocks)]
    return [slot for slot in slots if slot is not None]


def describe_problem(problem: CallProblem) -> Observation:
    """The observation for a block that could not be read: what is wrong, and the format that is right.

    A nudge has words of its own.
    """
    if problem.is_nudge:
        return Observation(tool=INVALID_CALL.name, text=problem.message)
    return Observation(
        tool=INVALID_CALL.name,
        text=f"ValueError: this call could not be read and did not run: {problem.message}\nThe format is\n{_FORMAT}",
    )


def without_durations(text: str) -> str:
    """`text` with durations ("0.012s", "3 seconds") replaced by a sign, to compare two runs of a command."""
    return _SECONDS.sub("#s", text)


def repeats_itself(text: str) -> bool:
    """Whether a text that was cut ends in the same lines again and again.

    True where some cycle of at most 64 lines makes up at least the last half of the text, at least 12 lines
    and three rounds. The last line is left out, since the cut may lie in it.
    """
    lines = text.split("\n")[:-1]
    for period in range(1, min(_MAX_PERIOD, len(lines) // 3) + 1):
        n_repeated = 0
        while n_repeated + period < len(lines) and lines[-1 - n_repeated] == lines[-1 - n_repeated - period]:
            n_repeated += 1
        if n_repeated + period >= max(_MIN_REPEATED_LINES, 3 * period, len(lines) // 2):
            return True
    return False
