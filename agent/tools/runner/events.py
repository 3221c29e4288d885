"""All that the runner waits for, in one place: frames, ends of children, output of commands."""

from __future__ import annotations

import os
import select
import signal
from typing import Any

from agent.ipc.framing import Decoder, encode
from agent.tools.runner.output import Sink

_READ_BYTES = 256 * 1024
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Events:
    """One thread, one poll. Output of background children is drained (and forgotten) whenever it waits."""

    def __init__(self, frames_in: int, frames_out: int) -> None:
        self.is_cancelled = False
        self.is_over = False
        self._in, self._out = frames_in, frames_out
        self._decoder = Decoder()
        self._messages: list[tuple[dict[str, Any], bool]] = []  # and whether it was cancelled while it waited
        self._sinks: dict[int, Sink] = {}
        self._ended: dict[int, int] = {}
        self._awaited: set[int] = set()
        self._wake, wake_end = os.pipe()
        for descriptor in (self._wake, wake_end):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        self._poll = select.poll()
        for descriptor in (self._in, self._wake):
            self._poll.register(descriptor, _READABLE)

    def next_message(self) -> dict[str, Any] | None:
        """Wait for the next message; None when the other side is gone. Raises FrameError."""
        while not self._messages and not self.is_over:
            self.wait(None)
        if not self._messages:
            return None
        message, self.is_cancelled = self._messages.pop(0)
        return message

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises BrokenPipeError when the other side is gone."""
        left = memoryview(encode(message))
        while left:
            left = left[os.write(self._out, left) :]

    def expect(self, pid: int) -> None:
        """Keep the wait status of this child until `status` is asked."""
        self._awaited.add(pid)

    def status(self, pid: int) -> int | None:
        """The wait status of a child that ended, else None."""
        return self._ended.get(pid)

    def forget(self, pid: int) -> None:
        """The status of this child has been seen."""
        self._awaited.discard(pid)
        self._ended.pop(pid, None)

    def drain(self, descriptor: int, sink: Sink) -> None:
        """Give what arrives at a pipe to `sink` from now on, and close the pipe at its end."""
        if descriptor not in self._sinks:
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, _READABLE)
        self._sinks[descriptor] = sink

    def is_open(self, descriptor: int) -> bool:
        """Whether somebody can still write into this pipe."""
        return descriptor in self._sinks

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for anything, and take it. False where nothing came in time."""
        self._reap()  # a child may have ended before its signal could be seen
        ready = self._poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        for descriptor, _ in ready:
            if descriptor == self._in:
                self._take_frames()
            elif descriptor == self._wake:
                os.read(self._wake, 4096)
                self._reap()
            else:
                self._take_output(descriptor)
        return bool(ready)

    def _take_frames(self) -> None:
        data = os.read(self._in, _READ_BYTES)
        if not data:
            self.is_over = True
            self._poll.unregister(self._in)
            return
        for message in self._decoder.feed(data):
            if message.get("method") != "cancel":
                self._messages.append((message, False))
                continue
            self.is_cancelled = True
            self._messages = [(waiting, True) for waiting, _ in self._messages]
            if "id" in message:
                self.send({"id": message["id"], "result": {}})

    def _take_output(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._sinks[descriptor].take(data)
            return
        self._poll.unregister(descriptor)
        del self._sinks[descriptor]
        os.close(descriptor)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._awaited:
                self._ended[pid] = status
