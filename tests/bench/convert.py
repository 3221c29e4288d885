"""What `model convert` costs above reading and writing the bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from quant.convert import convert, plan_conversion
from quant.synth_checkpoint import write_checkpoint
from quant.synth_shape import find_shape
from tests.bench.table import Row, at_most, paired_medians, reported

ROUNDS = 3


def copy(folder: Path, target: Path) -> float:
    """Seconds for `cp` of the shards, until they are on the disk."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    begun = time.perf_counter()
    for path in sorted(folder.glob("*.safetensors")):
        subprocess.run(["cp", "--reflink=never", path, target / path.name], check=True)
        with open(target / path.name, "rb") as file:
            os.fsync(file.fileno())
    return time.perf_counter() - begun


def converted(folder: Path, target: Path) -> float:
    """Seconds for the conversion, which ends when the file is on the disk."""
    target.unlink(missing_ok=True)
    begun = time.perf_counter()
    convert(plan_conversion(folder), target)
    return time.perf_counter() - begun


def rows() -> list[Row]:
    """Convert the 0.8b with its layer that drafts, 1.5 GB in two shards."""
    with tempfile.TemporaryDirectory(prefix="frog-bench-") as scratch:
        folder = write_checkpoint(Path(scratch, "checkpoint"), find_shape("0.8b", mtp=True), n_shards=2)
        seconds, baseline_s = paired_medians(
            [
                lambda: converted(folder, Path(scratch, "made.gguf")),
                lambda: copy(folder, Path(scratch, "copy")),
            ],
            ROUNDS,
        )
    return [
        at_most(
            "convert/over-cp", seconds / baseline_s, "x", 1.3, "cp of the shards, synced to the disk as the GGUF is"
        ),
        reported("convert/0.8b-s", seconds, "s"),
    ]
