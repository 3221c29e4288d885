"""`frog-lsp model quantize`: a model in smaller types, written by llama.cpp in a process of its own.

The file appears under its name when it is whole and was read back; an interrupt leaves nothing. What was done, with
which source, recipe and versions, is in a manifest beside it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from agent.config import write_json_atomically
from agent.errors import FrogError, ModelFileError, UsageError
from agent.model.gguf_header import GgufHeader, read_header
from agent.model.installed import hash_file
from agent.model.worker_process import WorkerProcess
from agent.types import JsonObject
from quant.imatrix import ImportanceMatrix, check_fit, read_imatrix
from quant.quantize_recipe import (
    WITHOUT_IMPORTANCE,
    best_mix,
    check_source,
    file_bytes,
    main_kind,
    match_keeps,
    need_importance,
    sampled_kinds,
)
from quant.quantize_types import FILE_TYPES, KIND_NAMES, KINDS, PLAIN_FILE_TYPES, Keep, Target
from quant.quantize_worker import COMMAND
from quant.sizes import size_text
from quant.store import MARGIN_BYTES

MANIFEST_FORMAT = "frog-lsp-quantize"
MANIFEST_VERSION = 1
_BASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
"""The names of mixes under which readers of `general.file_type` know these types."""

Progress = Callable[[str, int, int], None]
"""Gets (what is being done, how much is done, of how much); bytes of the source while it quantizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person asks for."""

    source: Path
    target: Path
    wanted: Target
    keeps: Sequence[Keep] = ()
    imatrix: Path | None = None
    requantize: bool = False
    n_threads: int = 1


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of it. `kinds`: how many tensors have each type."""

    target: Path
    manifest: Path
    size_bytes: int
    source_bytes: int
    kinds: dict[str, int]
    bits_per_weight: float
    notes: list[str] = field(default_factory=list)


def manifest_path(target: Path) -> Path:
    """The manifest beside a quantized model."""
    return target.with_name(f"{target.name}.manifest.json")


def check_paths(source: Path, target: Path) -> None:
    """Raises UsageError where the target cannot be written, or is the source."""
    if target.exists() and source.exists() and os.path.samefile(source, target):
        raise UsageError("the source and the target are one file", "Name another file for the outcome.")
    for path in (target, manifest_path(target)):
        if path.exists() or path.is_symlink():
            raise UsageError(f"{path} is there already", "Remove it, or name another file.")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", "Make it first, or name another file.")
    if not os.access(target.parent, os.W_OK):
        raise UsageError(f"nothing can be written in {target.parent}", "Name a file in another folder.")


def check_room(needed_bytes: int, free_bytes: int, folder: Path) -> None:
    """Raises FrogError where the file does not fit on the disk."""
    if free_bytes < needed_bytes + MARGIN_BYTES:
        needed = size_text(needed_bytes + MARGIN_BYTES)
        raise FrogError(
            f"{needed} are needed in {folder} and {size_text(free_bytes)} are free",
            "Make room, or choose a smaller type.",
        )


async def quantize(options: Options, on_progress: Progress, worker: WorkerProcess | None = None) -> Outcome:
    """Quantize, in a process that was started for it before (it goes on) or in one of its own.

    Raises UsageError, ModelFileError, ModelUnavailable (the process died), FrogError, OSError.
    """
    check_paths(options.source, options.target)
    header = await asyncio.to_thread(read_header, options.source)
    work = _Work(options, header, on_progress)
    part = _part_of(options.target)
    stop = threading.Event()
    hashing = asyncio.create_task(asyncio.to_thread(_hash, options.source, stop))
    process = worker or await WorkerProcess.start(COMMAND)
    try:
        await work.plan(process)
        check_room(work.size_bytes, shutil.disk_usage(options.target.parent).free, options.target.parent)
        await work.run(process, part)
        outcome = await asyncio.to_thread(work.finish, part, await hashing)
    finally:
        stop.set()
        if worker is None:
            await process.close()
        await asyncio.gather(hashing, return_exceptions=True)
        _remove(part)
    return outcome


