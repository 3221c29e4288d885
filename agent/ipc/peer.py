"""One end of a connection to a child process: requests correlated by id, and notifications."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from agent.errors import FrogError, ProtocolError
from agent.ipc.framing import Decoder, FrameError, encode
from agent.types import JsonObject

OnNotification = Callable[[str, JsonObject], None]
"""Gets the method and the parameters of each notification, in order; must not block."""

_READ_BYTES = 256 * 1024
_CLOSE_TIMEOUT_S = 1.0


class PeerGone(ProtocolError):
    """The other side ended, or the connection was closed, before it answered."""


class PeerError(FrogError):
    """The other side answered with an error of its own; `kind` is its word."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Peer:
    """Speaks to one child process. Make it inside a running event loop.

    The other side is not trusted: garbage, an oversize frame or an answer that nobody asked for closes
    the connection, and everything that waits gets ProtocolError.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        name: str,
        on_notification: OnNotification | None = None,
    ) -> None:
        self.name = name
        self._reader = reader
        self._writer = writer
        self._on_notification = on_notification
        self._last_id = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._forgotten: set[int] = set()
        self._end: ProtocolError | None = None
        self._task = asyncio.get_running_loop().create_task(self._read(), name=f"frames from {name}")

    @property
    def is_closed(self) -> bool:
        """True once no request can be answered any more."""
        return self._end is not None

    async def request(self, method: str, params: JsonObject | None = None, timeout_s: float | None = None) -> Any:
        """Send a request and return its result.

        Raises PeerError (the other side's own error), PeerGone, ProtocolError, and TimeoutError after
        `timeout_s`. A request that times out or is cancelled is forgotten: its late answer is dropped.
        """
        if self._end is not None:
            raise PeerGone(str(self._end), self._end.hint)
        self._last_id += 1
        request_id = self._last_id
        frame = _encode({"id": request_id, "method": method, "params": params or {}})
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(frame)
                return await answer
        finally:
            if self._waiting.pop(request_id, None) is not None:
                self._forgotten.add(request_id)
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen: asyncio must not warn about one that nobody awaits any more

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification. Raises PeerGone."""
        if self._end is not None:
            raise PeerGone(str(self._end), self._end.hint)
        await self._send(_encode({"method": method, "params": params or {}}))

    async def close(self) -> None:
        """End the connection; whatever still waits gets PeerGone. Idempotent; never raises."""
        self._finish(PeerGone(f"the connection to the {self.name} was closed"))
        self._task.cancel()
        await asyncio.wait([self._task])
        closing = asyncio.ensure_future(self._writer.wait_closed())
        done, _ = await asyncio.wait([closing], timeout=_CLOSE_TIMEOUT_S)
        if not done:  # the other side never took what was sent to it
            self._writer.transport.abort()
            await asyncio.wait([closing])
        with contextlib.suppress(OSError):
            closing.result()

    async def _send(self, frame: bytes) -> None:
        try:
            self._writer.write(frame)
            await self._writer.drain()
        except OSError as error:
            gone = PeerGone(f"the {self.name} ended: {error}")
            self._finish(gone)
            raise gone from error

    async def _read(self) -> None:
        decoder = Decoder()
        end: ProtocolError
        try:
            while data := await self._reader.read(_READ_BYTES):
                for message in decoder.feed(data):
                    self._take(message)
                if decoder.failure is not None:
                    raise decoder.failure
            cut = " in the middle of a message" if decoder.pending else ""
            end = PeerGone(f"the {self.name} ended{cut}")
        except FrameError as error:
            end = ProtocolError(f"the {self.name} sent what is no message: {error}")
        except ProtocolError as error:
            end = error
        except OSError as error:
            end = PeerGone(f"the {self.name} ended: {error}")
        except Exception as error:  # nobody may wait for ever because of a mistake here
            end = ProtocolError(f"a message of the {self.name} cannot be used: {error!r}")
        self._finish(end)

    def _take(self, message: JsonObject) -> None:
        if "id" not in message:
            self._take_notification(message)
            return
        request_id = message["id"] if type(message["id"]) is int else -1
        if request_id in self._forgotten:
            self._forgotten.discard(request_id)
            return
        answer = self._waiting.pop(request_id, None)
        if answer is None:
            raise ProtocolError(f"the {self.name} answered a request that nobody made")
        if answer.done():
            return
        if "result" in message:
            answer.set_result(message["result"])
            return
        error = message.get("error")
        if not isinstance(error, dict):
            answer.set_exception(ProtocolError(f"the {self.name} answered neither a result nor an error"))
            raise ProtocolError(f"the {self.name} answered neither a result nor an error")
        answer.set_exception(PeerError(str(error.get("kind", "error")), str(error.get("message", ""))))

    def _take_notification(self, message: JsonObject) -> None:
        method, params = message.get("method"), message.get("params", {})
        if not isinstance(method, str) or not isinstance(params, dict):
            raise ProtocolError(f"the {self.name} sent a message without a method")
        if self._on_notification is None:
            return
        try:
            self._on_notification(method, params)
        except Exception as error:
            raise ProtocolError(f"the {self.name} sent a notification that cannot be used: {error!r}") from error

    def _finish(self, end: ProtocolError) -> None:
        if self._end is None:
            self._end = end
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(end)
        self._writer.close()


def _encode(message: JsonObject) -> bytes:
    try:
        return encode(message)
    except ValueError as error:
        raise ProtocolError(f"the message cannot be sent: {error}") from error
