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
_GPU_TYPES = (1, 2)  # ggml_backend_dev_type: a GPU with its own memory, one that shares the machine's


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


def library_files() -> list[Path]:
    """The shared libraries of this build, without their links."""
    folder = Path(os.environ.get("LLAMA_CPP_LIB_PATH") or Path(package.__file__).parent / "lib")
    return sorted({path.resolve() for path in folder.iterdir() if path.is_file()})


def gpu_devices() -> list[str]:
    """The GPUs that this build finds now, as "description (name)"; the processor is none of them."""
    from llama_cpp._ggml import libggml

    load_library()
    libggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    libggml.ggml_backend_dev_get.argtypes, libggml.ggml_backend_dev_get.restype = [ctypes.c_size_t], ctypes.c_void_p
    libggml.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    for name in ("name", "description"):
        function = libggml[f"ggml_backend_dev_{name}"]
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_char_p
    found = []
    for i in range(libggml.ggml_backend_dev_count()):
        device = libggml.ggml_backend_dev_get(i)
        if libggml.ggml_backend_dev_type(device) in _GPU_TYPES:
            texts = (libggml[f"ggml_backend_dev_{name}"](device) for name in ("description", "name"))
            description, name = (text.decode("utf-8", "replace") for text in texts)
            found.append(f"{description} ({name})")
    return found


def next_token_library() -> Any:
    """The bindings of the calls for a model's next-token layer, which are not in llama.cpp's public header.

    None where this build of the library has them under no name that is known.
    """
    try:
        from llama_cpp import llama_cpp_ext
    except (ImportError, AttributeError):
        return None
    return llama_cpp_ext


@cache
def engine_build() -> str:
    """What tells this build of llama.cpp from every other: a hash of the libraries themselves, in hex."""
    digest = hashlib.sha256(package.__version__.encode())
    for path in library_files():
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
