"""A model whose conversation never fills its window: it writes a summary for itself and goes on from that.

FrogNano keeps its full score at 64 K of context with summaries of its own, and loses 2 points without
(figures of its report; at 16 K it is 15 points).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.errors import ContextOverflow
from agent.prompt import SUMMARY_REQUEST, user_prompt
from agent.protocols import ChatModel, OnPrefill, OnText, Recorder
from agent.types import ConversationRestarted, Issue, JsonObject, Limits, ModelInfo, Observation, Turn

SUMMARY_SHARE = 0.2  # of the window, at most
RESERVE_SHARE = 0.25  # of the window: room for the request and the summary
CHARACTERS_PER_TOKEN = 3.0  # cautious: code has about 3.5
_WORDS_PER_TOKEN = 0.6


class SummarizedModel:
    """Wraps a ChatModel. `restart` events tell the recorder from which user turn the conversation goes on."""

    def __init__(self, model: ChatModel, issue: Issue, window_tokens: int, recorder: Recorder) -> None:
        self._model = model
        self._issue = issue
        self._window_tokens = window_tokens
        self._recorder = recorder
        self._system = ""
        self._tools: Sequence[JsonObject] = ()
        self._context_tokens = 0
        self._n_turns = 0

    async def open(self, limits: Limits) -> ModelInfo:
        """As ChatModel."""
        return await self._model.open(limits)

    async def begin(self, system: str, tools: Sequence[JsonObject], user: str) -> None:
        """As ChatModel."""
        self._system, self._tools, self._context_tokens = system, tools, 0
        await self._model.begin(system, tools, user)

    async def recall(self, turn: Turn, observations: Sequence[Observation]) -> None:
        """As ChatModel."""
        await self._model.recall(turn, observations)
        self._context_tokens = turn.context_tokens + _estimate(observations)
        self._n_turns += 1

    async def generate(self, observations: Sequence[Observation], on_text: OnText, on_prefill: OnPrefill) -> Turn:
        """As ChatModel; the usage of a turn before which a summary was written includes the summary's."""
        turn = None
        if observations and self._is_nearly_full(observations):
            summary = await self._summarize(observations, on_prefill)
            turn = await self._model.generate((), on_text, on_prefill)
            turn = replace(turn, usage=turn.usage + summary.usage)
        else:
            turn = await self._model.generate(observations, on_text, on_prefill)
        self._context_tokens = turn.context_tokens
        self._n_turns += 1
        return turn

    async def close(self) -> None:
        """As ChatModel."""
        await self._model.close()

    def _is_nearly_full(self, observations: Sequence[Observation]) -> bool:
        needed = self._context_tokens + _estimate(observations) + int(self._window_tokens * RESERVE_SHARE)
        return self._context_tokens > 0 and needed > self._window_tokens

    async def _summarize(self, observations: Sequence[Observation], on_prefill: OnPrefill) -> Turn:
        """Ask for a summary at the end of the last observation, where every chat format has room for it."""
        most_tokens = int(self._window_tokens * SUMMARY_SHARE)
        request = SUMMARY_REQUEST.format(n_words=max(50, int(most_tokens * _WORDS_PER_TOKEN)))
        room_tokens = self._window_tokens - self._context_tokens - int(self._window_tokens * RESERVE_SHARE)
        shown = _shorten(observations, max(200, int(room_tokens * CHARACTERS_PER_TOKEN)))
        shown[-1] = replace(shown[-1], text=f"{shown[-1].text}\n\n{request}")
        turn = await self._model.generate(shown, lambda _: None, on_prefill)
        text = (turn.content or ("" if turn.calls else turn.reasoning)).strip()
        text = text[: int(most_tokens * CHARACTERS_PER_TOKEN)]
        if not text:
            raise ContextOverflow(
                f"the conversation fills the context of {self._window_tokens} tokens and the model wrote no summary",
                "Use a larger context, or describe a smaller issue.",
            )
        user = user_prompt(self._issue, text)
        await self._model.begin(self._system, self._tools, user)
        self._recorder.record(ConversationRestarted(step=self._n_turns + 1, user=user))
        return turn


def _estimate(observations: Sequence[Observation]) -> int:
    return int(sum(len(observation.text) for observation in observations) / CHARACTERS_PER_TOKEN)


def _shorten(observations: Sequence[Observation], n_characters: int) -> list[Observation]:
    """Cut the texts, the longest share each, so that together they have about `n_characters`."""
    share = n_characters // max(1, len(observations))
    return [
        item if len(item.text) <= share else replace(item, text=f"{item.text[:share]}\n[truncated]")
        for item in observations
    ]
