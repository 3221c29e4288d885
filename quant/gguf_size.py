"""How long a GGUF file must be: read from its header, so that a short file is found without a hash to compare."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from agent.errors import ModelFileError

# (elements, bytes) of a block by the number of the ggml type (ggml.h of llama.cpp)
BLOCK_SIZES: dict[int, tuple[int, int]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_COUNT = 1 << 20  # tensors, keys
_MAX_ITEMS = 1 << 26  # of an array
_MAX_STRING_BYTES = 1 << 26


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def number(self, code: str) -> int:
        data = self.take(struct.calcsize(code))
        value = struct.unpack(f"<{code}", data)[0]
        return int(value) if value == value and abs(value) != float("inf") else 0

    def take(self, n_bytes: int) -> bytes:
        data = self._file.read(n_bytes)
        if len(data) != n_bytes:
            raise EOFError
        return data

    def string(self) -> bytes:
        return self.take(_bounded(self.number("Q"), _MAX_STRING_BYTES))

    def skip_value(self, kind: int) -> int:
        """Skip one value; gives it where it is a scalar."""
        if kind == _STRING:
            self.string()
            return 0
        if kind == _ARRAY:
            item, count = self.number("I"), _bounded(self.number("Q"), _MAX_ITEMS)
            if item == _ARRAY:
                raise ValueError("an array of arrays")
            if item in _SCALARS:
                self.take(_bounded(count * struct.calcsize(_SCALARS[item]), _MAX_STRING_BYTES))
            else:
                for _ in range(count):
                    self.skip_value(item)
            return 0
        if kind not in _SCALARS:
            raise ValueError(f"a value of the unknown type {kind}")
        return self.number(_SCALARS[kind])


def check_gguf(path: Path) -> None:
    """Raises ModelFileError for a file that is no GGUF or is shorter than its header says; OSError."""
    n_bytes = path.stat().st_size
    try:
        with open(path, "rb") as file:
            needed = needed_bytes(file)
    except EOFError as error:
        raise ModelFileError(f"{path} is cut: it ends within its header", "Get the file again.") from error
    except (ValueError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"{path} is not a usable GGUF file: {error}", "Give a GGUF file of a model.") from error
    if n_bytes < needed:
        raise ModelFileError(f"{path} is cut: it has {n_bytes:,} of {needed:,} bytes", "Get the file again.")


def needed_bytes(file: BinaryIO) -> int:
    """The least length of a GGUF file, from its header (the file is read from where it is).

    Raises ValueError for what is no GGUF of version 2 or 3, EOFError where the header is cut.
    """
    reader = _Reader(file)
    if file.read(4) != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    version = reader.number("I")
    if version not in (2, 3):
        raise ValueError(f"its version is {version}")
    n_tensors, n_keys = _bounded(reader.number("Q"), _MAX_COUNT), _bounded(reader.number("Q"), _MAX_COUNT)
    alignment = 32
    for _ in range(n_keys):
        key = reader.string()
        value = reader.skip_value(reader.number("I"))
        if key == b"general.alignment":
            alignment = value
    if not 0 < alignment <= 1 << 20:
        raise ValueError(f"its alignment is {alignment}")
    end = 0
    for _ in range(n_tensors):
        reader.string()
        n_elements = 1
        for _ in range(_bounded(reader.number("I"), 8)):
            n_elements *= reader.number("Q")
        elements, block_bytes = BLOCK_SIZES.get(reader.number("I"), (1, 0))
        end = max(end, reader.number("Q") + n_elements // elements * block_bytes)
    header = file.tell()
    return header if not n_tensors else (header + alignment - 1) // alignment * alignment + end


def _bounded(value: int, limit: int) -> int:
    if not 0 <= value <= limit:
        raise ValueError(f"a count of {value} in its header")
    return value
