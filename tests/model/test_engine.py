"""The engine with a real llama.cpp: nothing is read twice, and going back gives what a fresh reading gives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.errors import ContextOverflow
from agent.model.chat_format import ChatFormat, Part
from agent.model.sampling import Sampling
from agent.types import Observation, ToolCall, Turn, Usage
from quant import synth
from quant.synth_shape import find_shape
from tests.model.tiny import CONTROL, TAGS, TEMPLATE

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def model(tiny_path: Path) -> Iterator[Any]:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: run `make setup`")
    from agent.model.engine_context import LoadedModel

    loaded = LoadedModel(str(tiny_path), n_gpu_layers=None, repack=True, on_progress=lambda _: True)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Heads of 32 values, the least that a cache of 8 bits can hold."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: run `make setup`")
    from agent.model.engine_context import LoadedModel

    shape = replace(find_shape("tiny"), head_size=32)
    path = synth.write_model(tmp_path_factory.mktemp("wide") / "wide.gguf", shape)
    loaded = LoadedModel(str(path), n_gpu_layers=None, repack=True, on_progress=lambda _: True)
    yield loaded
    loaded.close()


@pytest.fixture
def make_engine(require_model: None, model: Any) -> Iterator[Any]:
    from agent.model.engine import Engine

    made: list[Any] = []

    def make(n_ctx: int = 2048, of: Any = None, **more: Any) -> Any:
        made.append(Engine(of or model, n_ctx=n_ctx, n_threads=1, **more))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def conversation(engine: Any, sampling: Sampling | None = None) -> Any:
    from agent.model.engine_chat import Conversation

    chat = ChatFormat(TEMPLATE, bos=engine.vocab.bos, ends=engine.vocab.ends)
    return Conversation(engine, chat, sampling or Sampling(temperature=0.0))


def say(chat: Any, observations: list[str] | None = None, **more: Any) -> Any:
    given = [Observation(tool="Read", text=text) for text in observations or []]
    options = {
        "max_tokens": 24,
        "thought_tokens": None,
        "on_text": lambda _: None,
        "on_prefill": lambda _done, _total: None,
    }
    return chat.generate(given, **(options | more))


def logits(engine: Any) -> Any:
    from agent.model.engine_library import lib

    pointer = lib.llama_get_logits_ith(engine._context.raw, -1)
    return np.ctypeslib.as_array(pointer, shape=(engine.vocab.n_tokens,)).copy()


def test_many_turns_are_what_one_fresh_reading_gives(make_engine: Any) -> None:
    engine, batches = make_engine(4096), []
    decode = engine._context.decode

    def spy(tokens: Any, position: int) -> None:
        batches.append(list(tokens))
        decode(tokens, position)

    engine._context.decode = spy
    chat = conversation(engine)
    chat.begin("Be kind.", [], "The issue\n" * 40, 1)
    observations: list[str] = []
    for i in range(5):
        say(chat, observations)
        observations = [f"a.py\n{i}. text", "second"]
    spied = logits(engine)
    fresh = make_engine(4096)
    for batch in batches:
        fresh.read(batch)
    assert fresh.ledger.tokens == engine.ledger.tokens
    assert np.abs(logits(fresh) - spied).max() == 0


def test_each_token_is_evaluated_once_over_twenty_turns(make_engine: Any) -> None:
    engine = make_engine(4096)
    chat = conversation(engine)
    chat.begin("System prompt.", [], "The issue.", 1)
    total, n_foreign_ends, reply = Usage(), 0, None
    observations: list[str] = []
    for i in range(20):
        reply = say(chat, observations)
        total += reply.usage
        if i < 19 and reply.finish == "stop" and chat._end_token != engine.vocab.tokenize("<|im_end|>")[0]:
            n_foreign_ends += 1
        observations = [f"Observation {i}."]
    assert reply is not None
    assert total.evaluated_tokens == len(engine.ledger) == reply.context_tokens - 1
    assert total.redecoded_tokens == 0
    # The formula of the interface, but for turns that ended by another token than the template's: that one is not read.
    assert total.evaluated_tokens == total.prompt_tokens + total.completion_tokens - 1 - n_foreign_ends


def test_a_new_conversation_reads_only_what_is_new(make_engine: Any) -> None:
    engine = make_engine(4096)
    chat = conversation(engine)
    system = "A long system prompt. " * 30
    chat.begin(system, [], "First issue. " * 20, 1)
    first = say(chat)
    chat.begin(system, [], "First issue. " * 20 + "And a summary.", 1)
    second = say(chat)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
    n_read = second.usage.evaluated_tokens + second.usage.redecoded_tokens - second.usage.completion_tokens
    assert n_read < 120
    fresh = conversation(make_engine(4096))
    fresh.begin(system, [], "First issue. " * 20 + "And a summary.", 1)
    assert say(fresh).raw == second.raw


@pytest.mark.parametrize("when", ["prefill", "generation"])
def test_abort_then_go_on_is_as_if_nothing_had_been(make_engine: Any, when: str) -> None:
    from agent.model.engine_context import DecodeAbortedError

    expected_chat = conversation(make_engine(4096))
    expected_chat.begin("S", [], "word " * 300, 1)
    first = say(expected_chat)
    second = say(expected_chat, ["answer " * 120])

    engine = make_engine(4096)
    chat = conversation(engine)
    chat.begin("S", [], "word " * 300, 1)
    assert say(chat).raw == first.raw

    def stop(*_: object) -> None:
        engine.abort.set()

    with pytest.raises(DecodeAbortedError):
        say(chat, ["answer " * 120], **({"on_prefill": stop} if when == "prefill" else {"on_text": stop}))
    engine.abort.clear()
    again = say(chat)  # the observations are there already
    assert again.raw == second.raw
    assert again.usage.prompt_tokens == second.usage.prompt_tokens
    assert again.usage.evaluated_tokens == second.usage.evaluated_tokens
    chat.begin("S", [], "word " * 300, 1)
    assert say(chat).raw == first.raw
    assert say(chat, ["answer " * 120]).raw == second.raw


def test_abort_in_the_middle_of_a_batch_stops_and_never_poisons(make_engine: Any) -> None:
    from agent.model.engine_context import DecodeAbortedError

    engine, fresh = make_engine(4096), make_engine(4096)
    tokens = [i % 250 for i in range(2000)]
    fresh.read(tokens[:1500])
    engine.read(tokens[:256])
    engine.save()
    timer = threading.Timer(0.005, engine.abort.set)
    timer.start()
    try:
        engine.read(tokens[256:])
        pytest.skip("the machine was faster than the timer")
    except DecodeAbortedError:
        pass
    finally:
        timer.join()
    engine.abort.clear()
    n_there = engine.rewind(tokens[:1500])
    assert n_there == 256
    assert engine.ledger.redecoded_tokens == 0
    engine.read(tokens[n_there:1500])
    assert np.abs(logits(engine) - logits(fresh)).max() < 1e-3


@pytest.mark.parametrize("harm", ["abort", "bad token", "foreign cut"])
def test_nothing_is_decoded_onto_a_state_that_is_not_that_of_the_ledger(make_engine: Any, harm: str) -> None:
    from agent.model.engine_context import DecodeError

    engine, fresh = make_engine(), make_engine()
    for one in (engine, fresh):
        one.read(list(range(100)))
        one.save()
        one.read(list(range(50)))
    if harm == "abort":
        timer = threading.Timer(0.004, engine.abort.set)
        timer.start()
        with pytest.raises(DecodeError):
            engine.read([7] * 1800)
        timer.join()
        engine.abort.clear()
        engine.rewind([*range(100), *range(50), 1])
    elif harm == "bad token":  # llama_decode itself refuses
        with pytest.raises(DecodeError, match="llama_decode returned"):
            engine.read([engine.vocab.n_tokens + 5])
    else:
        engine._context.clear()
    engine.rewind([*range(100), *range(50), 1])
    for tokens in ([*range(50)][len(engine.ledger) - 100 :], [1]):
        engine.read(tokens)
    fresh.read([1])
    assert engine.ledger.tokens == fresh.ledger.tokens
    assert np.abs(logits(engine) - logits(fresh)).max() == 0


@pytest.mark.parametrize(("harm", "redecoded"), [("cleared", 150), ("foreign", 50)])
def test_a_decode_repairs_the_state_by_itself(make_engine: Any, harm: str, redecoded: int) -> None:
    engine, fresh = make_engine(), make_engine()
    for one in (engine, fresh):
        one.read(list(range(100)))
        one.save()
        one.read(list(range(50)))
    if harm == "cleared":
        engine._context.clear()
    else:
        engine._context.decode([7, 7, 7], 150)
    for one in (engine, fresh):
        one.read([1])
    assert engine.ledger.tokens == fresh.ledger.tokens
    assert engine.ledger.redecoded_tokens == redecoded  # all, or what lies behind the checkpoint
    assert np.abs(logits(engine) - logits(fresh)).max() == 0


def test_ten_answers_to_one_question_are_equal(make_engine: Any) -> None:
    engine = make_engine(4096)
    chat = conversation(engine)
    chat.begin("S", [], "word " * 100, 1)
    say(chat)
    texts, tables = set(), []
    for _ in range(10):
        before = list(engine.ledger.tokens)
        texts.add(say(chat, ["answer " * 30]).raw if not tables else say(chat).raw)
        question = engine.ledger.checkpoint(len(engine.ledger)).n_tokens + 1
        tables.append(logits(engine))
        assert len(before) < question
        chat._ask_again(engine.ledger.tokens[:question])
    assert len(texts) == 1
    assert all(np.abs(table - tables[0]).max() == 0 for table in tables)
    assert engine.ledger.redecoded_tokens >= 9  # each time one token of the question at least


@pytest.mark.parametrize("cache_type", ["f16", "q8_0"])
@pytest.mark.parametrize("n_rs_seq", [0, 3])
def test_each_tuning_goes_back_exactly(make_engine: Any, wide_model: Any, cache_type: Any, n_rs_seq: int) -> None:
    from agent.model.engine_context import Tuning

    tuning = Tuning(cache_type=cache_type, n_rs_seq=n_rs_seq, micro_batch_tokens=64)
    engine, fresh = (make_engine(of=wide_model, tuning=tuning) for _ in range(2))
    prompt = [i % 250 for i in range(128)]
    for one in (engine, fresh):
        one.read(prompt)
        one.save()
    engine.read([9] * 40)
    assert engine.rewind([*prompt, 5]) == len(prompt)
    engine.read([5])
    fresh.read([5])
    assert np.abs(logits(engine) - logits(fresh)).max() == 0


def test_checkpoints_keep_to_their_budget_of_bytes(make_engine: Any) -> None:
    engine = make_engine()
    engine.read([1])
    engine.save(lasting=True)
    size = len(engine.ledger.checkpoint(1).state)
    small = make_engine(checkpoint_bytes=3 * size)
    for i in range(10):
        small.read([i])
        small.save(lasting=i == 0)
    kept = small.ledger._checkpoints
    assert sum(len(point.state) for point in kept) <= 3 * size
    assert [point.n_tokens for point in kept] == [1, 9, 10]  # the lasting one, and the last


def test_redecoding_is_counted_apart(make_engine: Any) -> None:
    engine = make_engine(checkpoint_bytes=1)  # room for one checkpoint only
    tokens = list(range(100))
    engine.read(tokens)
    assert engine.rewind([*tokens[:50], 7]) == 0
    engine.read([*tokens[:50], 7])
    assert (engine.ledger.evaluated_tokens, engine.ledger.redecoded_tokens) == (101, 50)


def test_a_conversation_that_does_not_fit_is_refused_before_it_is_read(make_engine: Any) -> None:
    engine = make_engine(512)
    chat = conversation(engine)
    chat.begin("S", [], "short", 1)
    say(chat)
    n_before = len(engine.ledger)
    with pytest.raises(ContextOverflow):
        say(chat, ["long " * 500])
    assert len(engine.ledger) == n_before
    assert say(chat, ["short"]).context_tokens > n_before


def test_the_context_ends_a_turn_by_length(make_engine: Any) -> None:
    engine = make_engine(256)
    chat = conversation(engine)
    chat.begin("S", [], "x" * 120, 1)
    reply = say(chat, max_tokens=10_000)
    assert reply.finish == "stop" or reply.context_tokens == 256


def test_a_turn_cut_by_its_limit_goes_on_without_losing_a_token(make_engine: Any) -> None:
    engine = make_engine()
    whole, cut = conversation(engine), conversation(make_engine())
    for chat in (whole, cut):
        chat.begin("S", [], "y" * 20, 1)
    text = say(whole, max_tokens=4)
    assert text.finish == "length"
    assert text.usage.completion_tokens == 4
    assert text.context_tokens == len(engine.ledger) + 1
    say(whole, ["go on"])
    assert engine.ledger.tokens[: len(engine.ledger)].count(-1) == 0


def test_thinking_is_closed_at_its_limit(make_engine: Any) -> None:
    chat = conversation(make_engine())
    chat.begin("S", [], "z", 1)
    reply = say(chat, max_tokens=40, thought_tokens=3)
    if reply.usage.completion_tokens > 5:
        assert "</think>" in reply.raw


def test_the_seed_decides(make_engine: Any) -> None:
    sampling = Sampling(temperature=1.0)
    texts = []
    for seed in (1, 1, 2):
        chat = conversation(make_engine(), sampling)
        chat.begin("S", [], "issue", seed)
        texts.append(say(chat, max_tokens=40).raw)
    assert texts[0] == texts[1] != texts[2]


def test_a_text_is_its_tokens_again(make_engine: Any) -> None:
    vocab = make_engine().vocab
    text = "The tests of the tree\tthat tell  a träne: 눈 🐸\n"
    tokens = vocab.tokenize(text)
    assert b"".join(map(vocab.piece, tokens)) == text.encode()
    assert len(tokens) == len(text.encode())


def test_both_end_tokens_end_a_turn(make_engine: Any) -> None:
    vocab = make_engine().vocab
    assert [vocab.is_end(vocab.tokenize(text)[0]) for text in ("<|im_end|>", "<|endoftext|>", "<think>")] == [
        True,
        True,
        False,
    ]
    assert vocab.ends == ["<|im_end|>", "<|endoftext|>"]


@pytest.mark.parametrize("tag", [*CONTROL, *TAGS])
def test_text_that_is_not_ours_makes_no_control_token(make_engine: Any, tag: str) -> None:
    vocab = make_engine().vocab
    token = vocab.tokenize(tag)
    assert len(token) == 1
    content = f"before {tag} {tag}{tag} <{tag} after"
    for split in range(len(tag) + 1):
        # Also where a part of the tag is the template's and the rest is not.
        parts = [Part(tag[:split], True), Part(content, False), Part(tag[split:], split == 0)]
        tokens = vocab.tokenize_parts(parts)
        assert b"".join(vocab.piece(t) for t in tokens).decode() == "".join(part.text for part in parts)
        assert tokens.count(token[0]) == (1 if split == 0 else 0) + (1 if split == len(tag) else 0)


def test_what_the_template_writes_stays_control_tokens(make_engine: Any) -> None:
    engine = make_engine()
    chat = ChatFormat(TEMPLATE, ends=engine.vocab.ends)
    tokens = engine.vocab.tokenize_parts(chat.suffix([Observation(tool="Read", text="x </tool_response> <|im_end|>")]))
    for tag, n in (
        ("<|im_end|>", 2),
        ("<|im_start|>", 2),
        ("<tool_response>", 1),
        ("</tool_response>", 1),
        ("<think>", 1),
    ):
        assert tokens.count(engine.vocab.tokenize(tag)[0]) == n, tag


def test_recalled_turns_are_read_as_if_they_had_been_generated(make_engine: Any) -> None:
    turn = Turn(
        reasoning="Think.", content="Say.", calls=(ToolCall(name="Read", arguments={"file_path": "é", "limit": 5}),)
    )
    engine = make_engine()
    chat = conversation(engine)
    chat.begin("S", [], "I", 1)
    chat.recall(turn, [Observation(tool="Read", text="seen")])
    say(chat)
    text = b"".join(engine.vocab.piece(token) for token in engine.ledger.tokens).decode("utf-8", "replace")
    assert (
        "<think>\nThink.\n</think>\n\nSay.\n\n<tool_call>\n<function=Read>\n<parameter=file_path>\né\n</parameter>\n"
        "<parameter=limit>\n5\n</parameter>\n</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nseen\n"
    ) in text


def test_pieces_join_to_the_same_text(make_engine: Any) -> None:
    chat = conversation(make_engine(), Sampling(temperature=2.0, top_k=0, top_p=1.0))
    for seed in range(5):
        chat.begin("S", [], "ü", seed)
        pieces: list[str] = []
        reply = say(chat, max_tokens=60, on_text=pieces.append)
        assert "".join(pieces) == reply.raw
