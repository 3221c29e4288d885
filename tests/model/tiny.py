"""A legal `qwen35` model of under 1 MB with random weights: the hybrid memory of the real one, in milliseconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from quant import synth
from quant.synth_shape import find_shape
from quant.synth_vocabulary import CONTROL, byte_vocabulary
from quant.synth_vocabulary import TAGS as PLAIN_TAGS

TEMPLATE = synth.TEMPLATE
TAGS = (*PLAIN_TAGS, "\n</think>\n\n")  # one token of more than a tag, as the bundled model has
__all__ = ["CONTROL", "TAGS", "TEMPLATE", "write_model"]


def write_model(
    path: Path,
    *,
    template: str | None = TEMPLATE,
    context: int = 4096,
    seed: int = 0,
    texts: dict[str, str] | None = None,
) -> Path:
    """Write the model and return its path. `texts` are more metadata."""
    shape = replace(find_shape("tiny"), context=context)
    vocabulary = byte_vocabulary(0, tags=TAGS)
    return synth.write_model(path, shape, vocabulary=vocabulary, template=template, seed=seed, name="tiny", texts=texts)
