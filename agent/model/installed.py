"""The models that `frog-lsp model pull` keeps: where they are, and that they are still what they were.

The folder is `models` in the user's data folder. Its `manifest.json` holds for each name the file, its size,
its sha256 and where it came from; `quant.store` writes it, everything else reads it here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from agent.config import data_dir, load_json_object
from agent.errors import ModelFileError

MANIFEST_FORMAT = 1
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledModel:
    """One kept file. `source` is "hub" or "file"; `mtime_ns` is that of the file when its hash was last checked."""

    name: str
    file: str
    size_bytes: int
    sha256: str
    source: str
    date: str
    mtime_ns: int
    repository: str | None = None
    revision: str | None = None
    remote_file: str | None = None
    licence: str | None = None

    @property
    def path(self) -> Path:
        """Where the file is."""
        return models_dir() / self.file


def models_dir() -> Path:
    """The folder of models. It may not exist yet."""
    return data_dir() / "models"


def manifest_path() -> Path:
    """The manifest of the models. It may not exist yet."""
    return models_dir() / "manifest.json"


def installed_models() -> dict[str, InstalledModel]:
    """The kept models by name, in order of name. Entries that cannot be right are left out.

    Raises UsageError where the manifest cannot be read.
    """
    entries = load_json_object(manifest_path()).get("models")
    models = {}
    for name, entry in sorted(entries.items()) if isinstance(entries, dict) else ():
        model = _read_entry(name, entry)
        if model is not None:
            models[name] = model
    return models


def find_installed(name: str) -> Path | None:
    """The checked file of a kept model; None where no model has this name (the case does not count).

    A file whose time changed since its hash was checked is hashed again (seconds). Raises ModelFileError for
    one that is missing, short or changed: it must not be used.
    """
    models = installed_models()
    model = models.get(name) or next((m for key, m in models.items() if key.lower() == name.lower()), None)
    if model is None:
        return None
    problem = find_damage(model, always_hash=False)
    if problem is not None:
        raise ModelFileError(
            f"the model {model.name} must not be used: {problem}", f"Get it again: `frog-lsp model pull {model.name}`."
        )
    return model.path


def find_damage(
    model: InstalledModel, *, always_hash: bool, on_progress: Callable[[int, int], None] | None = None
) -> str | None:
    """What is wrong with a kept file, in words; None where it is as it was.

    `on_progress` gets (bytes hashed, bytes in all).
    """
    try:
        info = os.stat(model.path)
    except OSError as error:
        return f"{model.path} cannot be read ({error.strerror})"
    if info.st_size != model.size_bytes:
        return f"{model.path} has {info.st_size:,} bytes instead of {model.size_bytes:,}"
    if info.st_mtime_ns == model.mtime_ns and not always_hash:
        return None
    try:
        digest = hash_file(model.path, on_progress)
    except OSError as error:
        return f"{model.path} cannot be read ({error.strerror})"
    return None if digest == model.sha256 else f"{model.path} has another sha256 than when it was got"


def hash_file(path: Path, on_progress: Callable[[int, int], None] | None = None) -> str:
    """The sha256 of a file, in hex. `on_progress` gets (bytes done, bytes in all). Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        n_bytes, done = os.fstat(file.fileno()).st_size, 0
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            done += len(block)
            if on_progress is not None:
                on_progress(done, n_bytes)
    return digest.hexdigest()


def manifest_object(models: dict[str, InstalledModel]) -> dict[str, Any]:
    """The manifest as JSON holds it."""
    return {"format": MANIFEST_FORMAT, "models": {name: asdict(model) for name, model in models.items()}}


def _read_entry(name: str, entry: object) -> InstalledModel | None:
    if not isinstance(entry, dict):
        return None
    kinds: dict[str, type] = {"size_bytes": int, "mtime_ns": int}
    values: dict[str, Any] = {field.name: entry.get(field.name) for field in fields(InstalledModel)}
    required = [field.name for field in fields(InstalledModel) if field.name not in _OPTIONAL]
    if not all(isinstance(values[key], kinds.get(key, str)) for key in required):
        return None
    if not all(values[key] is None or isinstance(values[key], str) for key in _OPTIONAL):
        return None
    file = values["file"]
    if values["name"] != name or file in ("", ".", "..") or "/" in file or "\0" in file:
        return None
    return InstalledModel(**values)


_OPTIONAL = frozenset({"repository", "revision", "remote_file", "licence"})
