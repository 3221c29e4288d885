from __future__ import annotations

import io

import pytest

from agent.ipc.framing import MAX_BODY_BYTES, Decoder, FrameError, encode, read_frame, write_frame

GARBAGE = [
    b"hello\r\n\r\n",
    b"Content-Length: x\r\n\r\n{}",
    b"Content-Length: -1\r\n\r\n{}",
    b"Content-Length: 2\r\nX: y\r\n\r\n{}",
    b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
    b"Content-Length: 2\r\n\r\n[]",
    b"Content-Length: 3\r\n\r\nNaN",
    b"Content-Length: 2\r\n\r\n\xff\xff",
    b"Content-Length: 200000\r\n\r\n" + b"[" * 200000,
    b"Content-Length:" + b" " * 2000,
]


def test_a_frame_is_what_the_wire_format_says():
    assert encode({"a": "é"}) == b'Content-Length: 14\r\n\r\n{"a":"\\u00e9"}'


def test_names_that_are_not_utf8_survive():
    message = {"path": b"caf\xe9".decode("utf-8", "surrogateescape")}
    assert Decoder().feed(encode(message)) == [message]


@pytest.mark.parametrize("data", GARBAGE)
def test_garbage_is_refused(data):
    with pytest.raises(FrameError):
        Decoder().feed(data)
    with pytest.raises(FrameError):
        read_frame(io.BytesIO(data))


def test_messages_before_garbage_are_handed_out_first():
    decoder = Decoder()
    assert decoder.feed(encode({"n": 1}) + b"garbage") == [{"n": 1}]
    assert decoder.failure is not None
    with pytest.raises(FrameError):
        decoder.feed(b"")


def test_an_oversize_message_is_not_encoded():
    with pytest.raises(FrameError):
        encode({"data": "x" * MAX_BODY_BYTES})


def test_a_header_that_never_ends_is_not_kept():
    decoder = Decoder()
    with pytest.raises(FrameError):
        for _ in range(2000):
            decoder.feed(b"Content-Length:" if not decoder.pending else b" ")


def test_blocking_calls_round_trip_and_end():
    stream = io.BytesIO()
    write_frame(stream, {"n": 1})
    write_frame(stream, {"n": 2})
    stream.seek(0)
    assert [read_frame(stream), read_frame(stream), read_frame(stream)] == [{"n": 1}, {"n": 2}, None]


@pytest.mark.parametrize("cut", [5, 20, 22])
def test_a_cut_stream_is_an_error(cut):
    with pytest.raises(FrameError):
        read_frame(io.BytesIO(encode({"n": 1})[:cut]))
