"""From the name or path of a model to its file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent.config import load_user_config
from agent.errors import ModelFileError
from agent.model.installed import find_installed, installed_models

DEMONSTRATION_NAMES = ("tadpole", "demo", "demonstration")
BUNDLED = Path(__file__).parent / "data" / "tadpole.gguf"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """Where a model is. `kind`: the bundled demonstration, one that `model pull` keeps, or a file of the user's."""

    path: str
    name: str
    kind: Literal["demonstration", "catalog", "file"]


def locate(name_or_path: str | None) -> ModelFile:
    """Find a model by the name it is kept under, or by its path. None: the user's choice, else the bundled one.

    The file itself is checked when it is opened. Raises ModelFileError, UsageError (settings that cannot be read).
    """
    if name_or_path is None:
        name_or_path = _chosen()
        if name_or_path is None:
            return _bundled()
    name = name_or_path.strip()
    if name.lower() in DEMONSTRATION_NAMES and not os.path.exists(name):
        return _bundled()
    if not _is_path(name) and (found := find_installed(name)) is not None:
        return ModelFile(path=str(found), name=name, kind="catalog")
    path = os.path.abspath(os.path.expanduser(name))
    if not os.path.exists(path):
        raise _missing(name)
    if BUNDLED.is_file() and os.path.samefile(path, BUNDLED):
        return _bundled()
    return ModelFile(path=path, name=Path(path).name.removesuffix(".gguf"), kind="file")


def _chosen() -> str | None:
    """The setting `model.path` of the user's own settings, nested or not."""
    settings = load_user_config()
    group = settings.get("model")
    value = settings.get("model.path", group.get("path") if isinstance(group, dict) else None)
    return value if isinstance(value, str) and value.strip() else None


def _bundled() -> ModelFile:
    if not BUNDLED.is_file():
        raise ModelFileError(
            "the bundled demonstration model is missing from this installation",
            "Install frog-lsp again, or get a model: `frog-lsp model pull`.",
        )
    return ModelFile(path=str(BUNDLED), name="tadpole", kind="demonstration")


def _is_path(name: str) -> bool:
    return os.sep in name or name.startswith("~") or name.lower().endswith(".gguf")


def _missing(name: str) -> ModelFileError:
    if _is_path(name):
        return ModelFileError(f"there is no model file {name}", "Check the path, or see `frog-lsp model list`.")
    kept = ", ".join(sorted(installed_models())) or "none yet"
    return ModelFileError(
        f"there is no model {name}", f"Get it with `frog-lsp model pull {name}`. Kept models: {kept}; bundled: tadpole."
    )
