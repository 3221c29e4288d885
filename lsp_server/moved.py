"""Finding a file that was moved without a word, by its bytes. What is found is a guess, for a person to read."""

from __future__ import annotations

import os
import time
from collections import deque

MAX_ENTRIES = 20_000
MAX_TIME_S = 0.5
_NEVER = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__"})


def find_moved(base: bytes, path: str, root: str) -> str | None:
    """The one file below `root` with the bytes of the file that was at `path`; its posix path relative to `root`.

    None where there is none or there are several, for an empty file, and where looking through MAX_ENTRIES entries
    or for MAX_TIME_S was not enough to tell.
    """
    if not base:
        return None
    end_s = time.monotonic() + MAX_TIME_S
    found: set[str] = set()
    n_entries = 0
    folders = deque([root])
    while folders:
        try:
            entries = list(os.scandir(folders.popleft()))
        except OSError:
            continue
        n_entries += len(entries)
        if n_entries > MAX_ENTRIES or time.monotonic() > end_s:
            return None
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _NEVER:
                        folders.append(entry.path)
                elif entry.path != path and entry.is_file(follow_symlinks=False) and _has_bytes(entry, base):
                    found.add(entry.path)
            except OSError:
                continue
    return os.path.relpath(found.pop(), root) if len(found) == 1 else None


def _has_bytes(entry: os.DirEntry[str], base: bytes) -> bool:
    if entry.stat(follow_symlinks=False).st_size != len(base):
        return False
    with open(entry.path, "rb") as file:
        return file.read(len(base) + 1) == base
