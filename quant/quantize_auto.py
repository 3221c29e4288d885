"""The best mix of types under a size; pure.

Each matrix adds noise to what the model computes. Its share is the relative error of its output when it is quantized,
`Candidate.error` (measured, with the importance of each input where that is known), times its weight: a layer adds to
the residual stream what 2 x layers others add too, so that a matrix of a layer counts once and the matrix that makes
the logits, behind all of them, 2 x layers times. The sum of these shares is made as small as the size allows: all
matrices begin with their smallest type, and then again and again the step that takes away most noise for a byte is
made, as long as it fits. Only steps on the lower convex hull of (bytes, error) are looked at, so that no step hides a
better one behind it.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

AUTO_KINDS = ("Q2_K", "Q3_K", "IQ4_XS", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "Q5_0", "Q8_0")
"""What is chosen from, beside the type that a tensor has. All can be made without an importance matrix."""

_LAYER = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A type that a tensor may get: its bytes in the file, and the relative error of its output (noise by signal)."""

    kind: str
    size_bytes: int
    error: float


class TooSmallError(ValueError):
    """Not even the smallest types fit. `smallest_bytes` is what they need in all."""

    def __init__(self, smallest_bytes: int) -> None:
        super().__init__(f"{smallest_bytes} bytes are needed")
        self.smallest_bytes = smallest_bytes


def weight_of(name: str, n_layers: int, has_output: bool) -> float:
    """How often the error of a matrix counts. `has_output`: the logits have a matrix of their own, not the embedding's.

    Layers that only draft count a tenth: a wrong draft costs time, not a wrong answer.
    """
    layer = _LAYER.search(name)
    if layer is not None:
        return 1.0 if int(layer[1]) < n_layers else 0.1
    makes_logits = name == "output.weight" or (name == "token_embd.weight" and not has_output)
    return 2.0 * n_layers if makes_logits else 1.0


def choose(
    candidates: Mapping[str, Sequence[Candidate]], weights: Mapping[str, float], most_bytes: int
) -> dict[str, Candidate]:
    """A type for each tensor, `most_bytes` at most in all. Raises TooSmallError where that is not possible."""
    steps = {name: _hull(items) for name, items in candidates.items()}
    chosen = {name: hull[0] for name, hull in steps.items()}
    used = sum(item.size_bytes for item in chosen.values())
    if used > most_bytes:
        raise TooSmallError(used)
    queue = [entry for name, hull in steps.items() if (entry := _step(name, hull, 0, weights[name])) is not None]
    heapq.heapify(queue)
    while queue:
        _, name, number = heapq.heappop(queue)
        hull = steps[name]
        more = hull[number].size_bytes - chosen[name].size_bytes
        if used + more > most_bytes:
            continue  # a smaller tensor may still have room; this one stays as it is
        used += more
        chosen[name] = hull[number]
        if (entry := _step(name, hull, number, weights[name])) is not None:
            heapq.heappush(queue, entry)
    return chosen


def _step(name: str, hull: Sequence[Candidate], at: int, weight: float) -> tuple[float, str, int] | None:
    """(less than none: the noise that the next step takes away for a byte, the tensor, the number of the step)."""
    if at + 1 >= len(hull):
        return None
    now, then = hull[at], hull[at + 1]
    return (-weight * (now.error - then.error) / (then.size_bytes - now.size_bytes), name, at + 1)


def _hull(items: Sequence[Candidate]) -> list[Candidate]:
    """The lower convex hull, from the smallest: each step takes away less for a byte than the one before it."""
    hull: list[Candidate] = []
    for item in sorted(items, key=lambda item: (item.size_bytes, item.error)):
        if hull and item.error >= hull[-1].error:
            continue
        while len(hull) > 1 and _gain(hull[-2], hull[-1]) <= _gain(hull[-1], item):
            hull.pop()
        hull.append(item)
    return hull


def _gain(now: Candidate, then: Candidate) -> float:
    return (now.error - then.error) / (then.size_bytes - now.size_bytes)
