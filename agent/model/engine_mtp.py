"""Drafts of the layer that some models carry for the token after the next (MTP, "next-n" in llama.cpp).

The layer sees a token together with the model's last hidden row of the token before it, so it runs in a second context
behind every decode of the first one. It only ever proposes: what stays is what the sampler picks from the model itself.
llama.cpp's calls for it are not in its public header: llama_cpp_ext binds them by their C++ names, and where a build
has none of them nothing is drafted in this way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from agent.model.engine_context import Context, LoadedModel, Tuning, context_params
from agent.model.engine_library import load_library, next_token_library

_SEQUENCE = 0
ENOUGH_DRAFTED = 64
LEAST_RIGHT = 0.2
"""Of `ENOUGH_DRAFTED` tokens; else the layer is worth nothing for this text, or in this file, and is left alone."""


class NextTokens:
    """The second context of a model that was loaded with its layer. `close` it before the first one."""

    def __init__(self, model: LoadedModel, context: Context, *, n_ctx: int, n_threads: int, tuning: Tuning) -> None:
        self._lib = lib = load_library()
        self._ext = next_token_library()
        self.raw: Any = None
        self._target = context.raw
        self._n_drafted = self._n_right = 0
        self._rows: Any = np.zeros((0, 0), dtype=np.float32)  # hidden rows of the last decode of the first context
        self._rows_at = 0
        if self._ext is None or not model.has_mtp:
            return
        params = context_params(n_ctx=n_ctx, n_threads=n_threads, tuning=tuning, n_outputs=1)
        params.n_rs_seq = 0
        params.ctx_type = lib.LLAMA_CONTEXT_TYPE_MTP
        params.ctx_other = context.raw
        self.raw = lib.llama_init_from_model(model.raw, params)
        if not self.raw:
            return
        self._n_embd = int(lib.llama_model_n_embd(model.raw))
        self._n_vocab = model.vocab.n_tokens
        self._memory = lib.llama_get_memory(self.raw)
        self._most = int(params.n_batch)
        self._batch = lib.llama_batch_init(self._most, self._n_embd, 1)
        self._tokens = (lib.llama_token * self._most)()  # llama_batch_init makes room for one of the two
        self._batch.token = ctypes.cast(self._tokens, ctypes.POINTER(lib.llama_token))
        self._inputs = np.ctypeslib.as_array(self._batch.embd, shape=(self._most, self._n_embd))
        self._ext.llama_set_embeddings_nextn(self._target, True, False)  # a row of every token
        self._ext.llama_set_embeddings_nextn(self.raw, True, True)

    def close(self) -> None:
        """Free the memory, and let the first context give no more rows. Idempotent."""
        if self.raw:
            self._ext.llama_set_embeddings_nextn(self._target, False, False)
            self._batch.token = ctypes.POINTER(self._lib.llama_token)()
            self._lib.llama_batch_free(self._batch)
            self._lib.llama_free(self.raw)
            self.raw = None

    def forget(self) -> None:
        """The first context holds another conversation."""
        if self.raw:
            self._lib.llama_memory_clear(self._memory, True)
        self._rows = self._rows[:0]

    def observe(self, tokens: Sequence[int], position: int) -> None:
        """The first context has just decoded these tokens, all in one batch."""
        if not self.raw:
            return
        pointer = self._ext.llama_get_embeddings_nextn(self._target)
        if not pointer:
            self.close()
            return
        before = self._row(position - 1)
        rows = np.ctypeslib.as_array(pointer, shape=(len(tokens), self._n_embd)).copy()
        self._rows, self._rows_at = rows, position
        if before is None:  # the first of a conversation, or behind a restored state
            self._feed(tokens[1:], rows[:-1], position + 1, with_output=False)
        else:
            self._feed(tokens, np.concatenate((before[None], rows[:-1])), position, with_output=False)

    def draft(self, token: int, position: int, n_most: int) -> tuple[int, ...]:
        """What may follow `token`, which will be decoded at `position`: the likeliest tokens, one after another."""
        row = self._row(position - 1)
        drafted: list[int] = []
        while self.raw and row is not None and len(drafted) < n_most:
            if not self._feed([token], row[None], position + len(drafted), with_output=True):
                break
            logits = self._lib.llama_get_logits_ith(self.raw, -1)
            token = int(np.ctypeslib.as_array(logits, shape=(self._n_vocab,)).argmax())
            drafted.append(token)
            pointer = self._ext.llama_get_embeddings_nextn_ith(self.raw, 0)
            row = np.ctypeslib.as_array(pointer, shape=(self._n_embd,)).copy() if pointer else None
        return tuple(drafted)

    def learn(self, n_drafted: int, n_right: int) -> None:
        """So many tokens were drafted and so many of them were right; where that is too few, it ends here."""
        self._n_drafted += n_drafted
        self._n_right += n_right
        if self._n_drafted >= ENOUGH_DRAFTED and self._n_right < LEAST_RIGHT * self._n_drafted:
            self.close()

    def _row(self, position: int) -> Any:
        """The hidden row of the token at `position`; None where it is not of the last decode."""
        at = position - self._rows_at
        return self._rows[at] if 0 <= at < len(self._rows) else None

    def _feed(self, tokens: Sequence[int], rows: Any, position: int, *, with_output: bool) -> bool:
        """Decode behind what lies before `position`; where that fails there are no more drafts of this kind."""
        if not tokens:
            return True
        batch, last = self._batch, len(tokens) - 1
        batch.n_tokens = len(tokens)
        self._inputs[: len(tokens)] = rows
        for i, token in enumerate(tokens):
            self._tokens[i] = token
            batch.pos[i] = position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = _SEQUENCE
            batch.logits[i] = with_output and i == last
        is_cut = bool(self._lib.llama_memory_seq_rm(self._memory, _SEQUENCE, position, -1))
        if not is_cut or int(self._lib.llama_decode(self.raw, batch)) != 0:
            self.close()
            return False
        return True
