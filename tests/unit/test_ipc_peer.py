"""The peer against a real socket whose other end is written by hand."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from agent.errors import ProtocolError
from agent.ipc.framing import Decoder, encode
from agent.ipc.messages import check_hello, from_base64, hello_params, to_base64
from agent.ipc.peer import Peer, PeerError, PeerGone


class FarEnd:
    """The other side: reads requests, writes whatever the test wants."""

    def __init__(self, reader, writer):
        self.reader, self.writer, self.decoder, self.queue = reader, writer, Decoder(), []

    async def next(self):
        while not self.queue:
            data = await self.reader.read(65536)
            if not data:
                return None
            self.queue += self.decoder.feed(data)
        return self.queue.pop(0)

    async def say(self, message):
        self.writer.write(message if isinstance(message, bytes) else encode(message))
        await self.writer.drain()


@contextlib.asynccontextmanager
async def connection(on_notification=None):
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    far = FarEnd(*await asyncio.open_connection(sock=theirs))
    peer = Peer(reader, writer, name="child", on_notification=on_notification)
    try:
        yield peer, far
    finally:
        await peer.close()
        far.writer.close()
        await far.writer.wait_closed()


async def test_answers_in_any_order_reach_their_requests():
    async with connection() as (peer, far):
        first = asyncio.create_task(peer.request("a", {"x": 1}))
        second = asyncio.create_task(peer.request("b"))
        one, two = await far.next(), await far.next()
        assert (one["method"], one["params"], two["params"]) == ("a", {"x": 1}, {})
        await far.say({"id": two["id"], "result": "second"})
        await far.say({"id": one["id"], "result": None})
        assert await second == "second"
        assert await first is None


async def test_an_error_answer_carries_kind_and_message():
    async with connection() as (peer, far):
        task = asyncio.create_task(peer.request("a"))
        await far.say({"id": (await far.next())["id"], "error": {"kind": "no", "message": "not today"}})
        with pytest.raises(PeerError, match="not today") as caught:
            await task
        assert caught.value.kind == "no"


async def test_notifications_arrive_in_order():
    got = []
    async with connection(lambda method, params: got.append((method, params))) as (peer, far):
        await peer.notify("there", {"n": 0})
        assert await far.next() == {"method": "there", "params": {"n": 0}}
        task = asyncio.create_task(peer.request("a"))
        request = await far.next()
        await far.say({"method": "p", "params": {"n": 1}})
        await far.say({"method": "q"})
        await far.say({"id": request["id"], "result": 1})
        await task
    assert got == [("p", {"n": 1}), ("q", {})]


async def test_the_late_answer_of_a_cancelled_or_timed_out_request_is_dropped():
    async with connection() as (peer, far):
        cancelled = asyncio.create_task(peer.request("a"))
        first = await far.next()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(TimeoutError):
            await peer.request("b", timeout_s=0.02)
        second = await far.next()
        await far.say({"id": second["id"], "result": "late"})
        await far.say({"id": first["id"], "error": {"kind": "k", "message": "late"}})
        third = asyncio.create_task(peer.request("c"))
        await far.say({"id": (await far.next())["id"], "result": "fine"})
        assert await third == "fine"


async def test_the_end_of_the_other_side_reaches_everyone_who_waits():
    async with connection() as (peer, far):
        tasks = [asyncio.create_task(peer.request("a")) for _ in range(3)]
        await far.next()
        far.writer.close()
        for task in tasks:
            with pytest.raises(PeerGone):
                await task
        assert peer.is_closed
        with pytest.raises(PeerGone):
            await peer.request("again")
        with pytest.raises(PeerGone):
            await peer.notify("again")


@pytest.mark.parametrize(
    "rubbish",
    [
        b"rubbish",
        b"Content-Length: 99999999999\r\n\r\n",
        {"id": 77, "result": 1},
        {"id": [1], "result": 1},
        {"id": True, "result": 1},
        {"id": 1},
        {"id": 1, "error": "no object"},
        {"no": "method"},
        {"method": 1},
        {"method": "m", "params": []},
    ],
)
async def test_rubbish_closes_the_peer(rubbish):
    async with connection() as (peer, far):
        task = asyncio.create_task(peer.request("a"))
        await far.next()
        await far.say(rubbish)
        with pytest.raises(ProtocolError):
            await task
        assert peer.is_closed
        assert await far.next() is None


async def test_a_failing_handler_closes_the_peer():
    async with connection(lambda method, params: params["missing"]) as (peer, far):
        task = asyncio.create_task(peer.request("a"))
        await far.say({"method": "m"})
        with pytest.raises(ProtocolError, match="cannot be used"):
            await task


async def test_close_ends_what_waits_and_comes_twice():
    async with connection() as (peer, far):
        task = asyncio.create_task(peer.request("a"))
        await far.next()
        await peer.close()
        await peer.close()
        with pytest.raises(PeerGone):
            await task


async def test_a_request_that_cannot_be_sent_is_an_error_and_the_peer_lives():
    async with connection() as (peer, _far):
        with pytest.raises(ProtocolError):
            await peer.request("a", {"n": float("nan")})
        assert not peer.is_closed


def test_handshake_and_bytes():
    assert check_hello(hello_params(bash=True)) == {"protocol": 1, "bash": True}
    with pytest.raises(ProtocolError):
        check_hello({"protocol": 2})
    assert from_base64(to_base64(b"\x00\xff")) == b"\x00\xff"
    for wrong in ("###", 5, "a"):
        with pytest.raises(ProtocolError):
            from_base64(wrong)


@pytest.mark.slow
@pytest.mark.timeout(20)
async def test_a_child_that_never_reads_does_not_hold_up_the_end():
    child = await asyncio.create_subprocess_exec(
        "sleep", "60", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        peer = Peer(child.stdout, child.stdin, name="child")
        with pytest.raises(TimeoutError):
            await peer.request("m", {"x": "y" * 1_000_000}, timeout_s=0.1)
        await asyncio.wait_for(peer.close(), 5)
    finally:
        child.kill()
        await child.wait()
