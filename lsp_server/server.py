"""The server's process: answers `initialize` first, then loads what the rest needs.

Loading the types of LSP is most of the start of any pygls server; a client waits for the answer to `initialize`, and
the answer needs none of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

from lsp_server import __version__
from lsp_server.capabilities import initialize_result, resolve
from lsp_server.transport import Transport, take_stdio

if TYPE_CHECKING:
    from lsp_server.application import Application
    from lsp_server.protocol import FrogServer

NOT_INITIALIZED = -32002
PARSE_ERROR = -32700


def main() -> int:
    """Serve one client on stdin and stdout until it says `exit` or is gone; the exit code."""
    return asyncio.run(_serve_and_leave(*take_stdio()))


async def _serve_and_leave(in_fd: int, out_fd: int) -> int:
    # Everything is closed; threads that load something or wait for a dead client must not keep the process.
    os._exit(await _serve(in_fd, out_fd))


def build_server(transport: Transport, initialize_params: Any) -> tuple[FrogServer, Application]:
    """A server for a client that has been answered: the session of its parameters, with all features registered."""
    from lsp_server.application import Application
    from lsp_server.client import Client
    from lsp_server.features import (
        code_action,
        code_lens,
        commands,
        configuration,
        documents,
        file_operations,
        lifecycle,
        text_document_content,
        watched_files,
    )
    from lsp_server.launcher import AgentLauncher
    from lsp_server.protocol import FrogServer
    from lsp_server.session import Session

    server = FrogServer(__version__)
    server.protocol.transport = transport
    session = Session(Client(server.protocol), resolve(initialize_params), initialize_params)
    application = Application(session, AgentLauncher())
    for feature in (
        lifecycle,
        documents,
        configuration,
        watched_files,
        file_operations,
        code_action,
        commands,
        code_lens,
        text_document_content,
    ):
        feature.register(server, application)
    return server, application


async def _serve(in_fd: int, out_fd: int) -> int:
    transport = Transport(in_fd, out_fd)
    params = await _wait_for_initialize(transport)
    if params is None:
        transport.flush_and_close()
        return 1
    from lsp_server.log import start_log

    start_log()
    server, application = build_server(transport, params)
    from lsp_server.features.lifecycle import watch_process

    reading = asyncio.create_task(_read(transport, server))
    ending: list[asyncio.Task[Any]] = [
        asyncio.create_task(event.wait()) for event in (server.protocol.has_exited, transport.closed)
    ]
    pid = application.session.process_id
    if isinstance(pid, int) and pid > 0:
        ending.append(asyncio.create_task(watch_process(pid)))
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    ending.append(asyncio.create_task(stopped.wait()))
    await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
    for task in (*ending, reading):
        task.cancel()
    await application.stop()
    transport.flush_and_close()
    return 0 if server.protocol.was_shut_down else 1


async def _read(transport: Transport, server: FrogServer) -> None:
    async for body in transport.bodies():
        message = _decode(body)
        if message is _BAD:
            _error(transport, None, PARSE_ERROR, "the message is not JSON")
        else:
            server.protocol.receive(message)


async def _wait_for_initialize(transport: Transport) -> Any:
    """Answer `initialize`; its parameters, or None where the client left before."""
    async for body in transport.bodies():
        message = _decode(body)
        if message is _BAD:
            _error(transport, None, PARSE_ERROR, "the message is not JSON")
        elif not isinstance(message, dict):
            continue
        elif message.get("method") == "exit":
            return None
        elif "id" not in message:
            continue  # notifications before `initialize` are dropped, as LSP says
        elif message.get("method") == "initialize" and isinstance(message.get("params"), dict):
            params = message["params"]
            result = initialize_result(resolve(params), __version__)
            _send(transport, {"jsonrpc": "2.0", "id": message["id"], "result": result})
            return params
        elif message.get("method") == "initialize":
            _error(transport, message["id"], -32602, "the parameters of initialize must be an object")
        elif "method" in message:
            _error(transport, message["id"], NOT_INITIALIZED, "the server is not initialized")
    return None


_BAD = object()


def _decode(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return _BAD


def _send(transport: Transport, message: dict[str, Any]) -> None:
    transport.send(json.dumps(message).encode())


def _error(transport: Transport, msg_id: Any, code: int, message: str) -> None:
    _send(transport, {"jsonrpc": "2.0", "id": msg_id, "error": {"code": code, "message": message}})
