"""How a turn is kept under control while it is generated: calls repaired, thoughts ended, circles left. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.model.call_guard import CLOSE_THOUGHT, CallGuard, Mode, Rewrite
from agent.model.repetition import TAIL_CHARACTERS, goes_in_circles

THOUGHT_SHARE = 0.75
"""Of what a turn may still have, for its thought: the call that follows needs the rest."""

LOOK_EVERY_TOKENS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The turn ends here, as if it had been cut. `kind` is a stable word."""

    kind: str


class Steering:
    """Follows one turn token by token. `thought_tokens`: the most of one thought; then it is closed."""

    def __init__(
        self,
        keys_by_tool: Mapping[str, frozenset[str]],
        *,
        opens_thinking: bool = True,
        repairs: bool = True,
        thought_tokens: int | None = None,
    ) -> None:
        self.guard = CallGuard(keys_by_tool, opens_thinking=opens_thinking, repairs=repairs)
        self._thought_tokens = thought_tokens
        self._n_tokens = self._n_thought = 0
        self._left_circle = False

    def offer(self, piece: bytes) -> Rewrite | Stop | None:
        """Take the text of the next token, or say what happens in its place."""
        self._n_tokens += 1
        guard = self.guard
        if guard.mode is Mode.THOUGHT:
            self._n_thought += 1
            if self._thought_tokens is not None and self._n_thought > self._thought_tokens:
                return self._close_thought("thought_limit", piece)
        if self._n_tokens % LOOK_EVERY_TOKENS == 0 and guard.mode in (Mode.THOUGHT, Mode.PROSE):
            text = bytes(guard.text[max(guard.section, len(guard.text) - 4 * TAIL_CHARACTERS) :])
            if goes_in_circles(text.decode("utf-8", "replace")):
                if guard.mode is Mode.PROSE or self._left_circle:
                    return Stop(kind="answer_repeats")
                self._left_circle = True
                return self._close_thought("thought_repeats", piece)
        return guard.offer(piece)

    def end(self) -> Rewrite | None:
        """The model ends the turn: what is put right before."""
        return self.guard.end()

    def rewritten(self, text: bytes) -> None:
        """The turn is `text` now."""
        self.guard.restart(text)

    def _close_thought(self, kind: str, piece: bytes) -> Rewrite:
        """The thought ends in place of `piece`."""
        self._n_thought = 0
        size = len(self.guard.text)
        return Rewrite(kind=kind, start=size, end=size + len(piece), text=CLOSE_THOUGHT)
