"""Which tokens of which conversations are compared; pure.

The system prompt and the tools are read and not scored: they are the same in every conversation and nobody's words.
What the model says is told apart from what it reads, since only the former is ever sampled. A turn that was cut or
stopped in a circle is read and not scored either: thousands of tokens of one loop would outweigh everything else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.model.chat_format import ChatFormat
from agent.observations import is_nudged
from agent.types import JsonObject
from quant.transcripts import Conversation, Rendered, Tokenizer, render

UNSCORED, HEARD, SAID = 0, 1, 2
"""Of a token: not compared, read by the model, written by the model (its end mark too)."""

_SEED = 1  # of the choice among conversations when not all are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """The beginning of a conversation; `kinds` has one of the words above for each token."""

    name: str
    tokens: tuple[int, ...]
    kinds: bytes

    @property
    def wanted(self) -> list[bool]:
        """For each position, whether the token after it is compared, so that its logits are needed."""
        return [kind != UNSCORED for kind in self.kinds[1:]] + [False]

    @property
    def n_scored(self) -> int:
        """The number of tokens that are compared."""
        return len(self.kinds) - self.kinds.count(UNSCORED)

    def cut(self, n_tokens: int) -> Passage:
        """Its first tokens alone."""
        return replace(self, tokens=self.tokens[:n_tokens], kinds=self.kinds[:n_tokens])


def own_prompt(conversation: Conversation, system: str | None, tools: Sequence[JsonObject] | None) -> Conversation:
    """The conversation with the only system prompt and tools that a model knows, where it has its own."""
    return replace(
        conversation,
        system=conversation.system if system is None else system,
        tools=conversation.tools if tools is None else tuple(tools),
    )


def read_passage(conversation: Conversation, chat: ChatFormat, tokenizer: Tokenizer) -> tuple[Passage, Rendered]:
    """A whole conversation as a passage, and where its turns are. Raises ModelFileError."""
    rendered = render(conversation, chat, tokenizer)
    prefix = chat.prefix(conversation.system, conversation.tools, conversation.user)
    n_prefix = max(1, len(tokenizer.tokenize_parts(prefix.system)))  # before the first token there is nothing
    kinds = bytearray([HEARD]) * len(rendered.tokens)
    kinds[:n_prefix] = bytes([UNSCORED]) * n_prefix
    for (begin, end), step in zip(rendered.turns, conversation.steps, strict=True):
        is_lost = step.turn.truncated or is_nudged(step.turn)
        kinds[begin:end] = bytes([UNSCORED if is_lost else SAID]) * (end - begin)
    n_tokens = len(kinds.rstrip(bytes([UNSCORED])))
    return Passage(name=conversation.name, tokens=rendered.tokens, kinds=bytes(kinds)).cut(n_tokens), rendered


def choose_passages(passages: Sequence[Passage], *, context: int, most_tokens: int) -> list[Passage]:
    """Beginnings of at most `context` tokens, together at most `most_tokens`, in their order.

    Where not all fit, whole conversations are drawn, always the same, and the last one is cut.
    """
    order = random.Random(_SEED).sample(range(len(passages)), len(passages))  # noqa: S311 - a choice, no secret
    chosen: dict[int, Passage] = {}
    left = most_tokens
    for index in order:
        passage = passages[index].cut(min(context, left))
        left -= len(passage.tokens)
        if passage.n_scored:
            chosen[index] = passage
        if left <= 0:
            break
    return [chosen[index] for index in sorted(chosen)]


def group_passages(passages: Sequence[Passage], *, row_bytes: int, most_bytes: int) -> list[list[Passage]]:
    """Passages in groups whose logits have at most `most_bytes`; one that alone has more is cut."""
    groups: list[list[Passage]] = []
    room = 0
    for passage in passages:
        passage = fit_passage(passage, most_bytes // row_bytes)
        need = passage.n_scored * row_bytes
        if not groups or need > room:
            groups.append([])
            room = most_bytes
        groups[-1].append(passage)
        room -= need
    return groups


def fit_passage(passage: Passage, most_scored: int) -> Passage:
    """The longest beginning with at most so many compared tokens."""
    n_scored = 0
    for i, kind in enumerate(passage.kinds):
        n_scored += kind != UNSCORED
        if n_scored > most_scored:
            return passage.cut(i)
    return passage
