"""Whether the user agreed to run commands in the reduced jail of backend C.

The consent is kept in the user's config folder (mode 0600), so that no workspace can give it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from agent.config import config_dir, load_json_object, write_json_atomically
from agent.errors import UsageError


def consent_path() -> Path:
    """The file of the consent. It may not exist."""
    return config_dir() / "jail-consent.json"


def has_consent() -> bool:
    """Whether the user agreed. Fails closed: a file that cannot be read, or that another user may write, is no."""
    path = consent_path()
    try:
        info = os.stat(path)
        if info.st_mode & 0o022 or info.st_uid not in (os.geteuid(), 0):
            return False
        return isinstance(load_json_object(path).get("landlock"), dict)
    except (OSError, UsageError):
        return False


def store_consent() -> None:
    """Remember that the user agreed. Raises UsageError for a file that cannot be used."""
    path = consent_path()
    given = {"date": datetime.now(UTC).isoformat(timespec="seconds")}
    write_json_atomically(path, {**load_json_object(path), "landlock": given})


def withdraw_consent() -> bool:
    """Forget the consent; whether there was one. Raises UsageError as `store_consent` does."""
    path = consent_path()
    settings = load_json_object(path)
    if "landlock" not in settings:
        return False
    write_json_atomically(path, {key: value for key, value in settings.items() if key != "landlock"})
    return True
