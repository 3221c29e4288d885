"""How files that the client renamed are named; where they are then, `agent.changes.renames` says."""

from __future__ import annotations

import os

from lsp_server.uris import relative_to


def name_in(folder: str, path: str) -> str:
    """A path as `Renames` names it for a workspace folder, also where it was spelled through a link."""
    if (relative := relative_to(folder, path)) is not None:
        return relative
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    relative = relative_to(os.path.realpath(folder), real)
    return path if relative is None else relative
