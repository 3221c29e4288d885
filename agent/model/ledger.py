"""What the model's memory holds: its tokens, the saved states to go back to, and what was counted; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.model.speculation import TOKEN_BYTES, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The recurrent state after `n_tokens` tokens. A `lasting` one is worth more than those of single turns."""

    n_tokens: int
    state: bytes
    lasting: bool


class Ledger:
    """The tokens in the model's memory, append-only between rollbacks.

    `evaluated_tokens` counts each token the first time it is decoded, `redecoded_tokens` every time after that. What
    `reject` took back, and drafts that were decoded and were wrong, are in `rejected_tokens` instead. `packed` are the
    tokens as bytes, to search in. The saved states have at most `checkpoint_bytes` together, but
    the last one is always kept.
    """

    def __init__(self, checkpoint_bytes: int) -> None:
        self.tokens: list[int] = []
        self.packed = bytearray()
        self.evaluated_tokens = 0
        self.redecoded_tokens = 0
        self.rejected_tokens = 0
        self._seen: list[int] = []
        self._budget = checkpoint_bytes
        self._checkpoints: list[Checkpoint] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def append(self, tokens: Sequence[int]) -> None:
        """These tokens were decoded, behind all others."""
        at = len(self.tokens)
        again = self._seen[at : at + len(tokens)]
        n_same = next((i for i, token in enumerate(again) if token != tokens[i]), len(again))
        self.redecoded_tokens += n_same
        self.evaluated_tokens += len(tokens) - n_same
        self.tokens += tokens
        self.packed += pack(tokens)
        if n_same < len(again):
            del self._seen[at + n_same :]
        self._seen += tokens[len(self._seen) - at :]

    def adopt(self, tokens: Sequence[int]) -> None:
        """These tokens are there, alone, and were not decoded: their state was kept from another time."""
        self.tokens = list(tokens)
        self.packed = bytearray(pack(tokens))
        self._seen = list(tokens)
        self._checkpoints.clear()

    def common(self, tokens: Sequence[int]) -> int:
        """How many tokens at the beginning are the same."""
        n = min(len(self.tokens), len(tokens))
        return next((i for i in range(n) if self.tokens[i] != tokens[i]), n)

    def save(self, state: bytes, *, lasting: bool) -> None:
        """Keep a checkpoint of what is there now, within the budget of bytes."""
        n_tokens = len(self.tokens)
        self._checkpoints = [point for point in self._checkpoints if point.n_tokens != n_tokens]
        self._checkpoints.append(Checkpoint(n_tokens=n_tokens, state=state, lasting=lasting))
        while sum(len(point.state) for point in self._checkpoints) > self._budget and len(self._checkpoints) > 1:
            passing = [point for point in self._checkpoints[:-1] if not point.lasting]
            self._checkpoints.remove(passing[0] if passing else self._checkpoints[-2])

    def checkpoint(self, most_tokens: int) -> Checkpoint | None:
        """The last checkpoint of at most so many tokens."""
        return max(
            (point for point in self._checkpoints if point.n_tokens <= most_tokens),
            key=lambda point: point.n_tokens,
            default=None,
        )

    def roll_back(self, n_tokens: int) -> None:
        """Forget the tokens behind the first `n_tokens`, and the checkpoints that hold them."""
        del self.tokens[n_tokens:]
        del self.packed[n_tokens * TOKEN_BYTES :]
        self._checkpoints = [point for point in self._checkpoints if point.n_tokens <= n_tokens]

    def reject(self, n_tokens: int) -> None:
        """The tokens behind the first `n_tokens` were a wrong way: they count as rejected, no more as evaluated."""
        n_rejected = len(self.tokens) - n_tokens
        self.evaluated_tokens -= n_rejected
        self.rejected_tokens += n_rejected
        del self._seen[n_tokens:]
        self.roll_back(n_tokens)

    def start_counting(self) -> None:
        """A new run: what was decoded before and is gone belongs to another."""
        self._seen = list(self.tokens)
