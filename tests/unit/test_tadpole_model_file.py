"""The model file can be read back without loss, so a training can begin at it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from agent.model.locate import BUNDLED
from quant.tadpole import mutate

pytest.importorskip("gguf", reason="gguf is a development dependency")


def test_what_is_read_and_written_again_is_the_same_file_byte_for_byte(tmp_path: Path) -> None:
    from quant.tadpole import model_file

    read = model_file.read(BUNDLED)
    assert sum(w.size for w in read.weights.values()) == 1_774_616
    model_file.write(read, tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == BUNDLED.read_bytes()


def test_another_training_leaves_another_file_that_says_so(tmp_path: Path) -> None:
    from dataclasses import replace

    from quant.tadpole import model_file

    read = model_file.read(BUNDLED)
    name = "blocks.1.mixer.q_norm.weight"
    weights = {**read.weights, name: read.weights[name] + np.float32(0.5)}
    model_file.write(replace(read, weights=weights, training=json.dumps({"commit": "x"})), tmp_path / "other.gguf")
    again = model_file.read(tmp_path / "other.gguf")
    assert again.training == '{"commit": "x"}' and again.vocabulary == read.vocabulary and again.shape == read.shape
    assert np.array_equal(again.weights[name], weights[name])


CODE = """import math

class Tank:
    def __init__(self, litres):
        self.litres = litres

    def after(self, hours):
        left = self.litres - hours
        for step in range(1, hours + 1):
            left += math.floor(step / 2)
        if left >= 10 and hours > 0:
            return left
        return hours
"""


def test_every_kind_of_bug_is_found_in_a_piece_of_code() -> None:
    found = mutate.mutations(CODE, Random(1), ["gallons"])
    lines = CODE.split("\n")
    texts = {(m.family, m.text.strip()) for m in found}
    assert ("self", "left = litres - hours") in texts
    assert ("op", "left = self.litres + hours") in texts and ("op", "left -= math.floor(step / 2)") in texts
    assert ("off", "for step in range(1, hours):") in texts and ("off", "for step in range(0, hours + 1):") in texts
    assert ("off", "if left > 10 and hours > 0:") in texts and ("op", "if left >= 10 or hours > 0:") in texts
    assert ("ret", "return hours") in texts and ("stale", "return gallons") in texts
    assert {m.family for m in found} == {"name", "stale", "attr", "attr_stale", "self", "ret", "op", "off"}
    for m in found:
        assert sum(a != b for a, b in zip(lines, [*lines[: m.line], m.text, *lines[m.line + 1 :]], strict=True)) == 1
        compile("\n".join([*lines[: m.line], m.text, *lines[m.line + 1 :]]), "mutated", "exec")
