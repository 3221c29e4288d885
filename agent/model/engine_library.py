"""The llama.cpp library in this process: loaded once, its log on stderr."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import llama_cpp as package
from llama_cpp import llama_cpp

lib: Any = llama_cpp

_WARNING = 3
_CONTINUES = 5


class _Log:
    """Passes warnings and errors of llama.cpp to stderr, where the parent keeps the end for its error message."""

    def __init__(self) -> None:
        self._level = 0
        self.callback = lib.llama_log_callback(self._write)

    def _write(self, level: int, text: bytes, _data: Any) -> None:
        if level != _CONTINUES:
            self._level = level
        if self._level >= _WARNING:
            sys.stderr.write(text.decode("utf-8", "replace"))
            sys.stderr.flush()


_log: _Log | None = None


def load_library() -> Any:
    """Initialise llama.cpp once and return its low-level bindings."""
    global _log
    if _log is None:
        _log = _Log()
        lib.llama_log_set(_log.callback, ctypes.c_void_p(0))
        lib.llama_backend_init()
    return lib


@cache
def engine_build() -> str:
    """What tells this build of llama.cpp from every other: a hash of the libraries themselves, in hex."""
    folder = Path(os.environ.get("LLAMA_CPP_LIB_PATH") or Path(package.__file__).parent / "lib")
    digest = hashlib.sha256(package.__version__.encode())
    for path in sorted({path.resolve() for path in folder.iterdir() if path.is_file()}):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