class _Work:
    def __init__(self, options: Options, header: GgufHeader, on_progress: Progress) -> None:
        check_source(header, requantize=options.requantize)
        self._options = options
        self._header = header
        self._on_progress = on_progress
        self._notes: list[str] = []
        self._matrix: ImportanceMatrix | None = None
        self._missing: list[str] = []
        if options.imatrix is not None:
            self._matrix = read_imatrix(options.imatrix)
            self._missing = check_fit(self._matrix, header, str(options.imatrix))
        self._file_type = options.wanted.file_type or "Q8_0"
        is_plain = self._file_type in PLAIN_FILE_TYPES
        if is_plain and options.keeps:
            raise UsageError(
                f"--keep does not go with {self._file_type}: llama.cpp then gives all matrices that type",
                "Choose a quantized type, or leave --keep out.",
            )
        self._kept = {} if is_plain else match_keeps(options.keeps, header)
        self._overrides = dict(self._kept)
        self._kinds: dict[str, str] = {}
        self._build = ""

    @property
    def size_bytes(self) -> int:
        """About the bytes of the file, never less."""
        return file_bytes(self._header, self._kinds)

    async def plan(self, worker: WorkerProcess) -> None:
        """Find the type of each tensor."""
        if self._options.wanted.most_bytes is not None:
            await self._choose_mix(worker, self._options.wanted.most_bytes)
        self._kinds = await self._look(worker)
        needing = need_importance(self._kinds, self._file_type)
        if needing and self._matrix is None:
            raise UsageError(
                f"{self._file_type} needs an importance matrix: without one, such few bits give rubbish",
                "Make one with `frog-lsp model calibrate` and give it as --imatrix, or choose Q3_K_M or larger.",
            )
        without = [name for name in needing if name in self._missing and name not in self._kept]
        if without:
            self._overrides |= dict.fromkeys(without, WITHOUT_IMPORTANCE)
            self._kinds = await self._look(worker)
            self._notes.append(
                f"{len(without)} tensors have no entry in the importance matrix and got {WITHOUT_IMPORTANCE}: "
                f"{without[0]}" + (" and the like" if len(without) > 1 else "")
            )
        elif self._missing:
            only = ", those of the layer that only drafts" if self._only_drafts() else f", such as {self._missing[0]}"
            self._notes.append(f"the importance matrix has no entry for {len(self._missing)} matrices{only}")

    async def run(self, worker: WorkerProcess, part: Path) -> None:
        """Write the file under a name that is not its own."""
        sizes = {tensor.name: tensor.size_bytes for tensor in self._header.tensors}
        await self._follow(worker, "quantizing", "quantize", {"target": str(part)}, sizes)

    def finish(self, part: Path, source_sha256: str) -> Outcome:
        """Read the file back, name it, and write its manifest. Raises ModelFileError where it is another than asked."""
        options = self._options
        made = read_header(part)
        kinds = {tensor.name: KIND_NAMES.get(tensor.kind, str(tensor.kind)) for tensor in made.tensors}
        if {*kinds} != {tensor.name for tensor in self._header.tensors}:
            raise ModelFileError("the file that llama.cpp wrote lacks tensors", "Please report this.")
        other = [name for name, kind in self._kept.items() if kinds[name] != kind]
        most = options.wanted.most_bytes
        if other or (most is not None and made.size_bytes > most):
            what = f"{other[0]} became {kinds[other[0]]}" if other else f"it has {made.size_bytes:,} bytes"
            raise ModelFileError(f"llama.cpp wrote another file than was asked for: {what}", "Please report this.")
        self._note_fallbacks(kinds)
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        outcome = Outcome(
            target=options.target,
            manifest=manifest_path(options.target),
            size_bytes=made.size_bytes,
            source_bytes=self._header.size_bytes,
            kinds=dict(Counter(kinds.values()).most_common()),
            bits_per_weight=8 * made.tensor_bytes / sum(tensor.n_values for tensor in made.tensors),
            notes=self._notes,
        )
        manifest = self._manifest(outcome, source_sha256, hash_file(part))
        os.replace(part, options.target)
        write_json_atomically(outcome.manifest, manifest, mode=0o644)
        return outcome

    async def _choose_mix(self, worker: WorkerProcess, most_bytes: int) -> None:
        names = {name for kind in ("Q8_0", "Q6_K") for name, made in (await self._look(worker, kind)).items() if made}
        wanted = sampled_kinds(self._header, sorted(names), self._kept)
        sizes = {tensor.name: tensor.size_bytes for tensor in self._header.tensors if tensor.name in wanted}
        answer = await self._follow(worker, "measuring types", "sample", {"kinds": wanted}, sizes)
        mix = best_mix(self._header, answer["errors"], self._kept, most_bytes)
        self._overrides |= mix
        kind = main_kind(self._header, mix)
        base = _BASES.get(kind, kind)
        self._file_type = base if base not in PLAIN_FILE_TYPES else "Q8_0"

    async def _look(self, worker: WorkerProcess, file_type: str | None = None) -> dict[str, str]:
        """The types of the tensors that change, by name, in our spelling."""
        answer = await worker.request("look", self._request(file_type))
        self._build = answer["build"]
        return {name: kind.upper() for name, kind in answer["kinds"].items() if kind}

    async def _follow(
        self, worker: WorkerProcess, what: str, method: str, params: JsonObject, sizes: Mapping[str, int]
    ) -> JsonObject:
        """Ask, with progress in the bytes of the source's tensors."""
        total, done = sum(sizes.values()), 0
        self._on_progress(what, 0, total)

        def on_notification(kind: str, told: JsonObject) -> None:
            nonlocal done
            if kind == "tensor":
                done += sizes.get(str(told["name"]), 0)
                self._on_progress(what, done, total)

        worker.on_notification = on_notification
        answer: JsonObject = await worker.request(method, {**self._request(), **params})
        worker.on_notification = None
        return answer

    def _request(self, file_type: str | None = None) -> JsonObject:
        return {
            "source": os.path.abspath(self._options.source),
            "imatrix": None if self._options.imatrix is None else os.path.abspath(self._options.imatrix),
            "file_type": FILE_TYPES[file_type or self._file_type],
            "overrides": [[name, KINDS[kind]] for name, kind in self._overrides.items()],
            "requantize": self._options.requantize,
            "n_threads": self._options.n_threads,
            "metadata": self._metadata(),
        }

    def _metadata(self) -> dict[str, int | str]:
        """Keys as llama.cpp's own tool writes them."""
        if self._matrix is None or self._options.imatrix is None:
            return {}
        return {
            "quantize.imatrix.file": self._options.imatrix.name,
            "quantize.imatrix.dataset": self._matrix.datasets[0] if self._matrix.datasets else "",
            "quantize.imatrix.entries_count": len(self._matrix.sums),
            "quantize.imatrix.chunks_count": self._matrix.n_chunks,
        }

    def _only_drafts(self) -> bool:
        first = self._header.number("block_count") - self._header.number("nextn_predict_layers")
        return all(int(name.split(".")[1]) >= first for name in self._missing)

    def _note_fallbacks(self, kinds: dict[str, str]) -> None:
        fallen = [name for name, kind in self._overrides.items() if kinds[name] != kind]
        if fallen:
            self._notes.append(
                f"{len(fallen)} tensors have rows that do not divide into the blocks of their type and got another"
            )

    def _manifest(self, outcome: Outcome, source_sha256: str, target_sha256: str) -> JsonObject:
        options = self._options
        imatrix: JsonObject | None = None
        if options.imatrix is not None and self._matrix is not None:
            imatrix = {
                "file": options.imatrix.name,
                "sha256": hash_file(options.imatrix),
                "datasets": list(self._matrix.datasets),
                "n_chunks": self._matrix.n_chunks,
            }
        return {
            "format": MANIFEST_FORMAT,
            "format_version": MANIFEST_VERSION,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "source": {
                "file": options.source.name,
                "size_bytes": outcome.source_bytes,
                "sha256": source_sha256,
            },
            "output": {
                "file": options.target.name,
                "size_bytes": outcome.size_bytes,
                "sha256": target_sha256,
                "tensor_types": outcome.kinds,
            },
            "recipe": {
                "type": options.wanted.file_type,
                "most_bytes": options.wanted.most_bytes,
                "base_type": self._file_type,
                "keep": [[keep.pattern, keep.kind] for keep in options.keeps],
                "tensors": self._overrides,
                "allow_requantize": options.requantize,
                "imatrix": imatrix,
            },
            "versions": {
                "frog-lsp": version("frog-lsp"),
                "llama-cpp-python": version("llama-cpp-python"),
                "engine_build": self._build,
            },
        }


def _part_of(target: Path) -> Path:
    """Where a file is written until it is whole: absolute, since the worker has another working folder."""
    return Path(os.path.abspath(target.with_name(f".{target.name}.part")))


def _remove(part: Path) -> None:
    part.unlink(missing_ok=True)


def _hash(path: Path, stop: threading.Event) -> str:
    """The sha256 of the source, read while llama.cpp reads it too."""

    class Stopped(Exception):
        pass

    def on_progress(_done: int, _total: int) -> None:
        if stop.is_set():
            raise Stopped

    try:
        return hash_file(path, on_progress)
    except Stopped:
        return ""
