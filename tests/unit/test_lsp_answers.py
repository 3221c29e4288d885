"""Every request gets a response, and one that JSON can hold."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lsp_server.protocol import FrogServer


class Sent:
    """A transport that keeps what is sent."""

    def __init__(self) -> None:
        self.message: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def send(self, body: bytes) -> None:
        self.message.set_result(json.loads(body))


async def answer_to(msg_id: Any, result: Any) -> dict[str, Any]:
    server, sent = FrogServer("0"), Sent()
    server.protocol.transport = sent  # type: ignore[assignment]
    server.feature("test/it")(lambda _params: result)
    server.protocol.receive({"jsonrpc": "2.0", "id": msg_id, "method": "test/it"})
    return await asyncio.wait_for(sent.message, 10)


async def test_what_is_too_deep_to_be_sent_is_an_error() -> None:
    """What came in can just be read and is a level deeper in the answer."""
    nested: Any = None
    for _ in range(5_000):
        nested = [nested]
    message = await answer_to(7, nested)
    assert (message["id"], message["error"]["code"]) == (7, -32603)


@pytest.mark.parametrize("msg_id", [float("inf"), float("nan"), True, None, [], {}])
async def test_an_id_that_is_none_is_not_sent_back(msg_id: Any) -> None:
    message = await answer_to(msg_id, 1)
    assert (message["id"], message["error"]["code"]) == (None, -32600)
