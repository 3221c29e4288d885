"""What every backend gives to a session: a child that speaks frames, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from agent.ipc.exits import wait_for_exit
from agent.types import JailInfo

_STDERR_BYTES = 16_384


class Jailed(Protocol):
    """A started backend. `view_fd` is open from the start; `close` closes it.

    `copied` is what `PrivateView.copied` says: None where the view is in the overlay's format.
    """

    process: asyncio.subprocess.Process
    info: JailInfo
    notes: tuple[str, ...]
    limits: list[str]
    copied: Mapping[str, tuple[int, int]] | None

    async def end(self) -> None:
        """Kill every jailed process and return when none is left. Idempotent."""
        ...

    def view_fd(self) -> int:
        """The open upper layer, or the open copy."""
        ...

    def close(self) -> None:
        """Release everything; the view is gone. Idempotent."""
        ...


class JailedCommand(Jailed, Protocol):
    """A started backend that runs one command."""

    @property
    def wait_status(self) -> int | None:
        """The wait status of the command once it ended by itself."""
        ...

    async def finished(self) -> None:
        """Wait until nothing of the jail is left."""
        ...


class StderrTail:
    """Drains a child's stderr and keeps its end, so that a flood neither blocks nor fills memory."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._pieces: deque[bytes] = deque()
        self._size_bytes = 0
        self._task = asyncio.create_task(self._drain(stream))

    async def _drain(self, stream: asyncio.StreamReader) -> None:
        while piece := await stream.read(4096):
            self._pieces.append(piece)
            self._size_bytes += len(piece)
            while self._size_bytes - len(self._pieces[0]) >= _STDERR_BYTES:
                self._size_bytes -= len(self._pieces.popleft())

    def text(self) -> str:
        """The last 16 KiB, decoded leniently."""
        return b"".join(self._pieces)[-_STDERR_BYTES:].decode("utf-8", "replace")

    async def close(self) -> None:
        """Stop reading; what came before the end of the child has been read."""
        try:
            await asyncio.wait_for(asyncio.shield(self._task), 0.5)
        except TimeoutError:
            self._task.cancel()


async def reap(process: asyncio.subprocess.Process, timeout_s: float) -> None:
    """Wait for a child; kill it where it does not end in time."""
    try:
        await asyncio.wait_for(wait_for_exit(process), timeout_s)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await wait_for_exit(process)
