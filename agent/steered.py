"""What was put into turns while the model wrote them, in the words of a person; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agent.types import Forced

_ENDED = {
    "thought_limit": "thought was too long and was ended",
    "thought_repeats": "thought went round in circles and was ended",
    "answer_repeats": "reply repeated itself and was stopped",
}


def describe_forced(forced: Sequence[Forced]) -> str:
    """What was done to one turn, in a few words."""
    ended = [f"the {_ENDED[item.kind]}" for item in forced if item.kind in _ENDED]
    repaired = ["a call was put right"] if len(ended) < len(forced) else []
    return "; ".join(dict.fromkeys(repaired + ended))


def forced_notes(forced: Sequence[Forced]) -> list[str]:
    """What to say about all turns of a run."""
    repairs = [item for item in forced if item.kind not in _ENDED]
    notes = []
    if repairs:
        slips = "1 slip" if len(repairs) == 1 else f"{len(repairs)} slips"
        n_tokens = sum(item.n_tokens for item in repairs)
        notes.append(f"Tool calls: {slips} of form put right while they were written ({n_tokens} tokens forced).")
    n_ended = Counter(item.kind for item in forced)
    for kind, what in _ENDED.items():
        if n := n_ended[kind]:
            notes.append(f"A {what}{'' if n == 1 else f' ({n} times)'}.")
    return notes
