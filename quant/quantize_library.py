"""`llama_model_quantize` through the bindings of llama-cpp-python 0.3.36; for the worker process alone.

How its parameters are taken: overrides are an array of (regular expression, type) that ends with an empty entry, the
first that is found in a name counts; the importance matrix is an array of (name, floats, how many), that ends with an
empty one, and is copied; metadata is an array of tagged unions, that ends with an empty key.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.errors import ModelFileError, ModelQueryError
from agent.model.engine_library import engine_build, load_library
from quant.imatrix import read_imatrix

BUFFER_BYTES = 256 << 20
"""Rows of a tensor that are held at once, as read, as f32 and quantized; llama.cpp's own default is 8 GiB."""

_INT, _STRING = 0, 3  # llama_model_kv_override_type
_WARNING, _CONTINUES = 3, 5  # ggml_log_level
_TENSOR = re.compile(r"\[\s*\d+/\s*\d+\]\s+(\S+)\s+- \[")
_SIZE = re.compile(r"size =\s+[\d.]+ MiB(?: ->\s+[\d.]+ MiB \((\S+)\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be made. `overrides`: (name of a tensor, number of its `ggml_type`)."""

    source: str
    file_type: int
    overrides: tuple[tuple[str, int], ...]
    requantize: bool
    n_threads: int
    metadata: Mapping[str, int | str] = field(default_factory=dict)


class Quantizer:
    """llama.cpp's quantizer with an importance matrix, or with none."""

    def __init__(self, imatrix: str | None) -> None:
        self._lib = load_library()
        self._log = _Log()
        self._callback = self._lib.llama_log_callback(self._log.write)
        self._lib.llama_log_set(self._callback, ctypes.c_void_p(0))
        self.imatrix = imatrix
        self.means = {} if imatrix is None else read_imatrix(imatrix).means()
        self.build = engine_build()

    def look(self, request: Request) -> dict[str, str]:
        """The name of the type that each tensor would get, as llama.cpp writes it; "" where it stays as it is."""
        found: dict[str, str] = {}
        self._run(request, None, lambda name, kind: found.update({name: kind}))
        return found

    def quantize(self, request: Request, target: str, on_tensor: Callable[[str], None]) -> None:
        """Write `target`; `on_tensor` gets the name of each tensor once it is written. Raises ModelFileError."""
        self._run(request, target, lambda name, _kind: on_tensor(name))

    def _run(self, request: Request, target: str | None, on_tensor: Callable[[str, str], None]) -> None:
        lib, params = self._lib, self._lib.llama_model_quantize_default_params()
        params.nthread = request.n_threads
        params.ftype = request.file_type
        params.allow_requantize = request.requantize
        params.dry_run = target is None
        params.max_buf_size = BUFFER_BYTES
        patterns = [(f"^{re.escape(name)}$".encode(), kind) for name, kind in request.overrides]
        overrides = (lib.llama_model_tensor_override * (len(patterns) + 1))(*patterns)
        params.tt_overrides = overrides
        metadata = _metadata(lib, request.metadata)
        params.kv_overrides = metadata
        if self.means:
            matrix = (lib.llama_model_imatrix_data * (len(self.means) + 1))()
            for entry, (name, values) in zip(matrix, self.means.items(), strict=False):
                entry.name = name.encode()
                entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
                entry.size = values.size
            params.imatrix = matrix
        self._log.begin(on_tensor)
        out = os.fsencode(target or os.devnull)
        code = int(lib.llama_model_quantize(os.fsencode(request.source), out, ctypes.byref(params)))
        if code != 0:
            raise _explain(request.source, self._log.last_error)


class _Log:
    """Reads progress and errors out of llama.cpp's log; what it warns of (other types than usual) is in the outcome."""

    def __init__(self) -> None:
        self._level = 0
        self._name = ""
        self._line = ""
        self._on_tensor: Callable[[str, str], None] = lambda _name, _kind: None
        self.last_error = ""

    def begin(self, on_tensor: Callable[[str, str], None]) -> None:
        self._on_tensor, self.last_error, self._name, self._line = on_tensor, "", "", ""

    def write(self, level: int, text: bytes, _data: Any) -> None:
        if level != _CONTINUES:
            self._level = level
        piece = text.decode("utf-8", "replace")
        if self._level >= _WARNING:
            if self._level > _WARNING:  # an assertion that fails goes to stderr by itself
                self.last_error = piece.strip() or self.last_error
            return
        self._line += piece
        if self._name == "" and (found := _TENSOR.search(self._line)):
            self._name = found[1]
        if self._name and "\n" in piece and (size := _SIZE.search(self._line)):
            self._on_tensor(self._name, size[1] or "")
            self._name = ""
        if "\n" in piece and not self._name:
            self._line = ""


def _metadata(lib: Any, values: Mapping[str, int | str]) -> Any:
    array = (lib.llama_model_kv_override * (len(values) + 1))()
    for entry, (key, value) in zip(array, values.items(), strict=False):
        entry.key = key.encode()
        if isinstance(value, int):
            entry.tag, entry.value.val_i64 = _INT, value
        else:
            entry.tag, entry.value.val_str = _STRING, value.encode()[:127]
    return array


def _explain(source: str, reason: str) -> Exception:
    reason = reason.rpartition("failed to quantize: ")[2] or "it does not say why"
    if "iostream" in reason or "basic_ios" in reason:
        return ModelQueryError("llama.cpp could not write the file to its end", "Check the space on its disk.")
    if "Missing importance matrix" in reason:
        return ModelQueryError(
            f"this type needs an importance matrix: {reason}",
            "Make one with `frog-lsp model calibrate`, or choose a larger type.",
        )
    return ModelFileError(f"llama.cpp cannot quantize {source}: {reason}", "If the file is damaged, get it again.")
