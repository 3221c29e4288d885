"""A large file that is written to the disk while it grows, so that the wait at its end is short."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_BUFFER_BYTES = 1 << 20
_STEP_BYTES = 64 << 20


class SteadyFile:
    """A new file, opened for writing. Use as a context; its end is the last sync. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb", buffering=_BUFFER_BYTES)  # noqa: SIM115 - closed by the context
        self._pending = 0
        self._wake = threading.Event()
        self._ends = False
        self._thread = threading.Thread(target=self._sync, name="sync", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends = True
        self._wake.set()
        self._thread.join()
        with self._file as file:
            if kind is None:
                file.flush()
                os.fsync(file.fileno())

    def write(self, data: Any) -> None:
        """Append bytes."""
        self._file.write(data)
        self._pending += len(data)
        if self._pending >= _STEP_BYTES:
            self._pending = 0
            self._wake.set()

    def _sync(self) -> None:
        while self._wake.wait() and not self._ends:
            self._wake.clear()
            try:
                os.fdatasync(self._file.fileno()) if hasattr(os, "fdatasync") else os.fsync(self._file.fileno())
            except OSError:
                return  # the last sync says it, too
