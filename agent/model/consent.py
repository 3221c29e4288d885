"""Which endpoints beyond this machine the user agreed to send a workspace's text to.

Consents are kept per canonical base URL in the user's config folder (mode 0600), so that no workspace can
give one.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from agent.config import config_dir, load_json_object, write_json_atomically
from agent.errors import UsageError
from agent.model.endpoint_url import is_local, normalize_base_url


def consent_path() -> Path:
    """The file of consents. It may not exist yet."""
    return config_dir() / "endpoint-consents.json"


def has_consent(url: str) -> bool:
    """Whether a run may use the endpoint `url`: it is on this machine, or the user agreed to it earlier.

    Fails closed: an address or a file that cannot be read, and a file that another user may write, is no.
    """
    if is_local(url):
        return True
    path = consent_path()
    try:
        info = os.stat(path)
        if info.st_mode & 0o022 or info.st_uid not in (os.geteuid(), 0):
            return False
        consents = load_json_object(path).get("endpoints")
        return isinstance(consents, dict) and normalize_base_url(url) in consents
    except (OSError, UsageError):
        return False


def store_consent(url: str) -> None:
    """Remember that the user agreed to `url`. Raises UsageError for an address or a file that cannot be used."""
    base_url = normalize_base_url(url)
    path = consent_path()
    settings = load_json_object(path)
    endpoints = settings.get("endpoints")
    consents = dict(endpoints) if isinstance(endpoints, dict) else {}
    consents[base_url] = {"date": datetime.now(UTC).isoformat(timespec="seconds")}
    write_json_atomically(path, {**settings, "endpoints": consents})


def withdraw_consent(url: str) -> bool:
    """Forget the consent for `url`; whether there was one. Raises UsageError as `store_consent` does."""
    base_url = normalize_base_url(url)
    path = consent_path()
    settings = load_json_object(path)
    endpoints = settings.get("endpoints")
    if not isinstance(endpoints, dict) or base_url not in endpoints:
        return False
    kept = {key: value for key, value in endpoints.items() if key != base_url}
    write_json_atomically(path, {**settings, "endpoints": kept})
    return True
