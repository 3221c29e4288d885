"""What `frog-lsp model quantize` costs beside the bare call of llama.cpp, in time and in memory."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent.model.gguf_header import read_header
from quant.synth import write_model
from quant.synth_shape import find_shape
from tests.bench.table import Row, at_most

ROUNDS = 2
TIMEOUT_S = 1800
_BARE = """
import ctypes, os, sys
from llama_cpp import llama_cpp as lib
params = lib.llama_model_quantize_default_params()
params.ftype, params.nthread = 15, len(os.sched_getaffinity(0))
assert lib.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(params)) == 0
"""
_PEAK_OF_CHILDREN = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def rows() -> list[Row]:
    """The shape of the 0.8B in BF16 to Q4_K_M, in turn with the bare call."""
    with tempfile.TemporaryDirectory(prefix="frog-bench-") as name:
        folder = Path(name)
        source = write_model(folder / "source.gguf", find_shape("0.8b"), form="bf16")
        largest = max(tensor.size_bytes for tensor in read_header(source).tensors)
        ratios, peaks = [], []
        for _ in range(ROUNDS):
            bare_s, _ = _run([sys.executable, "-c", _BARE, str(source), str(folder / "bare.gguf")])
            frog = str(Path(sys.executable).parent / "frog-lsp")
            target = folder / "own.gguf"
            own_s, peak = _run([frog, "model", "quantize", str(source), str(target), "--type", "Q4_K_M"])
            target.unlink()
            target.with_name("own.gguf.manifest.json").unlink()
            ratios.append(own_s / bare_s)
            peaks.append(peak)
    bound_mib = (2 * largest + (1 << 30)) / (1 << 20)
    return [
        at_most("weights/quantize-over-bare", statistics.median(ratios), "x", 1.05, "0.8B to Q4_K_M, whole processes"),
        at_most("weights/quantize-peak", max(peaks), "MiB", round(bound_mib), "twice the largest tensor and 1 GiB"),
    ]


def _run(command: list[str]) -> tuple[float, float]:
    """Seconds, and the most MiB that a process below it had in memory."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _PEAK_OF_CHILDREN, *command], capture_output=True, timeout=TIMEOUT_S, check=True
    )
    return time.perf_counter() - begun, int(done.stdout) / 1024
