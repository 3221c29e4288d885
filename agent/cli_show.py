"""How a run looks in a terminal: its steps as they happen, then what was checked and what was not.

Everything goes to stderr. Nothing that a file, a command or a model wrote is printed raw.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

from agent.steered import describe_forced
from agent.types import (
    ConversationRestarted,
    ExitReason,
    Limits,
    Note,
    Observation,
    Prefill,
    RunEvent,
    RunStarted,
    StepStarted,
    TestOutcome,
    TestsFinished,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnSteered,
)
from agent.visible import visible, visible_line

_TOOL_COLUMN = 6
_MAIN_ARGUMENT = {"Read": "file_path", "Write": "file_path", "Edit": "file_path", "Glob": "pattern", "Bash": "command"}
_STATUS_PERIOD_S = 0.1

EXIT_SENTENCES: Mapping[ExitReason, str] = {
    ExitReason.AGENT: "The model ended by itself",
    ExitReason.MAX_TOKENS_PER_TURN: "Stopped: one reply was longer than the limit",
    ExitReason.MAX_CONTEXT_LEN: "Stopped: the context is full",
    ExitReason.MAX_TURNS: "Stopped: the limit of steps is reached",
    ExitReason.MAX_TIME: "Stopped: the time limit is reached",
    ExitReason.CANCELLED: "Cancelled",
    ExitReason.LLM_QUERY_ERROR: "Stopped: the model could not be asked",
    ExitReason.TOOL_ERROR: "Stopped: the tools in the jail ended",
    ExitReason.STUCK: "Stopped: the model was going round in circles",
    ExitReason.JAIL_UNAVAILABLE: "Nothing ran: there is no jail",
    ExitReason.MODEL_UNAVAILABLE: "Stopped: the model is not available",
}


def make_console() -> Console:
    """The console on stderr; without colours where NO_COLOR says so or stderr is no terminal."""
    width = None if sys.stderr.isatty() else 80
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=False, width=width)


class Presenter:
    """Shows the events of a run. Its `show` is the `on_event` of a Run."""

    def __init__(
        self, console: Console, *, clock: Callable[[], float] = time.monotonic, with_estimate: bool = True
    ) -> None:
        self._console = console
        self._with_estimate = with_estimate
        self._clock = clock
        self._limits = Limits()
        self._status: Status | None = None
        self._last_status = -math.inf
        self._run_began = clock()
        self._turn_began = clock()
        self._text_began: float | None = None
        self._n_pieces = 0
        self._last_line = ""
        self._speed = ""
        self._n_first = 0  # the steps before the first one that was generated here
        self._step = 0

    def show(self, event: RunEvent) -> None:
        """Show one event; those that it does not know are left out."""
        match event:
            case RunStarted():
                self._show_start(event)
            case StepStarted(step=step):
                self._begin_step(step)
            case Prefill(done=done, total=total):
                self._say(f"reading {done} of {total} tokens")
            case TextDelta(text=text):
                self._text_began = self._text_began or self._clock()
                self._n_pieces += 1
                self._last_line = _last_line(self._last_line + text)
                self._say(f"writing: {self._last_line}")
            case TurnFinished(turn=turn):
                n_tokens = turn.usage.completion_tokens or self._n_pieces
                self._speed = self._rate(n_tokens).removeprefix(" · ") or _speed(n_tokens, turn.duration_s)
                if not turn.calls and not turn.problems:
                    self._print_result("reply was cut" if turn.truncated else "reply without a call", "dim")
                    self._say("collecting the changes and checking them", at_once=True)
            case TurnSteered(forced=forced):
                self._print(Text(f"      {describe_forced(forced)}", "dim"))
            case ToolStarted(call=call):
                self._say(f"running {call.name}", at_once=True)
            case ToolFinished(step=step, call=call, observation=observation):
                self._show_tool(step, call, observation)
            case ConversationRestarted():
                self._print(Text("      the context was nearly full: going on from the model's summary", "dim"))
            case TestsFinished(phase=phase, outcome=outcome):
                self._print(Text(f"tests {phase}: {describe_test(outcome)}", _test_style(outcome)))
            case Note(text=text) if not self._step:  # later ones are in the summary, which follows at once
                self._print(Text(f"note: {visible(text)}", "yellow"))
            case _:
                pass

    def wait(self, what: str) -> None:
        """Show what is being waited for, in a terminal only."""
        self._say(what, at_once=True)

    def close(self) -> None:
        """Take the status line away. Idempotent."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _show_start(self, event: RunStarted) -> None:
        self._limits = event.limits
        self._run_began = self._clock()
        name = visible_line(event.model.name)
        self._print(Text(f"model {name} · jail {event.jail.backend} · run {event.run_id}", "bold"))
        if event.jail.reduced:
            self._print(Text(f"the jail is reduced: {visible(event.jail.reduced)}", "yellow"))

    def _begin_step(self, step: int) -> None:
        if not self._step:
            self._n_first = step - 1
        self._step = step
        self._turn_began = self._clock()
        self._text_began, self._n_pieces, self._speed, self._last_line = None, 0, "", ""
        self._say("thinking", at_once=True)

    def _show_tool(self, step: int, call: ToolCall, observation: Observation) -> None:
        width = self._console.width
        head = f"{step:>4}  {visible_line(call.name):<{_TOOL_COLUMN}}"
        argument = visible_line(main_argument(call), max(8, width - len(head) - 2))
        line = Text(head, "bold")
        line.append(f" {argument}", "default")
        self._print(line)
        self._print_result(summary_of(observation), "red" if is_failure(observation) else "dim")

    def _print_result(self, text: str, style: str) -> None:
        """Print the first line of a result, with the speed and the time left at the right edge."""
        meta = " · ".join(part for part in (self._speed, self._time_left()) if part)
        self._speed = ""
        indent = " " * (4 + 2 + _TOOL_COLUMN + 1)
        room = self._console.width - len(indent) - (len(meta) + 2 if meta else 0)
        line = Text(indent).append(visible_line(text, max(8, room)), style)
        gap = self._console.width - line.cell_len - len(meta)
        if meta and gap > 0:
            line.append(" " * gap).append(meta, "dim")
        self._print(line)

    def _rate(self, n_tokens: int) -> str:
        if self._text_began is None or n_tokens < 2:
            return ""
        speed = _speed(n_tokens, self._clock() - self._text_began)
        return f" · {speed}" if speed else ""

    def _time_left(self) -> str:
        """An upper bound from the mean time of a step, the steps left and the time limit."""
        elapsed = self._clock() - self._run_began
        n_done = self._step - self._n_first
        if n_done <= 0 or not self._with_estimate:
            return ""
        left = min(self._limits.time_s - elapsed, elapsed / n_done * (self._limits.max_steps - self._step))
        return f"≤ {duration(max(0.0, left))} left"

    def _say(self, what: str, *, at_once: bool = False) -> None:
        if not self._console.is_terminal:
            return
        now = self._clock()
        if not at_once and now - self._last_status < _STATUS_PERIOD_S:
            return
        self._last_status = now
        left = self._time_left()
        begin = f"step {self._step} · " if self._step else ""
        room = self._console.width - 4 - len(begin) - (len(left) + 3 if left else 0)
        text = Text(begin + visible_line(what, max(8, room)) + (f" · {left}" if left else ""), "dim")
        if self._status is None:
            self._status = Status(text, console=self._console, spinner="line")
            self._status.start()
        else:
            self._status.update(text)

    def _print(self, text: Text) -> None:
        text.no_wrap = False
        self._console.print(text, overflow="fold")


