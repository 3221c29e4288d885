"""Measuring this machine: two layers of the 4B's shape in each type of tensor, through the engine itself.

It is done in a process of its own, since a build of llama.cpp for another processor would end the one that loads it.
The layers are files of holes: the values do not change the time, and nothing is written to the disk. On a processor
one thread is timed by its own clock, so that other programs count for little, and the gain of more threads is measured
apart. What was measured is kept in the cache folder as long as the engine and the processor stay the same.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from agent.model.gguf_header import BLOCKS
from agent.model.memory import CacheType
from quant.gguf_writer import Kind, TensorInfo, TensorKind, Value, header_bytes, padding
from quant.plan_rates import F32
from quant.synth_shape import Shape, Tensor, find_shape, tensors
from quant.synth_vocabulary import byte_vocabulary

TIMEOUT_S = 300.0
BUSY_SHARE = 0.3
"""From here on the gain of more threads cannot be measured: it is taken to be all there could be."""

_ASK = "from quant.plan_measure import answer; answer()"
_READ_TOKENS = 32
_WRITTEN_TOKENS = 4
_CHUNK_TOKENS = 256
_CHUNKS: dict[CacheType, int] = {"f16": 8, "q8_0": 6}
"""With less context, all of it would be in the processor's own cache: twice as fast as it will be."""

_ATTENTION_KIND = 2  # q4_0: the matrices around attention shall cost little


class MeasureError(Exception):
    """The engine could not be measured; the text says why."""


def measure(kinds: Collection[int], n_threads: int, folder: Path, *, with_attention: bool) -> dict[str, Any]:
    """Ask a process of its own; the answer has the keys of `answer`. Raises MeasureError."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="measure-") as own:
        return _ask({"kinds": sorted(kinds), "n_threads": n_threads, "folder": own, "with_attention": with_attention})


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-I", "-c", _ASK]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(question).encode(),
            capture_output=True,
            cwd="/",
            env=environment | {"GGML_NO_BACKTRACE": "1"},
            timeout=TIMEOUT_S,
            check=True,
        )
        said = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        how = f"signal {-error.returncode}" if error.returncode < 0 else f"exit code {error.returncode}"
        raise MeasureError(f"the engine ended with {how}: {' '.join(last)}".rstrip(": ")) from error
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise MeasureError(f"the engine does not answer: {error}") from error
    assert isinstance(said, dict)
    return said


def answer() -> None:
    """Read a question as JSON from stdin and print what was measured; runs in the process that is asked."""
    import psutil

    question = json.loads(sys.stdin.buffer.read())
    begun_s, begun_busy = time.perf_counter(), _busy_s(psutil.cpu_times()) - time.process_time()
    made = _Measure(Path(question["folder"]), question["n_threads"])
    values = {str(kind): made.values(kind) for kind in question["kinds"]}
    attention = {kind: made.attention(kind) for kind in _CHUNKS} if question["with_attention"] else {}
    busy_s = _busy_s(psutil.cpu_times()) - time.process_time() - begun_busy
    share = busy_s / ((time.perf_counter() - begun_s) * (psutil.cpu_count() or 1))
    said = {
        "values": values,
        "attention": attention,
        "gain": made.gain,
        "on_gpu": made.on_gpu,
        "busy_share": round(min(1.0, max(0.0, share)), 3),
    }
    sys.stdout.write(json.dumps(said))


class _Measure:
    """`gain`: how many times faster all threads are than one, for reading and for writing."""

    def __init__(self, folder: Path, n_threads: int) -> None:
        from agent.model.engine_library import gpu_devices, load_library

        lib = load_library()
        self._synchronize = lib.llama_synchronize
        self._folder = folder
        self._n_threads = n_threads
        self.on_gpu = bool(lib.llama_supports_gpu_offload() and gpu_devices())
        self._clock: Callable[[], float] = time.perf_counter if self.on_gpu else time.thread_time
        self.gain: list[float] | None = None

    def values(self, kind: int) -> list[float]:
        """Seconds of one value in reading and in writing, on one thread."""
        shape = replace(find_shape("4b"), layers=2, interval=2, vocabulary=0, context=4096)
        n_values = sum(math.prod(tensor.shape) for tensor in _layer_matrices(shape))
        path = write_holes(self._folder / "layers.gguf", shape, kind)
        with _Opened(path) as model:
            read_s, write_s = self._time(model, 1 if not self.on_gpu else self._n_threads, self._clock)
            if self.gain is None and not self.on_gpu and self._n_threads > 1 and not _is_crowded():
                one = self._time(model, 1, time.perf_counter)
                more = self._time(model, self._n_threads, time.perf_counter)
                self.gain = [one[0] / more[0], one[1] / more[1]]
        return [read_s / n_values, write_s / n_values]

    def _time(self, model: Any, n_threads: int, clock: Callable[[], float]) -> tuple[float, float]:
        with _Context(model, n_threads, 512) as context:
            self._decode(context, 1, 0, clock)  # the first touches every page
            context.clear()
            read_s = min(self._decode(context, _READ_TOKENS, i * _READ_TOKENS, clock) for i in range(2))
            at = 2 * _READ_TOKENS
            write_s = min(self._decode(context, 1, at + i, clock) for i in range(_WRITTEN_TOKENS))
        return read_s / _READ_TOKENS, write_s

    def attention(self, cache_type: CacheType) -> list[float]:
        """Seconds of one value of a query over one token of context, in reading and in writing, on one thread."""
        whole = find_shape("4b")
        shape = replace(
            whole, layers=2, interval=2, hidden=256, feed_forward=256, groups=1, steps=1, vocabulary=0, context=8192
        )
        path = write_holes(self._folder / "attention.gguf", shape, _ATTENTION_KIND)
        n_tokens = _CHUNK_TOKENS * _CHUNKS[cache_type]
        with _Opened(path) as model, _Context(model, 1, n_tokens + 64, cache_type) as context:
            self._decode(context, _READ_TOKENS, 0, self._clock)
            context.clear()
            empty = min(self._decode(context, 1, i, self._clock) for i in range(_WRITTEN_TOKENS))
            context.clear()
            chunks = [self._decode(context, _CHUNK_TOKENS, at, self._clock) for at in range(0, n_tokens, _CHUNK_TOKENS)]
            full = min(self._decode(context, 1, n_tokens + i, self._clock) for i in range(_WRITTEN_TOKENS))
        queries = shape.heads * shape.head_size
        read_s = (chunks[-1] - chunks[0]) / _CHUNK_TOKENS / (n_tokens - _CHUNK_TOKENS)
        return [max(0.0, read_s) / queries, max(0.0, full - empty) / n_tokens / queries]

    def _decode(self, context: Any, n_tokens: int, position: int, clock: Callable[[], float]) -> float:
        begun_s = clock()
        context.decode([1] * n_tokens, position)
        self._synchronize(context.raw)
        took_s: float = clock() - begun_s
        return took_s


class _Opened:
    """The weights, as a run loads them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Any:
        from agent.model.engine_context import LoadedModel

        self._model = LoadedModel(str(self._path), n_gpu_layers=None, repack=True, on_progress=lambda _: True)
        return self._model

    def __exit__(self, *_: object) -> None:
        self._model.close()


