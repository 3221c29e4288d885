"""Two models over the same tokens in the same batches; runs in the comparison's own process.

Both at once where memory has room for both, else one after the other, with A's logits on disk between them: as
llama.cpp gave them, all of them, at most so many bytes at a time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agent.model.chat_format import ChatFormat
from agent.model.engine_vocab import Vocab
from agent.model.template_process import TemplateProcess
from agent.types import JsonObject
from quant.compare_logits import LogitReader, OpenVocab, Spool
from quant.compare_metrics import Array, TokenScores, join, score
from quant.compare_tokens import SAID, UNSCORED, Passage, choose_passages, group_passages, own_prompt, read_passage
from quant.transcripts import Conversation

_LOGIT_BYTES = 4

OnRead = Callable[[int, int], None]
OnPassage = Callable[[Passage, Sequence[bool], TokenScores], None]
TokenFacts = Sequence[tuple[bytes, bool]]
"""For each token its text, and whether it ends a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput:
    """A model file; `system` and `tools` where it knows only its own."""

    path: str
    name: str
    template: str
    system: str | None
    tools: Sequence[JsonObject] | None

    def tokens_of(self, conversations: Sequence[Conversation], vocab: Vocab) -> list[tuple[Passage, list[int]]]:
        """The conversations as this model's prompts in some vocabulary, and where turns begin."""
        made = []
        with contextlib.closing(TemplateProcess(self.template)) as process:
            chat = ChatFormat(self.template, bos=vocab.bos, ends=vocab.ends, renderer=process)
            for conversation in conversations:
                passage, rendered = read_passage(own_prompt(conversation, self.system, self.tools), chat, vocab)
                made.append((passage, [begin for begin, _ in rendered.turns]))
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two files whose vocabularies were read. `passages` are A's prompts; `n_before` has, for A and for B, by
    conversation, the tokens before each turn."""

    a: ModelInput
    b: ModelInput
    passages: list[Passage]
    n_before: list[list[list[int]]]
    n_vocabulary: int
    difference: str | None
    prompts_agree: bool
    abort: threading.Event

    @classmethod
    def look(cls, a: ModelInput, b: ModelInput, conversations: Sequence[Conversation], abort: threading.Event) -> Self:
        """Read both vocabularies, without the weights. Raises ModelFileError."""
        with OpenVocab(a.path, a.name) as vocab:
            facts_a = facts_of(vocab)
            made_a = a.tokens_of(conversations, vocab)
        with OpenVocab(b.path, b.name) as vocab:
            facts_b = facts_of(vocab)
            made_b = b.tokens_of(conversations, vocab)
            is_alike = (a.template, a.system, a.tools) == (b.template, b.system, b.tools)
            by_a = made_b if is_alike else a.tokens_of(conversations, vocab)  # what differs is the tokenizer's doing
        difference = describe_difference(facts_a, facts_b)
        if difference is None and by_a != made_a:
            difference = "the tokenizers split the same text in another way"
        return cls(
            a=a,
            b=b,
            passages=[passage for passage, _ in made_a],
            n_before=[[starts for _, starts in made] for made in (made_a, made_b)],
            n_vocabulary=len(facts_a),
            difference=difference,
            prompts_agree=made_a == made_b,
            abort=abort,
        )


def facts_of(vocab: Vocab) -> TokenFacts:
    """What makes one vocabulary the same as another."""
    return [(vocab.piece(token), vocab.is_end(token)) for token in range(vocab.n_tokens)]


def describe_difference(a: TokenFacts, b: TokenFacts) -> str | None:
    """How two vocabularies differ; None where they do not."""
    if len(a) != len(b):
        return f"A has {len(a):,} tokens and B {len(b):,}"
    for token, (one, other) in enumerate(zip(a, b, strict=True)):
        if one[0] != other[0]:
            texts = [repr(data.decode("utf-8", "replace")) for data in (one[0], other[0])]
            return f"token {token} is {texts[0]} in A and {texts[1]} in B"
        if one[1] != other[1]:
            return f"token {token} ends a turn in one of them alone"
    return None


class Reading:
    """One reading of both models. `on_read` gets (tokens read, tokens to read) of both together."""

    def __init__(
        self,
        pair: Pair,
        *,
        context: int,
        most_tokens: int,
        n_threads: int,
        repack: bool,
        on_read: OnRead,
        on_passage: OnPassage,
    ) -> None:
        self._pair = pair
        self._passages = choose_passages(pair.passages, context=context, most_tokens=most_tokens)
        self._n_threads, self._repack = n_threads, repack
        self._on_read, self._on_passage = on_read, on_passage
        self._total = 2 * sum(len(passage.tokens) for passage in self._passages)
        self._done = 0

    def together(self) -> None:
        """Both models in memory. Raises ModelFileError, ModelQueryError, DecodeAbortedError, ValueError."""
        with self._open(self._pair.a) as a, self._open(self._pair.b) as b:
            for passage in self._passages:
                targets, scores = _targets(passage), []
                both = zip(a.read(passage.tokens, passage.wanted), b.read(passage.tokens, passage.wanted), strict=True)
                for (n_tokens, logits_a), (_, logits_b) in both:
                    scores.append(_score(logits_a, logits_b, targets))
                    self._read(2 * n_tokens)
                self._finish(passage, scores)

    def in_turn(self, spool_dir: str, spool_bytes: int) -> int:
        """One model in memory at a time; gives how many passages were cut since `spool_bytes` do not hold them.

        Raises what `together` does, and OSError.
        """
        row_bytes = _LOGIT_BYTES * self._pair.n_vocabulary
        groups = group_passages(self._passages, row_bytes=row_bytes, most_bytes=spool_bytes)
        read = [passage for group in groups for passage in group]
        self._total = 2 * sum(len(passage.tokens) for passage in read)
        with Spool(Path(spool_dir), self._pair.n_vocabulary) as spool:
            for group in groups:
                self._one_group(group, spool)
        return sum(len(a.tokens) < len(b.tokens) for a, b in zip(read, self._passages, strict=True))

    def _one_group(self, group: Sequence[Passage], spool: Spool) -> None:
        spool.clear()
        with self._open(self._pair.a) as a:
            for passage in group:
                for n_tokens, logits in a.read(passage.tokens, passage.wanted):
                    spool.write(logits)
                    self._read(n_tokens)
        spool.rewind()
        with self._open(self._pair.b) as b:
            for passage in group:
                targets, scores = _targets(passage), []
                for n_tokens, logits in b.read(passage.tokens, passage.wanted):
                    scores.append(_score(spool.read(len(logits)), logits, targets))
                    self._read(n_tokens)
                self._finish(passage, scores)

    def _open(self, model: ModelInput) -> LogitReader:
        return LogitReader(
            model.path,
            model.name,
            n_ctx=max((len(passage.tokens) for passage in self._passages), default=1),
            n_threads=self._n_threads,
            repack=self._repack,
            abort=self._pair.abort,
            on_loading=lambda _share: not self._pair.abort.is_set(),
        )

    def _read(self, n_tokens: int) -> None:
        self._done += n_tokens
        self._on_read(self._done, self._total)

    def _finish(self, passage: Passage, scores: Sequence[TokenScores]) -> None:
        said = [kind == SAID for kind in passage.kinds if kind != UNSCORED]
        self._on_passage(passage, said, join(scores))


def _targets(passage: Passage) -> Iterator[int]:
    """The compared tokens in order."""
    return (token for token, kind in zip(passage.tokens, passage.kinds, strict=True) if kind != UNSCORED)


def _score(logits_a: Array, logits_b: Array, targets: Iterator[int]) -> TokenScores:
    return score(logits_a, logits_b, [token for _, token in zip(range(len(logits_a)), targets, strict=False)])
