"""Who else holds a model in memory: two editors have a worker each, and a person should know it when memory is short.

A worker is not shared between servers: it holds one conversation, and a run of one editor would wait for the other's.
What they do share is the part of the weights that is mapped from the file and not repacked: the system keeps it once.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from agent.config import APP_NAME, cache_dir, make_private_dir
from agent.errors import UsageError

WORTH_TELLING_BYTES = 512 << 20
"""A model that needs less is nobody's trouble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A worker with a model, of this user: its process id, the model's name, and the bytes that it was planned with."""

    pid: int
    model: str
    need_bytes: int


class Presence:
    """Says while it lives that this process holds a model. The lock goes with the process, however that ends."""

    def __init__(self, model: str, need_bytes: int) -> None:
        self._path: Path | None = None
        try:
            folder = _folder()
            self._lock = FileLock(folder / f"{os.getpid()}.lock", timeout=0, mode=0o600)
            self._lock.acquire()
            path = folder / f"{os.getpid()}.json"
            path.write_text(json.dumps({"model": model, "need_bytes": need_bytes}))
            self._path = path
        except (OSError, Timeout, UsageError):
            return  # it is a courtesy: nothing depends on it

    def close(self) -> None:
        """No longer. Idempotent."""
        path, self._path = self._path, None
        if path is not None:
            path.unlink(missing_ok=True)
            self._lock.release()


def other_holders(own_pid: int | None = None) -> list[Holder]:
    """The workers of other servers that hold a model worth telling of; what dead ones left is removed."""
    holders = []
    try:
        entries = sorted(_folder().glob("*.json"))
    except (OSError, UsageError):
        return []
    for path in entries:
        if not path.stem.isdecimal() or int(path.stem) == own_pid:
            continue
        try:
            with FileLock(path.with_suffix(".lock"), timeout=0, mode=0o600):
                path.unlink(missing_ok=True)
            path.with_suffix(".lock").unlink(missing_ok=True)
        except Timeout:
            try:
                said = json.loads(path.read_text())
                model, need_bytes = str(said["model"]), int(said["need_bytes"])
                holders.append(Holder(pid=int(path.stem), model=model, need_bytes=need_bytes))
            except (OSError, ValueError, KeyError, TypeError):
                continue
        except OSError:
            continue
    return [holder for holder in holders if holder.need_bytes >= WORTH_TELLING_BYTES]


def _folder() -> Path:
    """A folder of this user alone. Raises UsageError, OSError."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) / APP_NAME if runtime and os.path.isdir(runtime) else cache_dir()
    folder = make_private_dir(base / "workers")
    info = os.lstat(folder)
    is_ours = not hasattr(os, "geteuid") or info.st_uid == os.geteuid()
    if not stat.S_ISDIR(info.st_mode) or not is_ours or info.st_mode & 0o022:
        raise UsageError(f"others may write in {folder}")
    return folder
