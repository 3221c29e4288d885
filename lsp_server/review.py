"""Where the review of a proposal is shown: a `.diff` file in the user's cache folder, never in the workspace, and a
read-only virtual document for clients that show those."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agent.config import cache_dir, make_private_dir
from agent.errors import UsageError
from agent.run_id import is_run_id
from lsp_server.uris import path_of, scheme_of

SCHEME = "frog-review"
"""Of the virtual documents: `frog-review:/RUNID.diff`."""
_VIRTUAL_PATH = re.compile(r"/{1,3}([^/]+)\.diff")


def write_private(folder: str, name: str, data: bytes) -> str:
    """Write a file that only this user can read below the cache folder; its path. Raises UsageError.

    It is replaced as a whole: an editor that reads it at this moment sees the old one or the new one.
    """
    path = make_private_dir(cache_dir() / folder) / name
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}", "Make room, or check its owner."
        ) from error
    return str(path)


def review_path(run_id: str) -> Path:
    """Where the review of a run lies."""
    return cache_dir() / "reviews" / f"{run_id}.diff"


def virtual_uri(run_id: str) -> str:
    """The virtual document of a run's review."""
    return f"{SCHEME}:/{run_id}.diff"


def run_of_review(uri: str) -> str | None:
    """The run whose review a document is, in any spelling of its URI; None for every other document."""
    name = _virtual_name(uri) if scheme_of(uri) == SCHEME else _file_name(uri)
    return name if name is not None and is_run_id(name) else None


def _virtual_name(uri: str) -> str | None:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    found = _VIRTUAL_PATH.fullmatch(unquote(parts.path))
    return found[1] if found and not (parts.netloc or parts.query or parts.fragment) else None


def _file_name(uri: str) -> str | None:
    path = path_of(uri)
    if path is None or not path.endswith(".diff"):
        return None
    folder, name = os.path.split(path)
    if os.path.realpath(folder) != os.path.realpath(cache_dir() / "reviews"):
        return None
    return name.removesuffix(".diff")


def forget_review(run_id: str) -> None:
    """Remove the review of a discarded run."""
    review_path(run_id).unlink(missing_ok=True)
