"""A hash of a workspace, for the header of a trajectory, bounded so that starting does not cost the whole tree."""

from __future__ import annotations

import hashlib
import os
import stat

MAX_FILES = 2_000
MAX_BYTES = 32 << 20
_SKIPPED = frozenset({".git", ".venv", "node_modules", "__pycache__"})


def fingerprint(workspace: str) -> str | None:
    """SHA-256 over names, types, executable bits and bytes; None for more than 2,000 files or 32 MiB.

    `.git`, `.venv`, `node_modules` and `__pycache__` are left out. Links are not followed.
    """
    digest = hashlib.sha256()
    n_files, n_bytes = 0, 0
    folders = [os.fsencode(workspace)]
    root = folders[0]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            n_files += 1
            if n_files > MAX_FILES:
                return None
            try:
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    if os.fsdecode(entry.name) not in _SKIPPED:
                        folders.append(entry.path)
                    continue
                content = b""
                if stat.S_ISLNK(info.st_mode):
                    content = os.readlink(entry.path)
                elif stat.S_ISREG(info.st_mode):
                    n_bytes += info.st_size
                    if n_bytes > MAX_BYTES:
                        return None
                    with open(entry.path, "rb", opener=_open_plainly) as file:
                        content = file.read(MAX_BYTES)
            except OSError:
                continue
            name = os.path.relpath(entry.path, root)
            kind = stat.S_IFMT(info.st_mode) | (info.st_mode & 0o100)
            digest.update(b"%s\0%o\0%s" % (name, kind, hashlib.sha256(content).digest()))
    return digest.hexdigest()


def _open_plainly(path: str | bytes, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
