"""One sequence in a llama.cpp context: decoding in micro-batches, saving and restoring its state."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent.errors import ModelFileError, ModelUnavailable
from agent.model.engine_library import load_library
from agent.model.engine_vocab import Vocab
from agent.model.memory import BATCH_TOKENS, CacheType
from agent.types import FlashAttention

SMALLEST_BATCH_TOKENS = 16
LONGEST_BATCH_S = 0.15
"""Where a decode cannot be stopped in its middle, a micro-batch takes no longer: a cancel waits for one of them."""

_CACHE_TYPES: dict[CacheType, int] = {"f16": 1, "q8_0": 8}  # ggml_type
# Bytes that are not filled yet, as C code makes them; nobody else sees them before they are.
_new_bytes = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)
_SEQUENCE = 0
_ABORTED = 2  # what llama_decode returns when the abort callback said so


class DecodeError(Exception):
    """llama_decode failed; the state in memory is not to be trusted."""


class DecodeAbortedError(DecodeError):
    """The abort flag was set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How a context uses memory and time.

    `n_rs_seq`: states kept within a decode, so that so many drafted tokens can be taken back; each costs another
    recurrent state. A cache of 8 bits needs flash attention: with "auto" it is then switched on.
    """

    micro_batch_tokens: int = BATCH_TOKENS
    cache_type: CacheType = "f16"
    flash_attention: FlashAttention = "auto"
    n_rs_seq: int = 0


class LoadedModel:
    """The weights. Raises ModelFileError where llama.cpp refuses the file.

    `load_mtp`: with the layer for the token after the next, where the file has one; `has_mtp` says so then.
    `stops_within_decode`: whether the abort flag is seen in the middle of a decode; only the processor does that.
    """

    def __init__(
        self,
        path: str,
        *,
        n_gpu_layers: int | None,
        repack: bool,
        on_progress: Callable[[float], bool],
        load_mtp: bool = False,
    ) -> None:
        lib = load_library()
        params = lib.llama_model_default_params()
        params.load_mode = lib.LLAMA_LOAD_MODE_MMAP
        params.use_extra_bufts = repack
        params.load_mtp = load_mtp
        if n_gpu_layers is None:
            n_gpu_layers = 999 if lib.llama_supports_gpu_offload() else 0
        elif n_gpu_layers < 0:
            n_gpu_layers = 999
        params.n_gpu_layers = n_gpu_layers
        self.stops_within_decode = n_gpu_layers == 0 or not lib.llama_supports_gpu_offload()
        callback = lib.llama_progress_callback(lambda share, _data: on_progress(share))
        params.progress_callback = callback
        self._lib = lib
        self.raw: Any = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self.raw:
            raise ModelFileError(
                "llama.cpp cannot load the model file",
                "See the messages above; get it again with `frog-lsp model pull`.",
            )
        self.vocab = Vocab(lib.llama_model_get_vocab(self.raw))
        self.has_mtp = load_mtp and int(lib.llama_model_n_layer_nextn(self.raw)) > 0
        self.needs_state = bool(lib.llama_model_is_hybrid(self.raw) or lib.llama_model_is_recurrent(self.raw))

    def close(self) -> None:
        """Free the weights. Idempotent."""
        if self.raw:
            self._lib.llama_model_free(self.raw)
            self.raw = None


def context_params(*, n_ctx: int, n_threads: int, tuning: Tuning, n_outputs: int) -> Any:
    """What every context of ours has: one sequence, and no more logits than `n_outputs`."""
    lib = load_library()
    params = lib.llama_context_default_params()
    params.n_ctx = n_ctx
    params.n_batch = params.n_ubatch = min(tuning.micro_batch_tokens, n_ctx)
    params.n_seq_max = 1
    # Logits of the last tokens only: a buffer of them for a whole batch has 240 MiB with 248,320 tokens.
    params.n_outputs_max = params.n_outputs_max_per_seq = n_outputs
    params.type_k = params.type_v = _CACHE_TYPES[tuning.cache_type]
    needs_flash = tuning.cache_type != "f16"
    params.flash_attn_type = {
        "auto": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED if needs_flash else lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
        "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
        "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    }[tuning.flash_attention]
    params.n_threads = params.n_threads_batch = n_threads
    params.no_perf = True
    return params


class Context:
    """The memory of one conversation. `abort` may be set from another thread at any time.

    `batch_tokens` is the largest micro-batch, sized so that a cancel does not wait for long. Raises ModelUnavailable
    where the memory for it cannot be had.
    """

    def __init__(
        self, model: LoadedModel, *, n_ctx: int, n_threads: int, abort: threading.Event, tuning: Tuning
    ) -> None:
        lib = load_library()
        params = context_params(n_ctx=n_ctx, n_threads=n_threads, tuning=tuning, n_outputs=1 + tuning.n_rs_seq)
        params.n_rs_seq = tuning.n_rs_seq
        self._lib = lib
        self._abort = abort
        self._callback = lib.ggml_abort_callback(lambda _data: abort.is_set())
        self.n_ctx = n_ctx
        self.raw: Any = lib.llama_init_from_model(model.raw, params)
        if not self.raw:
            raise ModelUnavailable(
                f"llama.cpp could not make a context of {n_ctx:,} tokens", "Ask for a smaller --context."
            )
        self._memory = lib.llama_get_memory(self.raw)
        self._batch = lib.llama_batch_init(params.n_batch, 0, 1)
        self._needs_state = model.needs_state
        self._n_rs_seq = tuning.n_rs_seq
        self._is_on_processor = model.stops_within_decode
        self._n_last = 0  # tokens of the last decode, as long as all of them are there
        self.batch_tokens = int(params.n_batch)
        if model.stops_within_decode:
            lib.llama_set_abort_callback(self.raw, self._callback, ctypes.c_void_p(0))
        else:
            self.batch_tokens = fit_batch(self.time_batch, self.batch_tokens)

    def close(self) -> None:
        """Free the memory. Idempotent."""
        if self.raw:
            self._lib.llama_batch_free(self._batch)
            self._lib.llama_free(self.raw)
            self.raw = None

    @property
    def n_held(self) -> int:
        """The number of tokens in memory, by the library's own account."""
        return int(self._lib.llama_memory_seq_pos_max(self._memory, _SEQUENCE)) + 1

    def decode(self, tokens: Sequence[int], position: int, n_outputs: int = 1) -> None:
        """Decode one micro-batch at `position`; the logits of its last `n_outputs` tokens are then there.

        Raises DecodeAbortedError, DecodeError.
        """
        if self._abort.is_set():
            raise DecodeAbortedError
        batch, first_output = self._batch, len(tokens) - n_outputs
        self._n_last = 0
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = _SEQUENCE
            batch.logits[i] = i >= first_output
        code = int(self._lib.llama_decode(self.raw, batch))
        if code == _ABORTED:
            raise DecodeAbortedError
        if code != 0:
            raise DecodeError(f"llama_decode returned {code}")
        self._n_last = len(tokens)

    def take_back(self, n_tokens: int) -> bool:
        """Forget the last tokens of the last decode. False: it cannot be done, and the state is not to be trusted.

        llama.cpp keeps `n_rs_seq` states within a decode: asked for more it says yes, and the state is wrong.
        """
        most = self._n_last - 1 if not self._needs_state else min(self._n_last - 1, self._n_rs_seq)
        self._n_last = 0
        if n_tokens > most:
            return False
        n_kept = self.n_held - n_tokens
        removed = bool(self._lib.llama_memory_seq_rm(self._memory, _SEQUENCE, n_kept, -1))
        return removed and self.n_held == n_kept

    def time_batch(self, n_tokens: int) -> float:
        """Seconds of a decode of so many tokens, with as many logits as a draft has; the memory is empty after it.

        Of this process's time where the processor decodes: what others do beside it does not count.
        """
        clock = time.process_time if self._is_on_processor else time.perf_counter
        begun = clock()
        self.decode([0] * n_tokens, 0, min(n_tokens, 1 + self._n_rs_seq))
        self._lib.llama_synchronize(self.raw)
        took_s = clock() - begun
        self.clear()
        return took_s

    def save_state(self) -> bytes:
        """The part of the state that cannot be rolled back; `b""` for a model that has none."""
        if not self._needs_state:
            return b""
        flags = self._lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        return self._save(flags)

    def save_all(self) -> bytes:
        """The whole state, attention cache included: what `restore_all` makes the memory from again."""
        return self._save(0)

    def _save(self, flags: int) -> bytes:
        size = int(self._lib.llama_state_seq_get_size_ext(self.raw, _SEQUENCE, flags))
        state: bytes = _new_bytes(None, size)  # 50 MiB: a copy of them takes as long as all the rest
        n = int(self._lib.llama_state_seq_get_data_ext(self.raw, _pointer(state), size, _SEQUENCE, flags))
        if n != size:
            raise DecodeError(f"saving the state gave {n} of {size} bytes")
        return state

    def restore_all(self, state: bytes, n_tokens: int) -> bool:
        """Fill an emptied memory with a whole state of `n_tokens` tokens; where that fails it is empty, and False."""
        self.clear()
        n = int(self._lib.llama_state_seq_set_data_ext(self.raw, _pointer(state), len(state), _SEQUENCE, 0))
        if n == len(state) and self.n_held == n_tokens:
            return True
        self.clear()
        return False

    def restore(self, state: bytes, n_tokens: int) -> bool:
        """Go back to a saved state of `n_tokens` tokens. False: it cannot be done, and the memory must be cleared."""
        self._n_last = 0
        if self._needs_state:
            flags = self._lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
            n = int(self._lib.llama_state_seq_set_data_ext(self.raw, _pointer(state), len(state), _SEQUENCE, flags))
            if n != len(state):
                return False
        removed = bool(self._lib.llama_memory_seq_rm(self._memory, _SEQUENCE, n_tokens, -1))
        return removed and self.n_held == n_tokens

    def clear(self) -> None:
        """Forget everything."""
        self._n_last = 0
        self._lib.llama_memory_clear(self._memory, True)


def _pointer(data: bytes) -> Any:
    """To the bytes themselves, for C code that reads them, or fills what `_new_bytes` made."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.POINTER(ctypes.c_uint8))


def fit_batch(time_s: Callable[[int], float], most_tokens: int) -> int:
    """The largest micro-batch, by doubling, of which `time_s` says that it takes at most 150 ms.

    The first decode warms up what is only made once, and is not counted.
    """
    n = min(SMALLEST_BATCH_TOKENS, most_tokens)
    time_s(n)
    while n < most_tokens and 2 * time_s(n) <= LONGEST_BATCH_S:
        n = min(2 * n, most_tokens)
    while n > SMALLEST_BATCH_TOKENS and time_s(n) > LONGEST_BATCH_S:
        n //= 2
    return n