class _Context:
    def __init__(self, model: Any, n_threads: int, n_ctx: int, cache_type: CacheType = "f16") -> None:
        from agent.model.engine_context import Context, Tuning

        tuning = Tuning(cache_type=cache_type)
        self._context = Context(model, n_ctx=n_ctx, n_threads=n_threads, abort=threading.Event(), tuning=tuning)

    def __enter__(self) -> Any:
        return self._context

    def __exit__(self, *_: object) -> None:
        self._context.close()


def write_holes(path: Path, shape: Shape, kind: int) -> Path:
    """A model of zeros with matrices of one `ggml_type`, of which only the header takes room on the disk."""
    vocabulary = byte_vocabulary(0)
    metadata = {
        "general.architecture": Value.text("qwen35"),
        **{f"qwen35.{key}": _value(value) for key, value in shape.metadata.items()},
        "tokenizer.ggml.model": Value.text("gpt2"),
        "tokenizer.ggml.pre": Value.text("qwen35"),
        "tokenizer.ggml.tokens": Value.list_of(Kind.TEXT, vocabulary.tokens),
        "tokenizer.ggml.token_type": Value.list_of(Kind.I32, vocabulary.types),
        "tokenizer.ggml.merges": Value.list_of(Kind.TEXT, vocabulary.merges),
        "tokenizer.ggml.eos_token_id": Value.u32(vocabulary.tokens.index("<|im_end|>")),
    }
    infos = [
        TensorInfo(
            name=tensor.name,
            shape=tensor.shape,
            kind=cast("TensorKind", kind if _is_matrix(tensor) else F32),
            n_bytes=_n_bytes(tensor, kind if _is_matrix(tensor) else F32),
        )
        for tensor in tensors(shape, len(vocabulary.tokens))
    ]
    head = header_bytes(metadata, infos)
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(len(head) + sum(info.n_bytes + padding(info.n_bytes) for info in infos))
    return path


def _layer_matrices(shape: Shape) -> list[Tensor]:
    return [tensor for tensor in tensors(shape, 1) if _is_matrix(tensor) and tensor.name.startswith("blk.")]


def _is_matrix(tensor: Tensor) -> bool:
    return len(tensor.shape) > 1 and not tensor.exact


def _n_bytes(tensor: Tensor, kind: int) -> int:
    per_block, block_bytes = BLOCKS[kind]
    return math.prod(tensor.shape) // per_block * block_bytes


def _value(value: Any) -> Value:
    if isinstance(value, list):
        return Value.list_of(Kind.I32, value)
    return Value.f32(value) if isinstance(value, float) else Value.u32(value)


def _is_crowded() -> bool:
    """Whether so many programs wait for the processor that threads would wait for each other, for long."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1)


def _busy_s(times: Any) -> float:
    """Seconds of all processors that were not idle."""
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