def _last_line(text: str) -> str:
    """What the model writes at the moment: its last line that is not blank, at most 200 characters of it."""
    return next((line for line in reversed(text.split("\n")) if line.strip()), "")[-200:]


def main_argument(call: ToolCall) -> str:
    """The argument that says most about a call."""
    value: Any = call.arguments.get(_MAIN_ARGUMENT.get(call.name, ""), call.arguments.get("path"))
    if value is None:
        value = next(iter(call.arguments.values()), "")
    return value if isinstance(value, str) else str(value)


def is_failure(observation: Observation) -> bool:
    """Whether the tool answered with an error, or the command with another exit code than 0."""
    first = observation.text.split("\n", 1)[0]
    if observation.tool == "Bash":
        return first != "Exit code: 0"
    head = first.split(":", 1)[0]
    return ":" in first and (head.endswith("Error") or head == "Unknown tool")


def summary_of(observation: Observation) -> str:
    """The first line of the result; for a command also the last line that it printed."""
    lines = observation.text.split("\n")
    if observation.tool != "Bash":
        return lines[0]
    printed = [line for line in lines[1:] if line.strip() and line not in ("STDOUT:", "STDERR:")]
    return f"{lines[0]} · {printed[-1].strip()}" if printed else lines[0]


def describe_test(outcome: TestOutcome | None) -> str:
    """The outcome of the tests in words; without one "not checked"."""
    if outcome is None:
        return "not checked"
    if outcome.exit_code is None:
        return "timed out"
    return "passed (exit code 0)" if outcome.exit_code == 0 else f"failed (exit code {outcome.exit_code})"


def duration(seconds: float) -> str:
    """Seconds as a person says them: `8 s`, `4 min`, `2 h 5 min`."""
    if seconds < 59.5:
        return f"{max(1, math.ceil(seconds))} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _speed(n_tokens: int, seconds: float) -> str:
    if n_tokens <= 0 or seconds <= 1e-3:
        return ""
    speed = n_tokens / seconds
    return f"{speed:.0f} tok/s" if speed >= 10 else f"{speed:.1f} tok/s"


def _test_style(outcome: TestOutcome) -> str:
    return "green" if outcome.exit_code == 0 else "red"


def describe_place(path: str) -> str:
    """A path with the home folder written as `~`."""
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if home != "/" and path.startswith(f"{home}/") else path
