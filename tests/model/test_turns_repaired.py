"""Turns under control on a real llama.cpp: what a script samples leaves the structure, and the turn is whole again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.chat_format import ChatFormat
from agent.model.sampling import Sampling
from agent.model.tool_calls import parse
from agent.types import Observation, Usage
from tests.model.tiny import TEMPLATE
from tests.property.test_call_guard import TAGS

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("require_model")]

END = "<|im_end|>"
READ = "<tool_call>\n<function=Read>\n<parameter=file_path>\na.py\n</parameter>\n</function>\n</tool_call>"


class Script:
    """Samples the tokens of a text, and behind them the end of the turn; the decoding is real."""

    def __init__(self, tokens: list[int], end: int) -> None:
        self.tokens, self.end = list(tokens), end

    def sample(self, context: Any, row: int = -1) -> int:
        return self.tokens.pop(0) if self.tokens else self.end

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def model(tiny_path: Path) -> Iterator[Any]:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: run `make setup`")
    from agent.model.engine_context import LoadedModel

    loaded = LoadedModel(str(tiny_path), n_gpu_layers=None, repack=True, on_progress=lambda _: True)
    yield loaded
    loaded.close()


@pytest.fixture
def engine(model: Any) -> Iterator[Any]:
    yield from make_engine(model)


@pytest.fixture(scope="module")
def shared_engine(model: Any) -> Iterator[Any]:
    """For many examples: its counts are those of all of them."""
    yield from make_engine(model)


def make_engine(model: Any) -> Iterator[Any]:
    from agent.model.engine import Engine

    made = Engine(model, n_ctx=4096, n_threads=1)
    yield made
    made.close()


def begin(engine: Any, *, repairs: bool = True, sampling: Sampling | None = None, seed: int = 1) -> Any:
    from agent.model.engine_chat import Conversation

    chat = ChatFormat(TEMPLATE, bos=engine.vocab.bos, ends=engine.vocab.ends)
    made = Conversation(engine, chat, sampling or Sampling(temperature=0.0), repairs_calls=repairs)
    made.begin("System.", [], "The issue.", seed)
    return made


def play(chat: Any, engine: Any, text: str, **more: Any) -> Any:
    """One turn in which the model says `text`, token by token, and then ends."""
    chat._sampler = Script(engine.vocab.tokenize(text), engine.vocab.tokenize(END)[0])
    options = {
        "observations": [],
        "max_tokens": 2000,
        "thought_tokens": None,
        "on_text": lambda _: None,
        "on_prefill": lambda _done, _total: None,
    }
    return chat.generate(**(options | more))


def logits(engine: Any) -> Any:
    from agent.model.engine_library import lib

    pointer = lib.llama_get_logits_ith(engine._context.raw, -1)
    return np.ctypeslib.as_array(pointer, shape=(engine.vocab.n_tokens,)).copy()


def call(name: str, **arguments: str) -> str:
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


THINK = "Look.\n</think>\n\n"
DEVIATIONS = {
    # what the model says: (the turn that comes of it, the kinds of what was forced)
    "name in another case": (
        THINK + "<tool_call>\n<function=read>\n<parameter=file_path>\na.py\n</parameter>\n</function>\n</tool_call>",
        THINK + READ,
        ["name"],
    ),
    "name with a slip": (THINK + READ.replace("Read", "Raed"), THINK + READ, ["name"]),
    "name with a suffix": (THINK + READ.replace("Read", "read_file"), THINK + READ, ["name"]),
    "name of another tool stays": (THINK + READ.replace("Read", "Search"), THINK + READ.replace("Read", "Search"), []),
    "name with a wrong letter stays": (THINK + READ.replace("Read", "Head"), THINK + READ.replace("Read", "Head"), []),
    "no closing tag of the call": (THINK + READ.removesuffix("\n</tool_call>"), THINK + READ, ["close"]),
    "no closing tag of the function": (
        THINK + READ.removesuffix("\n</function>\n</tool_call>"),
        THINK + READ,
        ["close"],
    ),
    "no closing tag at all": (THINK + READ[: READ.index("\n</parameter>")], THINK + READ, ["close"]),
    "a closing tag cut": (THINK + READ[: READ.index("ameter>\n</function>")], THINK + READ, ["close"]),
    "the value without its end": (THINK + READ.replace("\n</parameter>", ""), THINK + READ, ["close"]),
    "only the call closed": (THINK + READ.replace("\n</parameter>\n</function>", ""), THINK + READ, ["close"]),
    "a parameter open when the next opens": (
        THINK + call("Edit", file_path="a", old_string="x", new_string="y").replace("x\n</parameter>", "x"),
        THINK + call("Edit", file_path="a", old_string="x", new_string="y"),
        ["parameter"],
    ),
    "a call in a thought": ("Look.\n" + READ, "Look.\n</think>\n\n" + READ, ["thought"]),
    "a call in the middle of a thought's line": ("Look: " + READ, "Look: \n</think>\n\n" + READ, ["thought"]),
    "no name": (
        THINK + "<tool_call>\n<function=>\n</function>\n</tool_call>",
        THINK + "<tool_call>\n<function=invalid>\n</function>\n</tool_call>",
        ["name"],
    ),
    "no function": (
        THINK + "<tool_call>\n?Read>\n<parameter=file_path>\na.py\n</parameter>\n</function>\n</tool_call>",
        THINK + READ,
        ["structure"],
    ),
    "text in place of a parameter": (
        THINK + READ.replace("<parameter=file_path>", "!file_path>"),
        THINK + READ,
        ["structure"],
    ),
    "no end of the function": (
        THINK + "<tool_call>\n<function=Glob>\n</tool_call>",
        THINK + "<tool_call>\n<function=Glob>\n</function>\n</tool_call>",
        ["close"],
    ),
}


@pytest.mark.parametrize("what", DEVIATIONS)
def test_each_deviation_is_put_right_where_it_happens(engine: Any, what: str) -> None:
    said, expected, kinds = DEVIATIONS[what]
    chat = begin(engine)
    shown: list[str] = []
    reply = play(chat, engine, said, on_text=shown.append)
    assert reply.raw == expected
    assert [item.kind for item in reply.forced] == kinds
    assert reply.finish == "stop"
    assert not parse(reply.raw).problems and len(parse(reply.raw).calls) == 1
    assert "".join(shown) == reply.raw  # what is not sure yet is not shown
    assert all(item.n_tokens > 0 for item in reply.forced)
    # The ledger has the tokens of the turn, and counts what went again apart.
    vocab = engine.vocab
    assert b"".join(map(vocab.piece, engine.ledger.tokens)).decode().endswith(expected)
    assert reply.usage.evaluated_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens - 1
    spied = logits(engine)
    from agent.model.engine import Engine

    fresh = Engine(engine.model, n_ctx=4096, n_threads=1)
    fresh.read(engine.ledger.tokens)
    assert np.abs(logits(fresh) - spied).max() < 1e-3
    fresh.close()


def test_without_repairs_the_turn_is_what_the_model_said(engine: Any) -> None:
    for said, _, _ in DEVIATIONS.values():
        reply = play(begin(engine, repairs=False), engine, said)
        assert (reply.raw, reply.forced) == (said, ())


VALUES = {
    "markup": "<div class='x'>\n<parameter>\n</param>\n<br/>\n",
    "the format itself": "Use it so:\n" + call("Read", file_path="x") + "\nand so on",
    "a closing tag with text behind": "a </parameter> b\n</function> c\n</tool_call> d",
    "a thought": "<think>\nno\n</think>\n",
    "its own key": "x\n<parameter=content>\ny",
    "many lines alike": "0,0,0\n" * 400,
    "an end mark in words": "<|im_end|",
    "characters": "é🐸\u200b\r\n\tx",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", VALUES)
def test_a_value_is_never_touched(engine: Any, what: str) -> None:
    said = THINK + call("Write", file_path="a.md", content=VALUES[what])
    reply = play(begin(engine), engine, said, max_tokens=4000)
    assert (reply.raw, reply.forced) == (said, ())
    assert dict(parse(reply.raw).calls[0].arguments) == {"file_path": "a.md", "content": VALUES[what]}


def test_both_end_tokens_close_what_is_open(engine: Any) -> None:
    for end in (END, "<|endoftext|>"):
        chat = begin(engine)
        chat._sampler = None
        chat._sampler = Script(engine.vocab.tokenize(THINK + READ[:-12]), engine.vocab.tokenize(end)[0])
        reply = chat.generate(
            [], max_tokens=500, thought_tokens=None, on_text=lambda _: None, on_prefill=lambda *_: None
        )
        assert reply.raw == THINK + READ and reply.finish == "stop"


def test_the_next_turn_reads_on_behind_what_was_forced(engine: Any) -> None:
    chat, total = begin(engine), Usage()
    for said in ("a\n</think>\n\n" + READ.replace("Read", "read"), THINK + READ[:-12], "Done?\n" + READ):
        reply = play(chat, engine, said, observations=[] if total == Usage() else [Observation(tool="Read", text="x")])
        total += reply.usage
    assert total.evaluated_tokens == len(engine.ledger) == reply.context_tokens - 1
    assert total.redecoded_tokens is not None and total.draft_rejected_tokens
    text = b"".join(map(engine.vocab.piece, engine.ledger.tokens)).decode()
    assert text.count("<function=Read>") == 3 and text.count("</tool_call><|im_end|>") == 2


def test_a_thought_ends_at_its_limit_and_the_call_follows(engine: Any) -> None:
    reply = play(begin(engine), engine, "word " * 30 + READ, thought_tokens=20)
    assert reply.raw.startswith(("word " * 4) + "\n</think>\n\n")
    assert [item.kind for item in reply.forced] == ["thought_limit"]
    assert parse(reply.raw).calls[0].name == "Read"


def test_without_a_limit_the_thought_leaves_a_quarter_of_the_turn(engine: Any) -> None:
    reply = play(begin(engine), engine, "x" * 5000, max_tokens=400)
    assert reply.raw.index("\n</think>\n\n") == 300
    assert reply.finish == "length" and reply.usage.completion_tokens <= 401


LOOP = "Wait, maybe the parser is wrong here.\nActually, let me look at it again.\n"


@pytest.mark.slow
def test_a_thought_in_circles_is_closed_and_an_answer_in_circles_is_stopped(engine: Any) -> None:
    reply = play(begin(engine), engine, LOOP * 60, max_tokens=4000)
    assert [item.kind for item in reply.forced] == ["thought_repeats", "answer_repeats"]
    assert reply.finish == "length"
    closed = reply.raw.index("</think>")
    assert 1500 <= closed <= 1700 and len(reply.raw) - closed <= 1700


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 2**31), st.floats(0.8, 3.0))
def test_whatever_a_random_model_says_the_calls_can_be_read(shared_engine: Any, seed: int, temperature: float) -> None:
    chat = begin(shared_engine, sampling=Sampling(temperature=temperature, top_k=0, top_p=1.0), seed=seed)
    reply = chat.generate(
        [], max_tokens=300, thought_tokens=40, on_text=lambda _: None, on_prefill=lambda _done, _total: None
    )
    chat.close()
    if reply.finish == "stop":
        assert not [problem for problem in parse(reply.raw).problems if problem.call is None], reply.raw
    assert reply.usage.completion_tokens <= 300 + 30  # what is forced at the end may go beyond


@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(TAGS, max_size=25).map("".join))
def test_any_stream_of_tags_gives_calls_that_can_be_read(shared_engine: Any, said: str) -> None:
    reply = play(begin(shared_engine), shared_engine, said, max_tokens=3000)
    if reply.finish == "stop":
        assert not [problem for problem in parse(reply.raw).problems if problem.call is None], (said, reply.raw)
