"""Write: a whole file, its folders made where they are missing."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

from agent.changes.textfile import write_over
from agent.tools.runner.places import Places
from agent.tools.runner.read import MAX_FILE_BYTES


def write(places: Places, arguments: dict[str, Any]) -> str:
    """`file_path`, `content`. An existing file keeps its encoding, its line ends and its mode where it can."""
    path, content = arguments["file_path"], arguments["content"]
    place = places.resolve(path)
    if path.endswith("/"):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), place.shown)
    info = place.view.lstat(place.parts)
    existing = None
    if info is not None and not (stat.S_ISREG(info.st_mode) and info.st_size > MAX_FILE_BYTES):
        existing = place.view.read(place.parts, MAX_FILE_BYTES)
    place.view.write(place.parts, write_over(existing, content))
    return f"Wrote {place.shown} ({len(content)} bytes)."
