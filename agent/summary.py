"""A model whose conversation never fills its window: it writes a summary for itself and goes on from that.

FrogNano keeps its full score at 64 K of context with summaries of its own, and loses 2 points without
(figures of its report; at 16 K it is 15 points). The oldest turns go whole; the last ones stay as they were.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from agent.errors import ContextOverflow
from agent.prompt import SUMMARY_REQUEST, user_prompt
from agent.protocols import ChatModel, OnPrefill, OnText, Recorder
from agent.types import ConversationRestarted, Issue, JsonObject, Limits, ModelInfo, Observation, Turn

SUMMARY_SHARE = 0.2  # of the window, at most
RESERVE_SHARE = 0.25  # of the window: room for the summary, or for one more turn
KEPT_SHARE = 0.3  # of the window, at most, for the last turns, which stay whole
OBSERVATIONS_SHARE = 0.2  # of the window, at most, for the observations of one turn
CHARACTERS_PER_TOKEN = 3.0  # cautious: code has about 3.5; fewer where the model's own counts say so
FEWEST_TO_LEARN = 400  # characters
_WORDS_PER_TOKEN = 0.6
_FEWEST_SHOWN = 200  # characters of an observation
_DIGEST_CALLS = 20

_Entry = tuple[Turn, tuple[Observation, ...]]


class SummarizedModel:
    """Wraps a ChatModel. `ConversationRestarted` tells the recorder from which user turn the conversation goes on."""

    def __init__(self, model: ChatModel, issue: Issue, window_tokens: int, recorder: Recorder) -> None:
        self._model = model
        self._issue = issue
        self._window_tokens = window_tokens
        self._recorder = recorder
        self._system, self._user = "", ""
        self._tools: Sequence[JsonObject] = ()
        self._history: list[_Entry] = []  # since the conversation began; the last turn may still lack observations
        self._n_tokens = self._n_characters = 0  # of the conversation: tokens that are known, characters that are not
        self._n_learned = (0, 0)  # characters and tokens of texts of which both are known
        self._n_turns = 0

    async def open(self, limits: Limits) -> ModelInfo:
        """As ChatModel."""
        return await self._model.open(limits)

    async def begin(self, system: str, tools: Sequence[JsonObject], user: str) -> None:
        """As ChatModel."""
        self._system, self._tools, self._user = system, tools, user
        self._history = []
        self._n_tokens, self._n_characters = 0, len(system) + len(json.dumps(list(tools))) + len(user)
        await self._model.begin(system, tools, user)

    async def recall(self, turn: Turn, observations: Sequence[Observation]) -> None:
        """As ChatModel."""
        self._n_turns += 1
        await self._append(turn, self._fit(observations))

    async def generate(self, observations: Sequence[Observation], on_text: OnText, on_prefill: OnPrefill) -> Turn:
        """As ChatModel; the usage of a turn before which a summary was written includes the summary's."""
        shown, is_recalled = self._fit(observations), not observations
        if observations and self._history:
            self._history[-1] = (self._history[-1][0], shown)
            self._n_characters += _length(shown)
        if self._history and self._is_nearly_full():
            turn = await self._go_on_from_summary(on_text, on_prefill, is_recalled=is_recalled)
        else:
            try:
                turn = await self._model.generate(shown, on_text, on_prefill)
            except ContextOverflow:  # the estimate was too low
                if not self._history:
                    raise
                turn = await self._go_on_from_summary(on_text, on_prefill, is_recalled=is_recalled)
            else:
                if turn.truncated and self._history and self._fills_window(turn):
                    spent = turn.usage
                    turn = await self._go_on_from_summary(on_text, on_prefill, is_recalled=True)
                    turn = replace(turn, usage=turn.usage + spent)
        self._learn(self._n_characters + _said(turn), turn.context_tokens - self._n_tokens)
        self._n_tokens, self._n_characters = turn.context_tokens, 0
        self._history.append((turn, ()))
        self._n_turns += 1
        return turn

    async def close(self) -> None:
        """As ChatModel."""
        await self._model.close()

    def _is_nearly_full(self) -> bool:
        return self._context_tokens + self._reserve() > self._window_tokens

    def _reserve(self) -> int:
        """Tokens that are kept free: for the request, and for the summary or one more turn."""
        return int(self._window_tokens * RESERVE_SHARE) + self._estimate(len(SUMMARY_REQUEST))

    def _fills_window(self, turn: Turn) -> bool:
        used = max(turn.context_tokens, turn.usage.prompt_tokens + turn.usage.completion_tokens)
        return used >= self._window_tokens

    def _fit(self, observations: Sequence[Observation]) -> tuple[Observation, ...]:
        """The observations, cut where they would take more of the window than one turn may; the same at a resume."""
        most = int(self._window_tokens * OBSERVATIONS_SHARE * CHARACTERS_PER_TOKEN)
        if _length(observations) <= most:
            return tuple(observations)
        return _shorten(observations, most)

    async def _go_on_from_summary(self, on_text: OnText, on_prefill: OnPrefill, *, is_recalled: bool) -> Turn:
        """Answer in a conversation of a summary and the last turns, fewer of them where they do not fit.

        `is_recalled`: the conversation has to be made again before the summary is asked for.
        """
        summary = await self._summarize(on_prefill, is_recalled=is_recalled)
        most_characters = int(self._window_tokens * SUMMARY_SHARE * CHARACTERS_PER_TOKEN)
        text = (summary.content or summary.reasoning).strip()[:most_characters] or _digest(self._history)
        user, kept = user_prompt(self._issue, text), self._last_turns()
        while True:
            await self.begin(self._system, self._tools, user)
            for entry in kept:
                await self._append(*entry)
            try:
                turn = await self._model.generate((), on_text, on_prefill)
                break
            except ContextOverflow:
                if not kept:
                    raise
                kept = kept[len(kept) // 2 + 1 :]
        self._recorder.record(ConversationRestarted(step=self._n_turns + 1, user=user, n_kept=len(kept)))
        return replace(turn, usage=turn.usage + summary.usage)

    async def _append(self, turn: Turn, observations: tuple[Observation, ...]) -> None:
        await self._model.recall(turn, observations)
        self._history.append((turn, observations))
        self._n_characters += _length(observations)
        if turn.usage.completion_tokens:
            self._n_tokens += turn.usage.completion_tokens
            self._learn(_said(turn), turn.usage.completion_tokens)
        else:
            self._n_characters += _said(turn)

    @property
    def _context_tokens(self) -> int:
        return self._n_tokens + self._estimate(self._n_characters)

    def _learn(self, n_characters: int, n_tokens: int) -> None:
        self._n_learned = (self._n_learned[0] + n_characters, self._n_learned[1] + max(0, n_tokens))

    def _estimate(self, n_characters: int) -> int:
        """Tokens of a text. Where those of this run have fewer characters, it counts for as many more."""
        learned, tokens = self._n_learned
        measured = learned / tokens if learned >= FEWEST_TO_LEARN and tokens else CHARACTERS_PER_TOKEN
        return int(n_characters / min(CHARACTERS_PER_TOKEN, measured))

    def _size(self, turn: Turn, observations: Sequence[Observation]) -> int:
        return (turn.usage.completion_tokens or self._estimate(_said(turn))) + self._estimate(_length(observations))

    async def _summarize(self, on_prefill: OnPrefill, *, is_recalled: bool) -> Turn:
        """Ask for a summary at the end of the last observation, where every chat format has room for it.

        An empty turn where there is no room even for that.
        """
        n_words = max(50, int(self._window_tokens * SUMMARY_SHARE * _WORDS_PER_TOKEN))
        request = SUMMARY_REQUEST.format(n_words=n_words)
        turn, observations = self._history[-1]
        before = self._context_tokens - self._estimate(_length(observations))
        room_tokens = self._window_tokens - before - self._reserve()
        n_characters = max(_FEWEST_SHOWN, int(room_tokens * CHARACTERS_PER_TOKEN))
        while True:
            shown = [*_shorten(observations, n_characters)] or [Observation(tool="", text="")]
            shown[-1] = replace(shown[-1], text=f"{shown[-1].text}\n\n{request}")
            try:
                if not is_recalled:
                    return await self._model.generate(shown, lambda _: None, on_prefill)
                await self._model.begin(self._system, self._tools, self._user)
                for entry in self._history[:-1]:
                    await self._model.recall(*entry)
                await self._model.recall(turn, shown)
                return await self._model.generate((), lambda _: None, on_prefill)
            except ContextOverflow:
                if n_characters <= _FEWEST_SHOWN:
                    return Turn()
                n_characters = max(_FEWEST_SHOWN, n_characters // 4)

    def _last_turns(self) -> list[_Entry]:
        """As many of the last turns as fit their share, whole."""
        kept, room_tokens = 0, int(self._window_tokens * KEPT_SHARE)
        for turn, observations in reversed(self._history):
            room_tokens -= self._size(turn, observations)
            if room_tokens < 0:
                break
            kept += 1
        return self._history[len(self._history) - kept :]


def _length(observations: Sequence[Observation]) -> int:
    return sum(len(item.text) for item in observations)


def _said(turn: Turn) -> int:
    """The characters of a turn."""
    return len(turn.raw) if turn.raw is not None else len(turn.reasoning + turn.content + str([*turn.calls]))


def _shorten(observations: Sequence[Observation], n_characters: int) -> tuple[Observation, ...]:
    """Cut the texts, the longest share each, so that together they have about `n_characters`."""
    share = n_characters // max(1, len(observations))
    return tuple(
        item
        if len(item.text) <= share
        else replace(item, text=f"{item.text[:share]}\n[truncated {len(item.text) - share} chars]")
        for item in observations
    )


def _digest(history: Sequence[_Entry]) -> str:
    """What was done, for a model that wrote no summary: its last calls, and the first line of each answer."""
    lines = []
    for turn, observations in history:
        for call, item in zip(turn.calls, observations, strict=False):
            what = json.dumps(dict(call.arguments), ensure_ascii=False)
            first = item.text.strip().partition("\n")[0]
            lines.append(f"- {call.name} {what[:160]}: {first[:160]}")
    return "What you did last:\n" + "\n".join(lines[-_DIGEST_CALLS:])
