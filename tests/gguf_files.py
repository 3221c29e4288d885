"""Small GGUF files for tests that only move and check them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np


def make_gguf(path: Path, *, n_elements: int = 4096, alignment: int | None = None) -> Path:
    """A small GGUF with all kinds of values and two tensors."""
    writer = gguf.GGUFWriter(path, "qwen35")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_string("general.name", "tiny ü")
    writer.add_bool("a.bool", True)
    writer.add_float32("a.float", 0.5)
    writer.add_float64("a.double", float("nan"))
    writer.add_uint64("a.big", 1 << 60)
    writer.add_array("a.words", ["x", "yy", ""])
    writer.add_array("a.numbers", [1, 2, 3])
    rng = np.random.default_rng(1)
    writer.add_tensor("one.weight", rng.standard_normal((n_elements // 256, 256), dtype=np.float32))
    writer.add_tensor("two.weight", rng.standard_normal((7, 32)).astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
