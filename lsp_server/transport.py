"""Frames over stdin and stdout, each on a thread of its own, so that neither a slow client nor a full pool of
threads can keep a cancel from being read.

The real stdout is taken away from the rest of the process: whatever prints goes to stderr, never into a frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sys
import threading
from collections.abc import AsyncIterator

MAX_BODY_BYTES = 256 * 1024 * 1024
MAX_HEADER_BYTES = 64 * 1024
FLUSH_TIMEOUT_S = 1.0


class Transport:
    """Bodies of frames in, bodies of frames out. Made on the event loop that uses it."""

    def __init__(self, in_fd: int, out_fd: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._in_fd = in_fd
        self._out_fd = out_fd
        self._incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.closed = asyncio.Event()
        """Set when the client no longer reads or no longer writes."""
        self._writer = threading.Thread(target=self._write, name="lsp-writer", daemon=True)
        threading.Thread(target=self._read, name="lsp-reader", daemon=True).start()
        self._writer.start()

    async def bodies(self) -> AsyncIterator[bytes]:
        """The bodies in order, until the client's end of file."""
        while (body := await self._incoming.get()) is not None:
            yield body

    def send(self, body: bytes) -> None:
        """Queue a frame; never blocks and never fails."""
        self._outgoing.put(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def flush_and_close(self) -> None:
        """Write out what is queued, for at most FLUSH_TIMEOUT_S."""
        self._outgoing.put(None)
        self._writer.join(FLUSH_TIMEOUT_S)

    def _post(self, body: bytes | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._incoming.put_nowait, body)
            if body is None:
                self._loop.call_soon_threadsafe(self.closed.set)

    def _read(self) -> None:
        with open(self._in_fd, "rb", buffering=1 << 16, closefd=False) as stream:
            while True:
                try:
                    size = self._read_headers(stream.readline)
                    body = stream.read(size) if size else b""
                except (OSError, ValueError, EOFError):
                    break
                if len(body) < size:
                    break  # end of file in the middle of a message
                if body:
                    self._post(body)
        self._post(None)

    @staticmethod
    def _read_headers(readline: object) -> int:
        """The size of the next body. Raises EOFError at the end, ValueError where the stream is no LSP."""
        size: int | None = None
        n_bytes = 0
        while True:
            line: bytes = readline(MAX_HEADER_BYTES)  # type: ignore[operator]
            n_bytes += len(line)
            if not line:
                raise EOFError
            if n_bytes > MAX_HEADER_BYTES:
                raise ValueError("headers without end")
            if not line.strip():
                if size is None:
                    continue  # stray blank lines, or headers that say nothing of the size
                return size
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                size = int(value)
                if size > MAX_BODY_BYTES:
                    raise ValueError("a message over the size limit")

    def _write(self) -> None:
        while (frame := self._outgoing.get()) is not None:
            try:
                view = memoryview(frame)
                while view:
                    view = view[os.write(self._out_fd, view) :]
            except OSError:
                self._post(None)
                return


def take_stdio() -> tuple[int, int]:
    """The descriptors of the client's two pipes; descriptors 0 and 1 then lead to nothing and to stderr.

    So no child and no stray `print` can read or write frames.
    """
    in_fd, out_fd = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return in_fd, out_fd
