"""When a run goes round in circles: the same outcome again and again, or a reply that does not come to its point."""

from __future__ import annotations

from agent.observations import is_nudged, without_durations
from agent.types import CallProblem, Observation, ToolCall, Turn

SAME_OUTCOMES = 3  # the same call with the same result so many times running is `stuck`
MOST_NUDGES = 1  # a turn that is stopped is answered once; the next one running is `stuck`


class Circles:
    """What the turns of a run had in common with those before."""

    def __init__(self) -> None:
        self._last: object = None
        self._n_same = self._n_nudged = 0

    def closes_with(self, item: ToolCall | CallProblem, turn: Turn, observation: Observation) -> bool:
        """Whether this outcome is one too many of the same. What could not be read is told apart by what was said."""
        said = (turn.raw, turn.reasoning, turn.content)
        who = ("", said) if isinstance(item, CallProblem) else (item.name, dict(item.arguments))
        outcome = (who, without_durations(observation.text))
        self._n_same = self._n_same + 1 if outcome == self._last else 1
        self._last = outcome
        return self._n_same >= SAME_OUTCOMES

    def is_beyond_nudging(self, turn: Turn) -> bool:
        """Whether the turn was stopped although the one before had been answered with a nudge."""
        self._n_nudged = self._n_nudged + 1 if is_nudged(turn) else 0
        return self._n_nudged > MOST_NUDGES
