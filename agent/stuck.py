"""When a run goes round in circles: the same outcome again and again, or a reply that does not come to its point."""

from __future__ import annotations

from agent.observations import is_nudged, without_durations
from agent.types import CallProblem, Observation, ToolCall, Turn

SAME_OUTCOMES = 3  # the same call with the same result so many times running is `stuck`
LONGEST_ROUND = 3  # and so are so many calls, with their results, one after the other
MOST_NUDGES = 1  # a turn that is stopped is answered once; the next one running is `stuck`


class Circles:
    """What the turns of a run had in common with those before."""

    def __init__(self) -> None:
        self._outcomes: list[object] = []
        self._n_nudged = 0

    def closes_with(self, item: ToolCall | CallProblem, turn: Turn, observation: Observation) -> bool:
        """Whether this outcome, or the round it ends, is one too many of the same.

        What could not be read is told apart by what was said.
        """
        said = (turn.raw, turn.reasoning, turn.content)
        who = ("", said) if isinstance(item, CallProblem) else (item.name, dict(item.arguments))
        self._outcomes.append((who, without_durations(observation.text)))
        del self._outcomes[: -SAME_OUTCOMES * LONGEST_ROUND]
        return any(self._goes_round(n) for n in range(1, LONGEST_ROUND + 1))

    def _goes_round(self, n: int) -> bool:
        """Whether the last `n` outcomes were the same so many times running."""
        last = self._outcomes[-SAME_OUTCOMES * n :]
        return len(last) == SAME_OUTCOMES * n and last[n:] == last[:-n]

    def is_beyond_nudging(self, turn: Turn) -> bool:
        """Whether the turn was stopped although the one before had been answered with a nudge."""
        self._n_nudged = self._n_nudged + 1 if is_nudged(turn) else 0
        return self._n_nudged > MOST_NUDGES
