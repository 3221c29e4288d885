"""What a generated turn is worth as a tool call, and which turns of recorded runs are asked for again; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from agent.observations import repeats_itself
from agent.types import JsonObject, Turn
from quant.compare_metrics import Estimate, wilson
from quant.transcripts import Conversation

MEASURES = ("parses", "real_tool", "all_arguments", "repeats", "capped", "no_call")
"""The names of what is counted, the shares of all turns; the first three are better when larger."""

_CIRCLES = frozenset({"thought_repeats", "answer_repeats"})
REPAIRS = frozenset({"name", "structure", "parameter", "close", "thought"})
"""What `CallGuard` puts right; the other kinds of `Forced` are limits, which hold with and without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One turn.

    `parses`: it came to its end, and every block of a call in it can be read. `real_tool`: it calls, and every name
    is a tool's. `all_arguments`: that, with every required argument, each of the type that the schema wants.
    `repeats`: it was stopped in a circle, or cut in one. `capped`: it was cut by the length limit. `no_call`: it calls
    nothing, where the recorded run did.
    """

    parses: bool
    real_tool: bool
    all_arguments: bool
    repeats: bool
    capped: bool
    no_call: bool


def judge(turn: Turn, tools: Sequence[JsonObject]) -> Verdict:
    """Judge a turn by the schemas of its tools."""
    required = required_arguments(tools)
    wrong = {problem.call for problem in turn.problems if problem.call is not None}
    is_real = bool(turn.calls) and all(call.name in required for call in turn.calls)
    is_whole = is_real and not wrong
    for call in turn.calls if is_whole else ():
        is_whole = is_whole and all(key in call.arguments for key in required[call.name])
    return Verdict(
        parses=not turn.truncated and all(problem.call is not None for problem in turn.problems),
        real_tool=is_real,
        all_arguments=is_whole,
        repeats=any(item.kind in _CIRCLES for item in turn.forced)
        or (turn.truncated and repeats_itself(turn.raw or "")),
        capped=turn.truncated,
        no_call=not turn.calls,
    )


def was_repaired(turn: Turn) -> bool:
    """Whether the call guard changed the turn. Where it did not, the turn is the same without it."""
    return any(item.kind in REPAIRS for item in turn.forced)


def required_arguments(tools: Sequence[JsonObject]) -> Mapping[str, tuple[str, ...]]:
    """The required arguments of each tool, by OpenAI function schemas. What is no schema is passed over."""
    found = {}
    for tool in tools:
        function = tool.get("function", tool)
        parameters = function.get("parameters")
        keys = parameters.get("required") if isinstance(parameters, dict) else None
        found[str(function.get("name", ""))] = tuple(map(str, keys)) if isinstance(keys, list) else ()
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The place before turn `step` (from 0) of a conversation: the turn is asked for again."""

    conversation: int
    step: int


def choose_prompts(
    conversations: Sequence[Conversation], n_before: Sequence[Sequence[Sequence[int]]], *, room: int, most: int
) -> list[Prompt]:
    """At most `most` places where the recorded run called a tool, evenly over all, in the order of the runs.

    `n_before` has the tokens before each turn, for each model; no more than `room` may lie there.
    """
    places = [
        Prompt(conversation=i, step=k)
        for i, conversation in enumerate(conversations)
        for k, step in enumerate(conversation.steps)
        if step.turn.calls and all(model[i][k] <= room for model in n_before)
    ]
    n = min(most, len(places))
    return [places[i * len(places) // n] for i in range(n)]


@dataclass(slots=True)
class Tally:
    """The verdicts of one model, by prompt: turns with different seeds at one place are not independent."""

    by_prompt: dict[Prompt, list[Verdict]] = field(default_factory=dict)

    def add(self, prompt: Prompt, verdict: Verdict) -> None:
        """Count one turn."""
        self.by_prompt.setdefault(prompt, []).append(verdict)

    @property
    def n_turns(self) -> int:
        """The number of turns."""
        return sum(map(len, self.by_prompt.values()))

    def share(self, measure: str) -> Estimate:
        """The share of turns; Wilson's interval for as many trials as there are prompts, which is on the safe side."""
        shares = [fmean(getattr(verdict, measure) for verdict in verdicts) for verdicts in self.by_prompt.values()]
        if not shares:
            return Estimate(value=0.0, low=None, high=None)
        return wilson(fmean(shares), len(shares))

    def shares(self, measures: Iterable[str] = MEASURES) -> dict[str, Estimate]:
        """All shares by their names."""
        return {measure: self.share(measure) for measure in measures}
