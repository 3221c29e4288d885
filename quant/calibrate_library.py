"""What goes into each matrix of a model while it reads: squared and summed; for the worker process alone.

llama.cpp asks a callback of the context at each step of its graph, and shows the finished step to it. For a
multiplication with a matrix of the model, the other operand is the input: one row a token, f32.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from agent.errors import ModelFileError, ModelQueryError, ModelUnavailable
from agent.model.engine_context import DecodeAbortedError, LoadedModel
from agent.model.engine_library import load_library

BATCH_TOKENS = 256
"""Read at once. The widest input of the 4B, 9,216 columns, then takes 9 MiB."""

Array = np.ndarray[Any, np.dtype[Any]]
_ABORTED = 2  # what llama_decode returns when the abort callback said so
_F32 = 0  # ggml_type
_NOT_A_NUMBER = "its weights are damaged, or a number in its computation grew beyond what f16 holds"


class _Tensor(ctypes.Structure):
    """`ggml_tensor` of ggml.h in llama.cpp of llama-cpp-python 0.3.36; `ggml_tensor_overhead` tells another."""


_Tensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * 4),
    ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(_Tensor) * 10),
    ("view_src", ctypes.c_void_p),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
    ("extra", ctypes.c_void_p),
    ("padding", ctypes.c_char * 8),
]
_OBJECT_BYTES = 32  # of ggml_object, which is the rest of the overhead


class Observer:
    """Sums the squares of what is multiplied with the matrices `names`. `sums` and `counts`: by their names.

    Sums are f64, so that millions of tokens add up without loss. Several matrices often share an input: it is summed
    once.
    """

    def __init__(self, names: Iterable[str]) -> None:
        from llama_cpp._ggml import libggml

        self._ggml: Any = libggml
        self._ggml.ggml_tensor_overhead.restype = ctypes.c_size_t
        self._ggml.ggml_op_name.restype = ctypes.c_char_p
        size = int(self._ggml.ggml_tensor_overhead()) - _OBJECT_BYTES
        if size != ctypes.sizeof(_Tensor):
            raise ModelUnavailable(
                f"this build of llama.cpp has tensors of {size} bytes, and {ctypes.sizeof(_Tensor)} are known",
                "Install the version of llama-cpp-python that frog-lsp asks for: 0.3.36.",
            )
        self._multiply = next(i for i in range(256) if self._ggml.ggml_op_name(i) == b"MUL_MAT")
        self._names = frozenset(name.encode() for name in names)
        self._last: tuple[int, bytes, int] | None = None
        self._last_sums: Array = np.empty(0)
        self._buffer = np.empty(0, dtype=np.float32)
        self.n_batches = 0
        self.sums: dict[str, Array] = {}
        self.counts: dict[str, int] = {}
        self.trouble: Exception | None = None

    def __call__(self, pointer: int, ask: bool, _data: Any) -> bool:
        """The callback: whether a step is wanted (`ask`), then the step; False stops the computation."""
        try:
            step = ctypes.cast(pointer, ctypes.POINTER(_Tensor)).contents
            if step.op != self._multiply:
                return not ask
            matrix, given = step.src[0].contents, step.src[1].contents
            if matrix.name not in self._names or given.type != _F32:
                return not ask
            if not ask:
                self._add(matrix, given, ctypes.addressof(given))
        except Exception as error:  # nothing may pass through C
            self.trouble = error
            return False
        return True

    def _add(self, matrix: Any, given: Any, address: int) -> None:
        if matrix.ne[2] * matrix.ne[3] != 1:
            raise ModelFileError("models with experts are not calibrated here", "Use `llama-imatrix` of llama.cpp.")
        which = (address, bytes(given.name), self.n_batches)
        width, n_rows = int(given.ne[0]), int(given.ne[1] * given.ne[2] * given.ne[3])
        if which != self._last:
            self._last, self._last_sums = which, self._square(given, width, n_rows)
        name = matrix.name.decode()
        self.sums[name] = self.sums.get(name, 0.0) + self._last_sums
        self.counts[name] = self.counts.get(name, 0) + n_rows

    def _square(self, given: Any, width: int, n_rows: int) -> Array:
        n_values = width * n_rows
        if given.nb[0] != 4 or given.nb[1] != 4 * width or given.nb[2] != given.nb[1] * given.ne[1]:
            raise ModelQueryError("an input of this model does not lie in one piece", "Please report this.")
        if self._buffer.size < n_values:
            self._buffer = np.empty(n_values, dtype=np.float32)
        target = ctypes.c_void_p(self._buffer.ctypes.data)
        self._ggml.ggml_backend_tensor_get(
            ctypes.byref(given), target, ctypes.c_size_t(0), ctypes.c_size_t(4 * n_values)
        )
        rows = self._buffer[:n_values].reshape(n_rows, width)
        found: Array = np.einsum("ij,ij->j", rows, rows, dtype=np.float64, casting="same_kind")
        if not np.isfinite(found).all():
            raise ModelFileError("the model computes what is no number", _NOT_A_NUMBER)
        return found


def observe(
    model: LoadedModel,
    texts: Sequence[Sequence[int]],
    observer: Observer,
    *,
    n_ctx: int,
    n_threads: int,
    abort: threading.Event,
    on_tokens: Callable[[int], None],
) -> None:
    """Read each text from an empty memory. `on_tokens` gets the number of tokens read so far.

    Raises ModelUnavailable, ModelFileError, ModelQueryError, DecodeAbortedError.
    """
    lib = load_library()
    params = lib.llama_context_default_params()
    params.n_ctx = n_ctx
    params.n_batch = params.n_ubatch = min(BATCH_TOKENS, n_ctx)
    params.n_seq_max = 1
    params.n_outputs_max = params.n_outputs_max_per_seq = 1
    params.n_threads = params.n_threads_batch = n_threads
    params.no_perf = True
    eval_callback = lib.ggml_backend_sched_eval_callback(observer)
    abort_callback = lib.ggml_abort_callback(lambda _data: abort.is_set() or observer.trouble is not None)
    params.cb_eval = eval_callback
    params.abort_callback = abort_callback
    context = lib.llama_init_from_model(model.raw, params)
    if not context:
        raise ModelUnavailable(
            f"llama.cpp could not make a context of {n_ctx:,} tokens", "Ask for a smaller --context."
        )
    try:
        n_read = 0
        for tokens in texts:
            lib.llama_memory_clear(lib.llama_get_memory(context), True)
            for at in range(0, len(tokens), BATCH_TOKENS):
                some = tokens[at : at + BATCH_TOKENS]
                array = (lib.llama_token * len(some))(*some)
                code = int(lib.llama_decode(context, lib.llama_batch_get_one(array, len(some))))
                observer.n_batches += 1
                if observer.trouble is not None:
                    raise observer.trouble
                if code == _ABORTED or abort.is_set():
                    raise DecodeAbortedError
                if code != 0:
                    raise ModelQueryError(f"llama_decode returned {code}", "Please report this.")
                n_read += len(some)
                on_tokens(n_read)
    finally:
        lib.llama_free(context)
