"""The folder of models: adding, removing, and its manifest. Reading is in `agent.model.installed`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from agent.config import make_private_dir, write_json_atomically
from agent.errors import DownloadError, UsageError
from agent.model.admission import admit
from agent.model.installed import (
    InstalledModel,
    hash_file,
    installed_models,
    manifest_object,
    manifest_path,
    models_dir,
)
from quant.catalog import CatalogEntry
from quant.sizes import size_text

MARGIN_BYTES = 64 << 20  # left free on the disk
_BLOCK_BYTES = 4 << 20
_MANIFEST_TIMEOUT_S = 30.0
Progress = Callable[[int, int], None]


@contextmanager
def hold(name: str, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of a model, so that two pulls never write one file. `on_wait`: another process holds it."""
    lock = FileLock(make_private_dir(models_dir()) / f".{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if on_wait is not None:
            on_wait()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def check_space(needed_bytes: int) -> None:
    """Raises DownloadError where the disk of the models has less than `needed_bytes` and a margin."""
    folder = make_private_dir(models_dir())
    free = shutil.disk_usage(folder).free
    if free < needed_bytes + MARGIN_BYTES:
        raise DownloadError(
            f"{size_text(needed_bytes)} are needed in {folder} and {size_text(free)} are free",
            "Make room, choose a smaller build, or set XDG_DATA_HOME to a larger disk.",
        )


def install(
    part: Path, entry: CatalogEntry, *, source: str, sha256: str, revision: str | None = None
) -> InstalledModel:
    """Move a checked file (on the same disk) to its place and enter it in the manifest. Raises OSError, UsageError."""
    file = f"{entry.name}.gguf"
    with open(part, "rb") as written:
        os.fsync(written.fileno())
    target = models_dir() / file
    os.replace(part, target)
    info = os.stat(target)
    model = InstalledModel(
        name=entry.name,
        file=file,
        size_bytes=info.st_size,
        sha256=sha256,
        source=source,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        mtime_ns=info.st_mtime_ns,
        repository=entry.repository or None,
        revision=revision,
        remote_file=entry.file if entry.repository else None,
        licence=entry.licence,
    )
    _change_manifest(lambda models: models.update({model.name: model}))
    return model


def import_file(path: Path, entry: CatalogEntry, *, on_progress: Progress | None = None) -> InstalledModel:
    """Copy a file (of a USB stick, say) into the folder of models.

    The copy is checked against what is known of the entry, and against the header of the file. Raises
    UsageError, ModelFileError, DownloadError.
    """
    if not path.is_file():
        raise UsageError(f"{path} is not a file", "Give the path of a GGUF file.")
    admit(path)
    with hold(entry.name):
        n_bytes = path.stat().st_size
        check_space(n_bytes)
        part = models_dir() / f".{entry.name}.import"
        try:
            _copy(path, part, n_bytes, on_progress)
            admit(part)
            sha256 = hash_file(part)
            check_known(entry, n_bytes, sha256, installed_models().get(entry.name))
            return install(part, entry, source="file", sha256=sha256)
        except OSError as error:
            raise DownloadError(f"{path} cannot be copied: {error.strerror or error}", "Check the disk.") from error
        finally:
            part.unlink(missing_ok=True)


def check_known(entry: CatalogEntry, size_bytes: int, sha256: str, before: InstalledModel | None) -> None:
    """Raises DownloadError where a file is not the one that the catalog, or an earlier download, knows."""
    if entry.size_is_exact and size_bytes != entry.size_bytes:
        raise DownloadError(
            f"the file has {size_bytes:,} bytes and {entry.name} has {entry.size_bytes:,}", "Get the file again."
        )
    known = entry.sha256 or (before.sha256 if before is not None and before.repository == entry.repository else None)
    if known is not None and known.lower() != sha256:
        raise DownloadError(
            f"the file is not the {entry.name} that is known: its sha256 is {sha256}, not {known.lower()}",
            f"If the change is wanted: `frog-lsp model remove {entry.name}`, then get it again.",
        )


def remove(name: str) -> InstalledModel:
    """Delete a kept model, damaged or not. Raises UsageError where there is none of this name."""
    with hold(name):
        model = installed_models().get(name)
        if model is None:
            kept = ", ".join(installed_models()) or "none"
            raise UsageError(f"no model called {name} is kept", f"Kept: {kept}.")
        _change_manifest(lambda models: models.pop(name, None))
        model.path.unlink(missing_ok=True)
        for part in parts_of(name):
            part.unlink(missing_ok=True)
    return model


def parts_of(name: str) -> list[Path]:
    """What interrupted downloads of a model left."""
    return [path for path in models_dir().glob(".*.part") if path.name.startswith(f".{name}.")]


def mark_checked(model: InstalledModel) -> None:
    """Remember that the file, as it is now, has the hash of the manifest."""
    checked = replace(model, mtime_ns=os.stat(model.path).st_mtime_ns)
    _change_manifest(lambda models: models.update({model.name: checked}))


def _copy(source: Path, target: Path, n_bytes: int, on_progress: Progress | None) -> None:
    done = 0
    with open(source, "rb") as reader, open(target, "wb") as writer:
        while block := reader.read(_BLOCK_BYTES):
            writer.write(block)
            done += len(block)
            if on_progress is not None:
                on_progress(done, max(n_bytes, done))


def _change_manifest(change: Callable[[dict[str, InstalledModel]], object]) -> None:
    with FileLock(make_private_dir(models_dir()) / ".manifest.lock", timeout=_MANIFEST_TIMEOUT_S):
        models = installed_models()
        change(models)
        write_json_atomically(manifest_path(), manifest_object(models), mode=0o644)
