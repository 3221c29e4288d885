from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.ipc.framing import Decoder, encode

text = st.text(st.characters(exclude_categories=[]), max_size=8)  # lone surrogates too
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
messages = st.lists(st.dictionaries(text, values, max_size=2), max_size=4)


@given(messages, st.data())
def test_any_split_of_the_stream_gives_the_same_messages(sent, data):
    stream = b"".join(encode(message) for message in sent)
    whole = Decoder().feed(stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    decoder, pieces = Decoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        pieces += decoder.feed(stream[start:end])
    assert pieces == whole
    assert len(pieces) == len(sent)
    assert not decoder.pending


@given(st.binary(max_size=300), st.data())
def test_garbage_fails_the_same_way_in_any_split(stream, data):
    def outcome(chunks):
        decoder, got = Decoder(), []
        for chunk in chunks:
            try:
                got += decoder.feed(chunk)
            except ValueError:
                break
        return got, decoder.failure is not None

    cut = data.draw(st.integers(0, len(stream)))
    assert outcome([stream]) == outcome([stream[:cut], stream[cut:]])
    assert outcome([stream]) == outcome([stream[i : i + 1] for i in range(len(stream))])
