"""The logits of a model at many positions of a text, batch by batch; with `compare_worker`, in a process of its own."""

from __future__ import annotations

import ctypes
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from agent.errors import ModelFileError, ModelQueryError, ModelUnavailable
from agent.model.engine_context import DecodeAbortedError, LoadedModel
from agent.model.engine_library import load_library
from agent.model.engine_vocab import Vocab
from quant.compare_metrics import Array

BATCH_TOKENS = 64
"""Of both models, so that what a batch rounds is rounded alike. Logits of one batch: 61 MiB with 248,320 tokens."""

_ABORTED = 2  # what llama_decode returns when the abort callback said so


class OpenVocab:
    """The vocabulary of a model file without its weights. Use as a context. Raises ModelFileError."""

    def __init__(self, path: str, name: str) -> None:
        lib = load_library()
        params = lib.llama_model_default_params()
        params.vocab_only = True
        self._lib = lib
        self._raw: Any = lib.llama_model_load_from_file(path.encode("utf-8", "surrogateescape"), params)
        if not self._raw:
            raise ModelFileError(f"llama.cpp cannot read the vocabulary of {name}", "See the messages above.")
        self.vocab = Vocab(lib.llama_model_get_vocab(self._raw))

    def __enter__(self) -> Vocab:
        return self.vocab

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lib.llama_model_free(self._raw)


class LogitReader:
    """One model with a context of its own. Use as a context.

    Raises ModelFileError where llama.cpp refuses the file, ModelUnavailable where the memory cannot be had.
    """

    def __init__(
        self,
        path: str,
        name: str,
        *,
        n_ctx: int,
        n_threads: int,
        repack: bool,
        abort: threading.Event,
        on_loading: Callable[[float], bool],
    ) -> None:
        lib = load_library()
        try:
            self._model = LoadedModel(path, n_gpu_layers=None, repack=repack, on_progress=on_loading)
        except ModelFileError as error:
            raise ModelFileError(f"{name}: {error.message}", error.hint) from error
        params = lib.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = min(BATCH_TOKENS, n_ctx)
        params.n_seq_max = 1
        params.n_outputs_max = params.n_outputs_max_per_seq = params.n_batch
        params.n_threads = params.n_threads_batch = n_threads
        params.no_perf = True
        self._lib, self._name, self._abort = lib, name, abort
        self._callback = lib.ggml_abort_callback(lambda _data: abort.is_set())
        self._raw: Any = lib.llama_init_from_model(self._model.raw, params)
        if not self._raw:
            self._model.close()
            raise ModelUnavailable(
                f"{name}: llama.cpp could not make a context of {n_ctx:,} tokens", "Ask for a smaller --context."
            )
        lib.llama_set_abort_callback(self._raw, self._callback, ctypes.c_void_p(0))
        self._batch = lib.llama_batch_init(params.n_batch, 0, 1)
        self._batch_tokens = int(params.n_batch)
        self.n_vocabulary = self._model.vocab.n_tokens

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lib.llama_batch_free(self._batch)
        self._lib.llama_free(self._raw)
        self._model.close()

    def read(self, tokens: Sequence[int], wanted: Sequence[bool]) -> Iterator[tuple[int, Array]]:
        """Read a text from its beginning; for each batch (the number of its tokens, the logits at wanted positions).

        The logits, (n, vocabulary) in float32, are llama.cpp's own memory: they last until the next batch. Raises
        ModelQueryError, DecodeAbortedError.
        """
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._raw), True)
        for at in range(0, len(tokens), self._batch_tokens):
            some = tokens[at : at + self._batch_tokens]
            flags = wanted[at : at + len(some)]
            self._decode(some, flags, at)
            n_outputs = sum(flags)
            if n_outputs == 0:
                yield len(some), np.zeros((0, self.n_vocabulary), dtype=np.float32)
                continue
            pointer = self._lib.llama_get_logits(self._raw)
            yield len(some), np.ctypeslib.as_array(pointer, shape=(n_outputs, self.n_vocabulary))

    def _decode(self, tokens: Sequence[int], wanted: Sequence[bool], position: int) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = wanted[i]
        code = int(self._lib.llama_decode(self._raw, batch))
        if code == _ABORTED or self._abort.is_set():
            raise DecodeAbortedError
        if code != 0:
            raise ModelQueryError(f"{self._name}: llama_decode returned {code}", "Ask for a smaller --context.")


class Spool:
    """Logits on disk between the two models, where both do not fit in memory. The file has no name: it cannot be
    left behind. Use as a context."""

    def __init__(self, folder: Path, n_vocabulary: int) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed with this object
        self._n_vocabulary = n_vocabulary

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, logits: Array) -> None:
        """Append rows. Raises OSError."""
        data = np.ascontiguousarray(logits).data.cast("B") if len(logits) else memoryview(b"")
        while data:
            data = data[self._file.write(data) or 0 :]

    def rewind(self) -> None:
        """Read from the beginning."""
        self._file.seek(0)

    def read(self, n_rows: int) -> Array:
        """The next rows."""
        rows = np.empty((n_rows, self._n_vocabulary), dtype=np.float32)
        data = rows.data.cast("B") if n_rows else memoryview(b"")
        while data:
            n = self._file.readinto(data)
            if not n:
                raise OSError("the temporary file is shorter than what was written to it")
            data = data[n:]
        return rows

    def clear(self) -> None:
        """Forget everything."""
        self._file.seek(0)
        self._file.truncate()
