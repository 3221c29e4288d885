"""Small GGUF files for tests that only move and check them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from quant.synth import TEMPLATE


def make_gguf(
    path: Path,
    *,
    n_elements: int = 4096,
    alignment: int | None = None,
    architecture: str = "qwen35",
    template: str | None = TEMPLATE,
    **more: Any,
) -> Path:
    """A small GGUF with all kinds of values and two tensors, such as could serve. `more` is further metadata.

    A key is written with `__` for its dots; one that is None is left out.
    """
    writer = gguf.GGUFWriter(path, architecture)
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_string("general.name", "tiny ü")
    writer.add_bool("a.bool", True)
    writer.add_float32("a.float", 0.5)
    writer.add_float64("a.double", float("nan"))
    writer.add_uint64("a.big", 1 << 60)
    writer.add_array("a.words", ["x", "yy", ""])
    writer.add_array("a.numbers", [1, 2, 3])
    facts = {f"{architecture}__block_count": 4, "tokenizer__ggml__model": "gpt2", **more}
    for key, value in facts.items():
        if value is not None:
            add = {bool: writer.add_bool, str: writer.add_string}.get(type(value), writer.add_uint32)
            add(key.replace("__", "."), value)
    if template is not None:
        writer.add_chat_template(template)
    rng = np.random.default_rng(1)
    writer.add_tensor("one.weight", rng.standard_normal((n_elements // 256, 256), dtype=np.float32))
    writer.add_tensor("two.weight", rng.standard_normal((7, 32)).astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
