"""One turn, token by token: sampled, steered, decoded. What is put right is decoded like what was sampled.

A token is sampled before it is decoded, so most repairs cost nothing but the forced tokens. Where tokens that were
decoded already have to go, the engine goes back to a mark that was set before them, and the ledger counts them as
rejected.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.model.call_guard import Rewrite
from agent.model.chat_format import Part
from agent.model.engine import Engine, Mark
from agent.model.engine_sampling import Sampler
from agent.model.steering import Steering, Stop
from agent.model.tool_calls import Finish
from agent.types import Forced

_MOST_MARKS = 2  # beside the one at the beginning of the turn; each may have 50 MiB

_MOST_REPAIRS_AT_END = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What was generated. `tokens` are those of `text`, in order, forced ones included.

    `n_tokens` counts them and the end-of-turn token, which is sampled, never decoded. `left_over` are tokens that
    belong to the turn but were not decoded before the length limit came.
    """

    text: str
    finish: Finish
    tokens: tuple[int, ...]
    n_tokens: int
    end_token: int | None
    left_over: tuple[int, ...]
    forced: tuple[Forced, ...]


def generate_turn(
    engine: Engine,
    sampler: Sampler,
    steering: Steering,
    *,
    max_tokens: int,
    on_text: Callable[[str], None] = lambda _: None,
) -> Generation:
    """Sample from the logits of the last decoded token until the turn ends or a limit comes. Raises DecodeError."""
    return _Turn(engine, sampler, steering, max_tokens, on_text).run()


