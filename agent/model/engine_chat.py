"""A conversation over the engine: messages become tokens, and only what is new is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.errors import ContextOverflow, ModelQueryError
from agent.model.chat_format import ChatFormat, Part
from agent.model.coercion import DEFAULT_TYPES, read_types
from agent.model.engine import Engine
from agent.model.engine_context import DecodeAbortedError, DecodeError
from agent.model.engine_sampling import Sampler
from agent.model.engine_turn import generate_turn
from agent.model.sampling import Sampling
from agent.model.speculation import without_line_numbers
from agent.model.steering import THOUGHT_SHARE, Steering
from agent.model.tool_calls import Finish
from agent.model.wire_parts import wire_parts
from agent.types import Forced, JsonObject, Observation, Turn, Usage

_MARGIN_TOKENS = 8  # between the end of the issue and its checkpoint: what follows may change its last tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One generated turn, raw. `context_tokens` counts the conversation with the end-of-turn token."""

    raw: str
    finish: Finish
    usage: Usage
    context_tokens: int
    duration_s: float
    forced: tuple[Forced, ...]


class Conversation:
    """One conversation, append-only. `begin` starts another; what they have in common is not read again.

    `repairs_calls`: calls that the model leaves open are closed while it writes them (`CallGuard`).
    """

    def __init__(self, engine: Engine, chat: ChatFormat, sampling: Sampling, *, repairs_calls: bool = True) -> None:
        self._engine = engine
        self._chat = chat
        self._sampling = sampling
        self._repairs_calls = repairs_calls
        self._keys_by_tool: dict[str, frozenset[str]] = {}
        self._sampler: Sampler | None = None
        self._pending: list[int] = []
        self._marks: list[int] = []
        self._end_token: int | None = None
        self._n_reused = self._n_left_over = 0
        self._n_asked: int | None = None
        self._reported = (0, 0, 0)
        self._made: dict[str, tuple[int, ...]] = {}
        self._n_prefix = 0
        self._is_open = self._is_begun = False  # begun: nothing of it was read yet
        self._is_new = True

    def close(self) -> None:
        """Free the sampler. Idempotent."""
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None

    def begin(self, system: str, tools: Sequence[JsonObject], user: str, seed: int | None) -> None:
        """Start a conversation; nothing is decoded before `generate`."""
        self.close()
        self._sampler = Sampler(self._sampling, seed)
        types = read_types(tools) if tools else DEFAULT_TYPES
        self._keys_by_tool = {name: frozenset(keys) for name, keys in types.items()}
        prefix = self._chat.prefix(system, tools, user)
        vocab = self._engine.vocab
        before = vocab.tokenize_parts(prefix.system)
        tokens = before + vocab.tokenize_parts(prefix.user)
        through_issue = before + vocab.tokenize_parts(prefix.user[:-1])
        n_issue = next(
            (i for i, (a, b) in enumerate(zip(tokens, through_issue, strict=False)) if a != b), len(through_issue)
        )
        self._pending, self._n_prefix = tokens, len(before)
        self._engine.clear_sources()
        self._marks = [len(before), n_issue - _MARGIN_TOKENS]
        self._end_token = None
        self._n_reused, self._n_left_over, self._n_asked = 0, 0, None
        self._is_open = self._is_begun = True

    def recall(self, turn: Turn, observations: Sequence[Observation]) -> None:
        """Append a turn that was made earlier and its observations; nothing is decoded before `generate`.

        A turn of this conversation is its own tokens again, not a new reading of its text.
        """
        vocab = self._engine.vocab
        made = self._made.get(turn.raw) if turn.raw is not None else None
        if made is None:
            text = "".join(part.text for part in self._chat.turn(turn))
            made = tuple(vocab.tokenize_parts(wire_parts(text)))
        self._pending += made
        self._pending += vocab.tokenize_parts(self._chat.suffix(observations))
        self._add_sources(observations)

    def generate(
        self,
        observations: Sequence[Observation],
        *,
        max_tokens: int,
        thought_tokens: int | None,
        on_text: Callable[[str], None],
        on_prefill: Callable[[int, int], None],
    ) -> Reply:
        """Answer. Raises ContextOverflow (the conversation goes on as before), ModelQueryError, DecodeAbortedError.

        After the last two the conversation stands before its answer, observations included: it may be asked again
        with none.
        """
        if not self._is_open or self._sampler is None:
            raise ModelQueryError("no conversation has begun", "Begin one first.")
        engine, began = self._engine, time.monotonic()
        pending = list(self._pending)
        if observations:
            pending += engine.vocab.tokenize_parts(self._chat.suffix(observations))
        if not pending:
            raise ModelQueryError("there is nothing to answer", "Give the observations of the last turn.")
        needed = len(pending) + (0 if self._is_begun else len(engine.ledger))
        if needed >= engine.n_ctx:
            raise ContextOverflow(
                f"{needed:,} tokens of conversation do not fit the context of {engine.n_ctx:,}",
                "Use a larger --context, or describe a smaller issue.",
            )
        if self._is_begun:
            pending = self._keep_common(pending)
        n_counted = self._n_left_over or int(pending[0] == self._end_token)  # as completion, with the last turn
        n_new = self._n_asked or self._n_reused + len(pending) - n_counted
        question, self._n_asked = [*engine.ledger.tokens, *pending], n_new
        self._add_sources(observations)
        try:
            self._read(pending, on_prefill)
            steering = self._steering(max_tokens, thought_tokens)
            made = generate_turn(engine, self._sampler, steering, max_tokens=max_tokens, on_text=on_text)
        except DecodeAbortedError:
            self._ask_again(question)
            raise
        except DecodeError as error:
            self._ask_again(question)
            raise ModelQueryError(
                f"the model failed: {error}", "Start the run again; its changes so far are kept."
            ) from error
        self._made[made.text] = made.tokens
        self._pending, self._n_left_over = list(made.left_over), len(made.left_over)
        self._end_token = made.end_token
        self._n_reused, self._n_asked = 0, None
        evaluated, redecoded, rejected = self._reported
        self._reported = now = self._counts()
        return Reply(
            raw=made.text,
            finish=made.finish,
            usage=Usage(
                prompt_tokens=n_new,
                completion_tokens=made.n_tokens,
                evaluated_tokens=now[0] - evaluated,
                redecoded_tokens=now[1] - redecoded,
                draft_rejected_tokens=now[2] - rejected,
            ),
            context_tokens=len(engine.ledger) + 1,
            duration_s=time.monotonic() - began,
            forced=made.forced,
        )

    def _keep_common(self, tokens: list[int]) -> list[int]:
        """Keep in memory what is a beginning of a conversation that was begun; gives what is left to read."""
        n_there = self._engine.rewind(tokens, n_prefix=self._n_prefix)
        if self._is_new:
            self._engine.ledger.start_counting()
            self._reported = self._counts()
        self._is_new = self._is_begun = False
        self._marks = [n for n in self._marks if n > n_there]
        self._n_reused = n_there
        return tokens[n_there:]

    def _add_sources(self, observations: Sequence[Observation]) -> None:
        """What was read, as it would be written again."""
        for item in observations if self._engine.drafts else ():
            if item.tool == "Read":
                text = without_line_numbers(item.text)
                self._engine.add_source(self._engine.vocab.tokenize_parts([Part(text, trusted=False)]))

    def _counts(self) -> tuple[int, int, int]:
        ledger = self._engine.ledger
        return ledger.evaluated_tokens, ledger.redecoded_tokens, ledger.rejected_tokens

    def _ask_again(self, question: Sequence[int]) -> None:
        """Stand before the answer to `question`, the tokens of the whole conversation so far."""
        self._pending = list(question[self._engine.rewind(question) :])

    def _read(self, pending: Sequence[int], on_prefill: Callable[[int, int], None]) -> None:
        """Decode the prompt with checkpoints on the way and one token before its end.

        A restored state has no logits, so the last token stays behind the checkpoint of the turn.
        """
        engine = self._engine
        base, total = len(engine.ledger), len(pending)
        cuts = sorted({mark - base for mark in self._marks if 0 < mark - base < total - 1} | {total - 1})
        done = 0
        on_prefill(0, total)
        for cut in cuts:
            if cut > done:
                engine.read(pending[done:cut], lambda n, done=done: on_prefill(done + n, total))  # type: ignore[misc]
                done = cut
            engine.save(lasting=base + cut in self._marks)
        engine.read(pending[done:])
        on_prefill(total, total)
        self._pending, self._marks = [], []

    def _steering(self, max_tokens: int, thought_tokens: int | None) -> Steering:
        """Where no limit of the thought is given, the call that follows keeps a share of what the turn may have."""
        room = min(max_tokens, self._engine.n_ctx - len(self._engine.ledger))
        most = int(room * THOUGHT_SHARE)
        return Steering(
            self._keys_by_tool,
            opens_thinking=self._chat.opens_thinking,
            repairs=self._repairs_calls,
            thought_tokens=most if thought_tokens is None else min(thought_tokens, most),
        )
