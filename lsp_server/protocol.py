"""pygls as the engine: its registry, its futures, its errors; the parts with traps are replaced.

Parameters reach our features as plain JSON. Diagnostics of any server must go round unchanged, and a value that
is not in the types of this year's LSP must not cost a person the request. What is left of a message that cannot
be read is answered: a request always gets a response.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import math
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError, JsonRpcInvalidParams, JsonRpcMethodNotFound
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol

from lsp_server.transport import Transport

logger = logging.getLogger(__name__)

INVALID_REQUEST = -32600
REQUEST_CANCELLED = -32800


class FrogProtocol(LanguageServerProtocol):
    """JSON-RPC over a Transport. Builtin features of pygls that keep documents or cancel futures are left out."""

    _server: FrogServer

    def __init__(self, server: FrogServer, converter: Any) -> None:
        super().__init__(server, converter)
        self.transport: Transport | None = None
        self._running: dict[Any, asyncio.Task[Any]] = {}
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._n_asked = 0
        self.has_exited = asyncio.Event()
        """Set when the client says `exit`."""
        self.fm._builtin_features.clear()
        self.fm._builtin_features[types.INITIALIZE] = self._initialize

    def _initialize(self, _params: Any) -> dict[str, Any]:
        # A second `initialize`: the first was answered by the front of the server.
        raise JsonRpcException(message="the server is already initialized", code=INVALID_REQUEST)

    # --- in ---------------------------------------------------------------------------------------------------

    def receive(self, message: Any) -> None:
        """Take one decoded message. Never raises."""
        if isinstance(message, list):  # a batch, which LSP does not have
            self._respond_error(None, INVALID_REQUEST, "batches are not part of LSP")
            return
        if not isinstance(message, dict):
            self._respond_error(None, INVALID_REQUEST, "a message must be an object")
            return
        msg_id, method = message.get("id"), message.get("method")
        if method is None and "id" in message and ("result" in message or "error" in message):
            self._take_answer(msg_id, message)
        elif not isinstance(method, str):
            self._respond_error(msg_id if _is_id(msg_id) else None, INVALID_REQUEST, "a message needs a method")
        elif "id" in message:
            self._take_request(msg_id, method, message.get("params"))
        else:
            self._take_notification(method, message.get("params"))

    def _take_answer(self, msg_id: Any, message: dict[str, Any]) -> None:
        future = self._asked.pop(msg_id, None) if isinstance(msg_id, str) else None
        if future is None or future.done():
            logger.info("an answer to no question of ours: %r", msg_id)
            return
        error = message.get("error")
        if error is None:
            future.set_result(message.get("result"))
            return
        text = error.get("message") if isinstance(error, dict) else error
        code = error.get("code") if isinstance(error, dict) else None
        future.set_exception(JsonRpcException(message=str(text), code=code if isinstance(code, int) else 0))

    def _take_request(self, msg_id: Any, method: str, params: Any) -> None:
        if not _is_id(msg_id):
            self._respond_error(None, INVALID_REQUEST, "the id of a request is a string or a number")
        elif self._shutdown:
            self._respond_error(msg_id, INVALID_REQUEST, "the server is shutting down")
        elif msg_id in self._running:
            self._respond_error(msg_id, INVALID_REQUEST, f"the id {msg_id!r} is in use")
        else:
            task = asyncio.get_running_loop().create_task(
                self._answer(msg_id, method, params), context=contextvars.copy_context()
            )
            self._running[msg_id] = task

    async def _answer(self, msg_id: Any, method: str, params: Any) -> None:
        try:
            answer = {"jsonrpc": "2.0", "id": msg_id, "result": await self._call(method, params)}
            self._send(answer)  # here, since what came deeply nested may be too deep for an answer
        except asyncio.CancelledError:
            self._respond_error(msg_id, REQUEST_CANCELLED, "cancelled")
        except JsonRpcException as error:
            self._respond_error(msg_id, error.code, error.message, error.data)
        except Exception as error:
            logger.exception("%s failed", method)
            self._respond_error(msg_id, JsonRpcInternalError.CODE, f"{type(error).__name__}: {error}")
        finally:
            self._running.pop(msg_id, None)

    async def _call(self, method: str, params: Any) -> Any:
        handler = self.fm.builtin_features.get(method) or self.fm.features.get(method)
        if handler is None:
            raise JsonRpcMethodNotFound.of(method)
        result = handler(params)
        return await result if asyncio.iscoroutine(result) else result

    def _take_notification(self, method: str, params: Any) -> None:
        """Handlers of notifications are plain functions and run in the order in which the messages came."""
        if method == types.CANCEL_REQUEST:
            msg_id = params.get("id") if isinstance(params, dict) else None
            if _is_id(msg_id) and (task := self._running.get(msg_id)) is not None:
                task.cancel()
            return
        handler = self.fm.features.get(method)
        if handler is None or (self._shutdown and method != types.EXIT):
            if handler is None and not method.startswith("$/"):
                logger.info("a notification that we do not know: %s", method)
            return
        try:
            handler(params)
        except Exception:
            logger.exception("%s failed", method)

    # --- out --------------------------------------------------------------------------------------------------

    def ask(self, method: str, params: Any) -> asyncio.Future[Any]:
        """Send a request of plain JSON; the future gets the result, or a JsonRpcException."""
        self._n_asked += 1
        msg_id = f"frog-{self._n_asked}"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[msg_id] = future
        future.add_done_callback(lambda _: self._asked.pop(msg_id, None))
        self._send({"jsonrpc": "2.0", "id": msg_id, "method": method, "params": params})
        return future

    def notify(self, method: str, params: Any | None = None) -> None:
        """Send a notification of plain JSON."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _respond_error(self, msg_id: Any, code: int, message: str, data: Any = None) -> None:
        error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        self._send({"jsonrpc": "2.0", "id": msg_id, "error": error})

    def _send(self, message: dict[str, Any]) -> None:
        if self.transport is not None:
            # A lone surrogate (a name that is not UTF-8) ends the connection of a strict client: never send one.
            text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
            self.transport.send(text.encode("utf-8", "replace"))

    @property
    def was_shut_down(self) -> bool:
        """Whether the client said `shutdown` before it left."""
        return self._shutdown

    def stop_answering(self) -> None:
        """After `shutdown`: only `exit` is heard; questions to the client are given up."""
        self._shutdown = True
        for future in list(self._asked.values()):
            future.cancel()


class FrogServer(LanguageServer):
    """The pygls server with our session. Errors go to the log, never into popups."""

    protocol: FrogProtocol

    def __init__(self, version: str) -> None:
        super().__init__("frog-lsp", version, protocol_cls=FrogProtocol)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """pygls shows every exception as a popup; we log it."""
        logger.error("%s: %s", getattr(source, "__name__", source), error)


def _is_id(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)  # Python reads and writes NaN, JSON has none
    return isinstance(value, str | int) and not isinstance(value, bool)


def invalid_params(message: str) -> JsonRpcException:
    """-32602 with a message for a person."""
    return JsonRpcInvalidParams(message=message)
