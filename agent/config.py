"""The user's own folders and settings: always outside any workspace.

The settings file is `config.json` in the user's config folder. It holds one object with the keys of the
editor settings, nested: `{"model": {"path": "…"}}`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock, Timeout

from agent.errors import UsageError

APP_NAME = "frog-lsp"
LOCK_TIMEOUT_S = 10.0


def config_dir() -> Path:
    """The folder of the user's settings and consents. It may not exist yet."""
    return platformdirs.user_config_path(APP_NAME, appauthor=False)


def state_dir() -> Path:
    """The folder of trajectories and kept proposals. It may not exist yet."""
    return platformdirs.user_state_path(APP_NAME, appauthor=False)


def cache_dir() -> Path:
    """The folder of what can be made again. It may not exist yet."""
    return platformdirs.user_cache_path(APP_NAME, appauthor=False)


def data_dir() -> Path:
    """The folder of models. It may not exist yet."""
    return platformdirs.user_data_path(APP_NAME, appauthor=False)


def user_config_path() -> Path:
    """The user's settings file. It may not exist yet."""
    return config_dir() / "config.json"


def load_user_config() -> dict[str, Any]:
    """The user's settings; `{}` where there is no file.

    Raises UsageError for a file that is not readable or not a JSON object: settings that limit what a
    run may do are never dropped silently.
    """
    return load_json_object(user_config_path())


def save_user_config(settings: dict[str, Any]) -> None:
    """Replace the user's settings file as a whole (mode 0600). Raises UsageError when it cannot be written."""
    write_json_atomically(user_config_path(), settings)


def update_user_config(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Load the settings, let `change` alter them in place, save them; one process at a time.

    Raises UsageError as `load_user_config` and `save_user_config` do.
    """
    path = user_config_path()
    make_private_dir(path.parent)
    try:
        with FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S, mode=0o600):
            settings = load_user_config()
            change(settings)
            save_user_config(settings)
            return settings
    except Timeout as error:
        raise UsageError(
            f"{path} is locked by another frog-lsp process",
            "Wait for it to end and try again.",
        ) from error


def load_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; `{}` where there is no file. Raises UsageError for anything else."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", f"Repair or remove {path}.") from error
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON: {error}", f"Repair or remove {path}.") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} does not hold a JSON object", f"Repair or remove {path}.")
    return value


def write_json_atomically(path: Path, value: dict[str, Any], *, mode: int = 0o600) -> None:
    """Write `value` so that a reader, or a crash, sees the old file or the new one and nothing between.

    Raises UsageError when the folder cannot be made or the disk is full.
    """
    data = (json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode()
    try:
        make_private_dir(path.parent)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}", "Make room, or check its owner."
        ) from error


def make_private_dir(path: Path) -> Path:
    """Make `path`, with its parents, for this user alone (0700 what is new). Raises UsageError."""
    try:
        missing = [path]  # not by `parents=True`: that gives the parents the mode of the umask
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be made: {error.strerror or error}", "Check the owner of its parent."
        ) from error
    return path
