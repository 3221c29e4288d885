"""The review of a proposal: a `.diff` file in the user's cache folder, never in the workspace."""

from __future__ import annotations

import os
from pathlib import Path

from agent.config import cache_dir, make_private_dir
from agent.errors import UsageError


def write_private(folder: str, name: str, data: bytes) -> str:
    """Write a file that only this user can read below the cache folder; its path. Raises UsageError."""
    path = make_private_dir(cache_dir() / folder) / name
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}", "Make room, or check its owner."
        ) from error
    return str(path)


def review_path(run_id: str) -> Path:
    """Where the review of a run lies."""
    return cache_dir() / "reviews" / f"{run_id}.diff"


def forget_review(run_id: str) -> None:
    """Remove the review of a discarded run."""
    review_path(run_id).unlink(missing_ok=True)