class _Turn:
    def __init__(
        self,
        engine: Engine,
        sampler: Sampler,
        steering: Steering,
        max_tokens: int,
        on_text: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._sampler = sampler
        self._steering = steering
        self._max_tokens = max_tokens
        self._text = _Shown(on_text)
        self._data = bytearray()
        self._tokens: list[int] = []
        self._starts: list[int] = []  # where in `_data` each token begins
        self._marks: list[tuple[int, Mark]] = []  # with the number of tokens before each
        self._forced: list[Forced] = []
        self._left_over: tuple[int, ...] = ()
        self._n_spent = 0  # tokens sampled or forced, those that went again included: what the limit bounds

    def run(self) -> Generation:
        self._engine.begin_turn()
        finish, end_token = self._sample_all()
        self._engine.end_turn()
        self._text.show(self._data, len(self._data), final=True)
        return Generation(
            text=self._data.decode("utf-8", "replace"),
            finish=finish,
            tokens=tuple(self._tokens),
            n_tokens=len(self._tokens) + (end_token is not None),
            end_token=end_token,
            left_over=self._left_over,
            forced=tuple(self._forced),
        )

    def _sample_all(self) -> tuple[Finish, int | None]:
        engine, steering = self._engine, self._steering
        while True:
            token = engine.sample(self._sampler)
            self._n_spent += 1
            if engine.vocab.is_end(token):
                if (is_over := self._end()) is None:
                    return "length", None
                if is_over:
                    return "stop", token
            else:
                piece = engine.vocab.piece(token)
                if steering.guard.wants_mark(piece):
                    self._marks = [*self._marks, (len(self._tokens), engine.mark())][-_MOST_MARKS:]
                action = steering.offer(piece)
                if isinstance(action, Stop):
                    self._forced.append(Forced(kind=action.kind, text="", n_tokens=0))
                    return "length", None
                if isinstance(action, Rewrite):
                    if not self._apply(action, (token,)):
                        return "length", None
                elif self._n_spent >= self._max_tokens:
                    self._leave(token)
                    return "length", None
                elif not self._put_sampled(token):
                    return "length", None
                self._text.show(self._data, steering.guard.settled)
            if self._n_spent >= self._max_tokens:
                return "length", None

    def _end(self) -> bool | None:
        """Put right what the end of the turn leaves open. False: the turn goes on; None: there is no room for it."""
        for _ in range(_MOST_REPAIRS_AT_END):
            change = self._steering.end()
            if change is None:
                break
            if not self._apply(change, ()):
                return None
            if not change.ends:
                return False
        return True

    def _leave(self, token: int) -> None:
        """The token belongs to the turn, but the limit came: it is decoded with the next prompt."""
        self._starts.append(len(self._data))
        self._data += self._engine.vocab.piece(token)
        self._tokens.append(token)
        self._left_over = (token,)

    def _apply(self, change: Rewrite, offered: tuple[int, ...]) -> bool:
        """Make the turn what `change` says; whether there was room for it in the context.

        Tokens that stay are the model's own, never tokenised again.
        """
        vocab = self._engine.vocab
        tokens, starts = [*self._tokens, *offered], [*self._starts, *([len(self._data)] * len(offered))]
        before = bytes(self._data) + b"".join(map(vocab.piece, offered))
        ends = [*starts[1:], len(before)]
        n_head = sum(end <= change.start for end in ends)
        n_tail = sum(start >= change.end for start in starts)
        head_end = ends[n_head - 1] if n_head else 0
        tail_start = starts[-n_tail] if n_tail else len(before)
        middle = vocab.tokenize_parts(
            [
                Part(before[head_end : change.start].decode("utf-8", "replace"), trusted=False),
                Part(change.text.decode("utf-8", "replace"), trusted=True),
                Part(before[change.end : tail_start].decode("utf-8", "replace"), trusted=False),
            ]
        )
        wanted = [*tokens[:n_head], *middle, *(tokens[-n_tail:] if n_tail else ())]
        n_same = _n_common(self._tokens, wanted[:-1])
        if n_same < len(self._tokens):
            self._go_back(n_same)
        self._n_spent += len(middle)
        self._forced.append(Forced(kind=change.kind, text=change.text.decode("utf-8", "replace"), n_tokens=len(middle)))
        has_room = self._put(wanted[n_same:])
        self._steering.rewritten(bytes(self._data))
        return has_room

    def _put_sampled(self, token: int) -> bool:
        """Append a token that was sampled; False where the context has no room for it."""
        room = self._append((token,))
        if room <= 0:
            return False
        most_ahead = min(room - 1, self._max_tokens - self._n_spent)
        self._engine.put(token, most_ahead=most_ahead, ends_before=self._may_want_mark)
        return True

    def _may_want_mark(self, token: int, following: int) -> bool:
        """Whether a mark may be wanted before `following`, in a text that is not written yet."""
        piece = self._engine.vocab.piece
        return self._steering.guard.may_want_mark(piece(token), piece(following))

    def _put(self, tokens: Sequence[int]) -> bool:
        """Append tokens to the turn and decode them; False where the context has no room for them."""
        if self._append(tokens) <= 0:
            return False
        self._engine.read(tokens)
        return True

    def _append(self, tokens: Sequence[int]) -> int:
        """Append tokens to the turn; the room that the context has behind them, 0 or less: not even for them."""
        for token in tokens:
            self._starts.append(len(self._data))
            self._data += self._engine.vocab.piece(token)
        self._tokens += tokens
        room = self._engine.n_ctx - len(self._engine.ledger) - len(tokens)
        if room <= 0:
            self._left_over = tuple(tokens)
        return room

    def _go_back(self, n_kept: int) -> None:
        self._marks = [item for item in self._marks if item[0] <= n_kept]
        mark = self._marks[-1][1] if self._marks else None
        self._engine.go_back(len(self._engine.ledger) - len(self._tokens) + n_kept, mark)
        del self._data[self._starts[n_kept] :]
        del self._tokens[n_kept:], self._starts[n_kept:]


def _n_common(a: Sequence[int], b: Sequence[int]) -> int:
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)


class _Shown:
    """Passes on what is new in a text that grows. What was shown and is rewritten later is not shown again."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._n_shown = 0

    def show(self, data: bytes | bytearray, upto: int, *, final: bool = False) -> None:
        """`data` is the text so far; its first `upto` bytes stay as they are."""
        piece = self._decoder.decode(bytes(data[self._n_shown : upto]), final)
        self._n_shown = max(self._n_shown, upto)
        if piece:
            self._on_text(piece)
