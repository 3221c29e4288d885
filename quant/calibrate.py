"""`frog-lsp model calibrate`: an importance matrix out of runs, for `model quantize`.

A model that works as an agent reads issues, source code with line numbers, the output of commands and its own calls:
with that text, not with an encyclopaedia, it is measured which columns of each matrix matter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from agent.errors import ModelUnavailable, UsageError
from agent.ipc.messages import from_base64
from agent.model.admission import admit
from agent.model.gguf_header import GgufHeader
from agent.model.machine import available_bytes
from agent.model.memory import GIB, Setup, estimate
from agent.model.worker_process import WorkerProcess
from agent.types import JsonObject
from quant.calibrate_worker import COMMAND
from quant.imatrix import Array, ImportanceMatrix, check_fit, write_imatrix
from quant.transcripts import BUNDLED, RECORDED, read_conversations

CONTEXT_TOKENS = 8192
MOST_TOKENS = 100_000
BATCH_TOKENS = 256  # as calibrate_library has it, which only the worker may import

Progress = Callable[[str, int, int], None]
"""Gets (what is being done, tokens done, tokens in all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person asks for. `sources`: files, folders, and the words of `quant.transcripts`."""

    model: Path
    target: Path
    sources: Sequence[str] = (BUNDLED,)
    context_tokens: int | None = None
    most_tokens: int = MOST_TOKENS
    n_threads: int = 1


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    target: Path
    n_runs: int
    n_tokens: int
    n_matrices: int
    notes: list[str] = field(default_factory=list)


def check_target(model: Path, target: Path) -> None:
    """Raises UsageError where the target cannot be written."""
    if target.exists() and model.exists() and os.path.samefile(model, target):
        raise UsageError("the model and the target are one file", "Name another file for the importance matrix.")
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} is there already", "Remove it, or name another file.")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise UsageError(f"nothing can be written in {target.parent}", "Name a file in another folder.")


def used_matrices(header: GgufHeader) -> list[str]:
    """The matrices of the layers, those of the layers that only draft too: llama.cpp never asks for the embeddings'."""
    return [tensor.name for tensor in header.tensors if len(tensor.shape) > 1 and tensor.name.startswith("blk.")]


async def calibrate(options: Options, on_progress: Progress) -> Outcome:
    """Measure and write. Raises UsageError, ModelFileError, ModelUnavailable, FrogError, OSError."""
    check_target(options.model, options.target)
    header = admit(options.model)
    sources = _whole_paths(options.sources)
    read_conversations(sources)  # so that a wrong name is said before minutes are spent
    n_ctx = min(header.number("context_length") or CONTEXT_TOKENS, options.context_tokens or CONTEXT_TOKENS)
    _check_memory(header, n_ctx)
    sums: dict[str, Array] = {}
    counts: dict[str, Array] = {}

    def on_notification(method: str, params: JsonObject) -> None:
        if method == "tokens":
            on_progress("tokens", int(params["done"]), int(params["total"]))
        elif method == "matrix":
            name = str(params["name"])
            sums[name] = np.frombuffer(from_base64(params["sums"]), dtype=np.float64)
            counts[name] = np.array([params["count"]], dtype=np.float64)

    worker = await WorkerProcess.start(COMMAND)
    worker.on_notification = on_notification
    try:
        answer = await worker.request(
            "calibrate",
            {
                "model": _whole_paths([str(options.model)])[0],
                "sources": sources,
                "matrices": used_matrices(header),
                "n_ctx": n_ctx,
                "most_tokens": options.most_tokens,
                "n_threads": options.n_threads,
            },
        )
    finally:
        await worker.close()
    matrix = ImportanceMatrix(
        sums=sums,
        counts=counts,
        datasets=tuple(name if name in (BUNDLED, RECORDED) else os.path.basename(name) for name in sources),
        n_chunks=int(answer["n_batches"]),
        chunk_tokens=BATCH_TOKENS,
    )
    missing = check_fit(matrix, header, str(options.target))
    write_imatrix(options.target, matrix)
    outcome = Outcome(
        target=options.target, n_runs=int(answer["n_texts"]), n_tokens=int(answer["n_tokens"]), n_matrices=len(sums)
    )
    if missing:
        drafts = header.number("nextn_predict_layers") > 0
        outcome.notes.append(
            f"{len(missing)} matrices were not used"
            + (": those of the layer that only drafts, which a run without drafts does not ask" if drafts else "")
        )
    return outcome


def _whole_paths(names: Sequence[str]) -> list[str]:
    """Absolute, since the worker has another working folder; the words stay."""
    words = (BUNDLED, RECORDED)
    return [name if name in words else os.path.abspath(os.path.expanduser(name)) for name in names]


def _check_memory(header: GgufHeader, n_ctx: int) -> None:
    need = estimate(header, Setup(batch_tokens=BATCH_TOKENS, repack=False))
    n_bytes = need.total_bytes(n_ctx) - need.checkpoints_bytes
    if n_bytes > available_bytes():
        raise ModelUnavailable(
            f"{n_bytes / GIB:.1f} GiB of memory are needed and {available_bytes() / GIB:.1f} GiB are free",
            "Calibrate with a smaller build, such as Q8_0: the importance matrix then fits all builds of the model. "
            "Or give a smaller --context.",
        )
