"""The engine: an append-only ledger of tokens over llama.cpp, so that nothing is ever read twice.

The state of a hybrid model cannot be cut, only restored: so there are checkpoints, and after an abort or an error
nothing is decoded before one of them is restored, since the half-written state would give wrong answers silently.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.errors import ContextOverflow
from agent.model.engine_context import Context, DecodeAbortedError, LoadedModel, Tuning
from agent.model.engine_sampling import Sampler
from agent.model.ledger import Ledger
from agent.model.memory import CHECKPOINT_BYTES
from agent.model.prefixes import PrefixStore
from agent.model.speculation import (
    LOOK_BACK_TOKENS,
    MTP_COST,
    MTP_KIND,
    SEPARATOR,
    TOKEN_BYTES,
    BatchCosts,
    DraftLength,
    look_up,
    pack,
)

if TYPE_CHECKING:
    from agent.model.engine_mtp import NextTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The recurrent state after `n_tokens` tokens, kept for the length of a turn."""

    n_tokens: int
    state: bytes


class Engine:
    """One model, one context, one conversation at a time. Not thread-safe, but for `abort`.

    With `prefixes`, the beginning that `rewind` names is taken from there, or put there once it has been read. With
    `costs`, tokens that were sampled are decoded together with a draft of what may follow, as long as `tuning` can
    take back. A draft is in the memory, but not in the ledger before its tokens were sampled too.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        n_ctx: int,
        n_threads: int,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        abort: threading.Event | None = None,
        tuning: Tuning | None = None,
        prefixes: PrefixStore | None = None,
        costs: BatchCosts | None = None,
    ) -> None:
        self.abort = abort or threading.Event()
        self.model = model
        self.vocab = model.vocab
        self.n_ctx = n_ctx
        tuning = tuning or Tuning()
        self._context = Context(model, n_ctx=n_ctx, n_threads=n_threads, abort=self.abort, tuning=tuning)
        self._mtp = _open_mtp(model, self._context, n_ctx, n_threads, tuning) if costs is not None else None
        self.ledger = Ledger(checkpoint_bytes)
        self._prefixes = prefixes
        self._n_unkept_prefix = 0
        self._is_sound = True
        self._costs = costs
        self.n_rs_seq = tuning.n_rs_seq
        self._most_drafted = tuning.n_rs_seq if costs is not None else 0
        self._length: DraftLength | None = None
        self._ahead: list[int] = []  # drafted, decoded behind the ledger's tokens, not sampled yet
        self._ahead_kind = self._n_ahead = 0  # of the draft that `_ahead` is the rest of
        self._row = -1
        self._sources = bytearray()
        self.n_decodes = self.drafted_tokens = self.accepted_tokens = 0

    def close(self) -> None:
        """Free the context; the model stays. Idempotent."""
        if self._mtp is not None:
            self._mtp.close()
        self._context.close()

    def rewind(self, tokens: Sequence[int], *, n_prefix: int = 0) -> int:
        """Keep as much of the memory as is a beginning of `tokens`; returns how many of them are there now.

        At least one token is always left to decode, since a restored state has no logits. The first `n_prefix`
        tokens are a beginning that other conversations share.
        """
        self._drop_ahead()
        n_common = min(self.ledger.common(tokens), len(tokens) - 1)
        if n_common < len(self.ledger) or not self._is_sound:
            self._restore(n_common)
        self._n_unkept_prefix = 0
        if self._prefixes is not None and len(self.ledger) < n_prefix < len(tokens):
            self._load_prefix(self._prefixes, tokens[:n_prefix])
            self._n_unkept_prefix = n_prefix if len(self.ledger) < n_prefix else 0
        return len(self.ledger)

    def save(self, *, lasting: bool = False) -> None:
        """Keep a checkpoint of what is in memory now."""
        self._settle()
        self.ledger.save(self._context.save_state(), lasting=lasting)
        if self._prefixes is not None and len(self.ledger) == self._n_unkept_prefix:
            self._n_unkept_prefix = 0
            self._prefixes.store(self.ledger.tokens, self._context.save_all())

    def read(self, tokens: Sequence[int], on_progress: Callable[[int], None] = lambda _: None) -> None:
        """Decode a prompt behind what is there; `on_progress` gets the number of tokens done so far.

        Raises ContextOverflow before anything is decoded, DecodeError.
        """
        self._drop_ahead()
        if len(self.ledger) + len(tokens) >= self.n_ctx:
            raise ContextOverflow(
                f"{len(self.ledger) + len(tokens):,} tokens of conversation do not fit the context of {self.n_ctx:,}",
                "Use a larger context, or describe a smaller issue.",
            )
        step = self._context.batch_tokens
        for at in range(0, len(tokens), step):
            batch = tokens[at : at + step]
            self._decode(batch)
            on_progress(at + len(batch))

    def sample(self, sampler: Sampler) -> int:
        """The next token, from the logits of the ledger's last one."""
        return sampler.sample(self._context.raw, self._row)

    def put(self, token: int, *, most_ahead: int, ends_before: Callable[[int, int], bool] = lambda *_: False) -> None:
        """Append a token that was sampled; it is decoded, with a draft of what follows, where no draft had it.

        At most `most_ahead` tokens are drafted, and none from where `ends_before` (a token, the next) is true: there
        a mark will be wanted, which is of the last token decoded. Raises DecodeError.
        """
        if self._ahead and self._ahead[0] == token:
            del self._ahead[0]
            self._row += 1
            self.accepted_tokens += 1
            self.ledger.append([token])
            if not self._ahead:
                self._learn(failed=False)
            return
        self._drop_ahead(failed=True)
        draft = self._draft(token, most_ahead)
        pairs = zip([token, *draft], draft, strict=False)
        n_drafted = next((i for i, pair in enumerate(pairs) if ends_before(*pair)), len(draft))
        self._n_ahead = n_drafted
        self._decode([token], draft[:n_drafted])

    @property
    def drafts(self) -> bool:
        """Whether tokens are drafted at all."""
        return self._most_drafted > 0

    def add_source(self, tokens: Sequence[int]) -> None:
        """A text that may be repeated from here on, beside what is in the ledger; the oldest ones go."""
        self._sources += pack([SEPARATOR, *tokens, SEPARATOR])
        del self._sources[: max(0, len(self._sources) - LOOK_BACK_TOKENS * TOKEN_BYTES)]

    def clear_sources(self) -> None:
        """Another conversation has other texts."""
        self._sources.clear()

    def begin_turn(self) -> None:
        """Forget how good drafts were: so that the same turn is drafted in the same way when it is made again."""
        self._length = DraftLength(self._costs) if self._costs is not None else None

    def end_turn(self) -> None:
        """Take a draft back of which the rest was not sampled."""
        self._drop_ahead()

    def mark(self) -> Mark:
        """Where the conversation is now, to go back to within this turn."""
        self._settle()
        return Mark(n_tokens=len(self.ledger), state=self._context.save_state())

    def go_back(self, n_tokens: int, mark: Mark | None) -> None:
        """Take the tokens behind the first `n_tokens` back: they count as rejected.

        `mark` lies at or before them; without one it is the last checkpoint. At least one token has to be decoded
        before there are logits to sample from. Raises DecodeError.
        """
        self._drop_ahead()
        tokens = self.ledger.tokens[:n_tokens]
        self.ledger.reject(n_tokens)
        if mark is not None and self._context.restore(mark.state, mark.n_tokens):
            self.ledger.roll_back(mark.n_tokens)
        else:
            self._restore(n_tokens)
        self.read(tokens[len(self.ledger) :])

    def _draft(self, token: int, n_most: int) -> Sequence[int]:
        """What may follow `token`, as long as it is expected to pay."""
        n_most = min(n_most, self._most_drafted)
        if n_most < 1 or self._length is None:
            return ()
        found = look_up(self.ledger.packed, token, n_most, self._sources)
        n_drafted = self._length.choose(found.kind, len(found.tokens)) if found is not None else 0
        if found is not None and n_drafted:
            self._ahead_kind = found.kind
            return found.tokens[:n_drafted]
        if self._mtp is None or not self._mtp.raw:
            return ()
        self._ahead_kind = MTP_KIND
        n_drafted = self._length.choose(MTP_KIND, n_most, draft_cost=MTP_COST)
        return self._mtp.draft(token, len(self.ledger), n_drafted)

    def _drop_ahead(self, *, failed: bool = False) -> None:
        """Take what is left of a draft back. `failed`: another token was sampled than the next of it."""
        n_rejected = len(self._ahead)
        if n_rejected == 0:
            return
        self._learn(failed=failed)
        self._ahead.clear()
        self.ledger.rejected_tokens += n_rejected
        if not self._context.take_back(n_rejected):
            self._is_sound = False
            self._most_drafted = 0  # a memory that cannot take back: reading again costs more than drafts gain

    def _settle(self) -> None:
        """Make the memory that of the ledger, no more."""
        self._drop_ahead()
        if not self._is_sound:
            self._repair()

    def _learn(self, *, failed: bool) -> None:
        n_right = self._n_ahead - len(self._ahead)
        if self._length is not None:
            self._length.learn(self._ahead_kind, n_right, failed=failed)
        if self._mtp is not None and self._ahead_kind == MTP_KIND:
            self._mtp.learn(self._n_ahead, n_right)

    def _decode(self, tokens: Sequence[int], draft: Sequence[int] = ()) -> None:
        """Decode one micro-batch, only ever onto a state that is that of the ledger."""
        if not self._is_sound or self._context.n_held != len(self.ledger):
            self._repair()
        self._decode_onto_sound(tokens, draft)

    def _decode_onto_sound(self, tokens: Sequence[int], draft: Sequence[int] = ()) -> None:
        if self.abort.is_set():
            raise DecodeAbortedError
        self._is_sound = False
        if draft:
            self._context.decode([*tokens, *draft], len(self.ledger), n_outputs=1 + len(draft))
        else:
            self._context.decode(tokens, len(self.ledger))
        self._is_sound = True
        if self._mtp is not None:
            self._mtp.observe([*tokens, *draft], len(self.ledger))
        self.n_decodes += 1
        self.ledger.append(tokens)
        self._ahead = list(draft)
        self.drafted_tokens += len(draft)
        self._row = len(tokens) - 1

    def _repair(self) -> None:
        """Make the memory that of the ledger again: back to a checkpoint, then decode what it lacks."""
        tokens = list(self.ledger.tokens)
        self._restore(len(tokens))
        step = self._context.batch_tokens
        for at in range(len(self.ledger), len(tokens), step):
            self._decode_onto_sound(tokens[at : at + step])

    def _restore(self, n_tokens: int) -> None:
        """Go back to the last checkpoint of at most `n_tokens`, or to nothing."""
        point = self.ledger.checkpoint(n_tokens)
        if not self.model.needs_state and self._context.restore(b"", n_tokens):
            self.ledger.roll_back(n_tokens)
        elif point is not None and self._context.restore(point.state, point.n_tokens):
            self.ledger.roll_back(point.n_tokens)
        else:
            self._context.clear()
            self.ledger.roll_back(0)
            self._forget_mtp()
        self._is_sound = True

    def _forget_mtp(self) -> None:
        if self._mtp is not None:
            self._mtp.forget()

    def _load_prefix(self, prefixes: PrefixStore, tokens: Sequence[int]) -> None:
        state = prefixes.load(tokens)
        if state is None:
            return
        self._forget_mtp()
        if self._context.restore_all(state, len(tokens)):
            self.ledger.adopt(tokens)
            self.save(lasting=True)
        else:
            self.ledger.roll_back(0)
            prefixes.reject(tokens, "llama.cpp does not take it")


def _open_mtp(model: LoadedModel, context: Context, n_ctx: int, n_threads: int, tuning: Tuning) -> NextTokens | None:
    """Drafts of the model's own layer for the token after the next, where it was loaded with one."""
    if not model.has_mtp:
        return None
    from agent.model.engine_mtp import NextTokens  # with numpy, which nothing else of the worker needs

    return NextTokens(model, context, n_ctx=n_ctx, n_threads=n_threads, tuning=tuning)
