"""Drafts with a real llama.cpp: they change the time that a turn takes, never the turn."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.model.chat_format import ChatFormat
from agent.model.locate import locate
from agent.model.sampling import Sampling
from agent.model.speculation import BatchCosts
from agent.types import Observation
from quant import synth
from quant.synth_shape import find_shape
from tests.model.test_turns_repaired import DEVIATIONS, END, Script
from tests.model.tiny import TEMPLATE

pytestmark = pytest.mark.model

FREE = BatchCosts(by_size={1: 1.0, 8: 1.0})
"""Drafts as long as they can be: what is compared is the text."""


@pytest.fixture(scope="module")
def models(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Tiny in f32; tiny with 8 bits, where batches of another shape are another rounding; the bundled model, which
    really copies."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: run `make setup`")
    from agent.model.engine_context import LoadedModel

    folder = tmp_path_factory.mktemp("drafts")
    paths = {"tiny": str(tiny_path), "tadpole": locate(None).path}
    paths["q8_0"] = str(synth.write_model(folder / "q8_0.gguf", find_shape("tiny"), form="q8_0", seed=3))
    made = {
        name: LoadedModel(path, n_gpu_layers=0, repack=True, on_progress=lambda _: True) for name, path in paths.items()
    }
    yield made
    for model in made.values():
        model.close()


@pytest.fixture
def make_engine(models: dict[str, Any]) -> Iterator[Any]:
    from agent.model.engine import Engine
    from agent.model.engine_context import Tuning

    made: list[Any] = []

    def make(name: str = "tiny", *, n_drafted: int = 7, n_ctx: int = 4096, **more: Any) -> Any:
        tuning = Tuning(n_rs_seq=n_drafted, micro_batch_tokens=256)
        costs = FREE if n_drafted else None
        made.append(Engine(models[name], n_ctx=n_ctx, n_threads=1, tuning=tuning, costs=costs, **more))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def table(engine: Any, row: int = -1) -> Any:
    from agent.model.engine_library import lib

    pointer = lib.llama_get_logits_ith(engine._context.raw, row)
    return np.ctypeslib.as_array(pointer, shape=(engine.vocab.n_tokens,)).copy()


def conversation(engine: Any, *, repairs: bool = True, sampling: Sampling | None = None) -> Any:
    from agent.model.engine_chat import Conversation

    chat = ChatFormat(TEMPLATE, bos=engine.vocab.bos, ends=engine.vocab.ends)
    return Conversation(engine, chat, sampling or Sampling(temperature=0.0), repairs_calls=repairs)


def say(chat: Any, observations: list[str] | None = None, **more: Any) -> Any:
    given = [Observation(tool="Read", text=text) for text in observations or []]
    options = {
        "max_tokens": 100,
        "thought_tokens": None,
        "on_text": lambda _: None,
        "on_prefill": lambda _done, _total: None,
    }
    return chat.generate(given, **(options | more))


def decoded(engine: Any) -> list[int]:
    """The sizes of all decodes from now on."""
    sizes: list[int] = []
    decode = engine._context.decode

    def spy(tokens: Any, position: int, **more: Any) -> None:
        decode(tokens, position, **more)
        sizes.append(len(tokens))

    engine._context.decode = spy
    return sizes


class Forced:
    """Says the tokens that it is told, whatever the logits are, and notes what greedy would have said."""

    def __init__(self, engine: Any, tokens: list[int]) -> None:
        self._engine, self._tokens = engine, list(tokens)
        self.tables: list[Any] = []

    def sample(self, context: Any, row: int = -1) -> int:
        self.tables.append(table(self._engine, row))
        return self._tokens.pop(0)


@dataclass
class Compared:
    """How a text was read with and without drafts; `noise` is the largest difference of any logit."""

    n_tokens: int
    n_accepted: int
    noise: float
    n_other: int
    widest_gap: float


def compare(make_engine: Any, name: str, prompt: list[int], text: list[int]) -> Compared:
    """Both ways the same text is said, so that one place where they differ hides no other."""
    from agent.model.engine_turn import generate_turn
    from agent.model.steering import Steering

    tables, accepted = [], 0
    for n_drafted in (0, 7):
        engine = make_engine(name, n_drafted=n_drafted, n_ctx=len(prompt) + len(text) + 64)
        engine.read(prompt)
        sampler: Any = Forced(engine, [*text, engine.vocab.tokenize(END)[0]])
        made = generate_turn(engine, sampler, Steering({}, repairs=False), max_tokens=len(text) + 1)
        assert list(made.tokens) == text
        assert engine.ledger.tokens == [*prompt, *text]
        assert engine.ledger.evaluated_tokens == len(prompt) + len(text)
        accepted = engine.accepted_tokens
        tables.append(np.stack(sampler.tables))
    plain, drafted = tables
    best, other = plain.argmax(1), drafted.argmax(1)
    places = np.flatnonzero(best != other)
    gaps = [float(plain[i, best[i]] - plain[i, other[i]]) for i in places]
    return Compared(
        n_tokens=len(text),
        n_accepted=accepted,
        noise=float(np.abs(plain - drafted).max()),
        n_other=len(places),
        widest_gap=max(gaps, default=0.0),
    )


def copied(vocab: Any, seed: int, n_lines: int) -> tuple[list[int], list[int]]:
    """A prompt with source text, and a text that repeats it with changes."""
    rng = random.Random(seed)
    numbers = [rng.randrange(40) for _ in range(n_lines)]
    lines = [f"{' ' * (4 * (n % 3))}value_{n} = compute({n % 9})" for n in numbers]
    again = [line if rng.random() < 0.9 else line.replace("compute", "other") for line in lines]
    return vocab.tokenize("\n".join(f"{n}. {line}" for n, line in enumerate(lines))), vocab.tokenize("\n".join(again))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["tiny", "q8_0", "tadpole"])
def test_greedy_is_the_same_but_where_two_tokens_are_as_good(
    make_engine: Any, models: dict[str, Any], name: str, record_property: Any
) -> None:
    """Over thousands of tokens, against a noise that was measured on other texts."""
    vocab = models[name].vocab
    noise = max(compare(make_engine, name, *copied(vocab, seed, 40)).noise for seed in (1000, 1001))
    found = [compare(make_engine, name, *copied(vocab, seed, 60)) for seed in range(4)]
    n_tokens, n_other = sum(one.n_tokens for one in found), sum(one.n_other for one in found)
    record_property("places where greedy differs", f"{n_other} of {n_tokens}, noise {noise:g}")
    assert n_tokens >= 2500
    assert all(one.n_accepted > one.n_tokens / 2 for one in found)
    assert max(one.widest_gap for one in found) <= 2 * noise  # both tokens may move
    assert n_other <= n_tokens / 200


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "temperature"), [("tiny", 0.0), ("tiny", 0.7), ("tadpole", 0.0)])
def test_a_conversation_is_the_same_with_and_without(make_engine: Any, name: str, temperature: float) -> None:
    """Several turns, with the same seed: texts, ends, and what was evaluated."""
    sampling = Sampling(temperature=temperature)
    said, decodes = [], []
    for n_drafted in (0, 7):
        engine = make_engine(name, n_drafted=n_drafted)
        sizes = decoded(engine)
        turns = []
        for seed in range(2):
            chat = conversation(engine, sampling=sampling)
            chat.begin("Copy.", [], "def total(items):\n    return sum(items)\n" * 5, seed)
            observations: list[str] = []
            for _ in range(3):
                reply = say(chat, observations)
                turns.append((reply.raw, reply.finish, reply.usage.evaluated_tokens, reply.context_tokens))
                observations = [f"{reply.raw}\n{reply.raw}"[:200]]
            chat.close()
        ledger = engine.ledger
        assert sum(sizes) == ledger.evaluated_tokens + ledger.redecoded_tokens + ledger.rejected_tokens
        said.append(turns)
        decodes.append(len(sizes))
    assert said[0] == said[1]
    assert decodes[1] < decodes[0]


def test_what_read_showed_is_drafted_without_its_line_numbers(make_engine: Any) -> None:
    lines = [f"    result_{n} = compute({n}, {7 * n % 11})" for n in range(30)]
    text = "Look.\n</think>\n\n" + "\n".join(["def f():", *lines[:15], "    # a change", *lines[16:]])
    engine = make_engine("tadpole")
    chat = conversation(engine)
    chat.begin("S", [], "Fix it.", 1)
    say(chat, max_tokens=3)
    shown = "\n".join(f"{n}. {line}" for n, line in enumerate(["def f():", *lines], 1))
    tokens = engine.vocab.tokenize(text)
    chat._sampler = Script(tokens, engine.vocab.tokenize(END)[0])
    sizes = decoded(engine)
    reply = say(chat, [f"a.py\n{shown}"], max_tokens=2000)
    assert reply.raw == text
    assert sum(size <= 8 for size in sizes) < len(tokens) / 3
    assert reply.usage.draft_rejected_tokens < len(tokens) / 4
    assert len(engine._sources) > 4 * len(tokens) / 2
    chat.begin("S", [], "Another.", 1)
    assert engine._sources == b""


@pytest.mark.slow
def test_each_repair_is_the_same_with_and_without(make_engine: Any) -> None:
    plain, drafting = make_engine(n_drafted=0), make_engine()
    n_accepted = 0
    for text, wanted, kinds in DEVIATIONS.values():
        replies = []
        for engine in (plain, drafting):
            chat = conversation(engine)
            chat.begin("System.", [], f"Say this: {wanted} {text}", 1)
            chat._sampler = Script(engine.vocab.tokenize(text), engine.vocab.tokenize(END)[0])
            replies.append(say(chat, max_tokens=2000))
        assert (replies[1].raw, replies[1].forced) == (replies[0].raw, replies[0].forced) == (wanted, replies[0].forced)
        assert [item.kind for item in replies[1].forced] == kinds
        assert drafting.ledger.tokens == plain.ledger.tokens
        assert np.abs(table(drafting, drafting._row) - table(plain, plain._row)).max() < 1e-3
        n_accepted += drafting.accepted_tokens
    assert n_accepted > 500


@pytest.mark.parametrize("limit", [{"max_tokens": 37}, {"thought_tokens": 5}, {"max_tokens": 1}])
def test_limits_end_a_turn_at_the_same_token(make_engine: Any, limit: Any) -> None:
    replies = []
    for n_drafted in (0, 7):
        engine = make_engine(n_drafted=n_drafted)
        chat = conversation(engine)
        text = "word after word " * 20
        chat.begin("System.", [], text, 1)
        chat._sampler = Script(engine.vocab.tokenize(text), engine.vocab.tokenize(END)[0])
        first = say(chat, **limit)
        second = say(chat, ["seen"], max_tokens=20)
        replies.append((first.raw, first.finish, first.forced, first.usage.completion_tokens, second.raw))
        assert engine.ledger.redecoded_tokens == 0
    assert replies[0] == replies[1]


def test_the_context_is_filled_to_its_last_token(make_engine: Any) -> None:
    replies = []
    for n_drafted in (0, 7):
        engine = make_engine(n_drafted=n_drafted, n_ctx=256)
        chat = conversation(engine)
        chat.begin("S", [], "again " * 20, 1)
        chat._sampler = Script(engine.vocab.tokenize("again " * 100), engine.vocab.tokenize(END)[0])
        reply = say(chat, max_tokens=10_000)
        replies.append((reply.raw, reply.finish, reply.context_tokens))
    assert replies[0] == replies[1]
    assert replies[0][1:] == ("length", 256)


def test_going_back_behind_drafts_gives_what_a_fresh_reading_gives(make_engine: Any) -> None:
    """A checkpoint, a mark and a whole state that were taken where a draft had been: none of it is in them."""
    prompt = [i % 50 for i in range(300)]
    for n_wrong in range(1, 8):
        engine, fresh = make_engine(), make_engine(n_drafted=0)
        engine.begin_turn()
        engine.read(prompt)
        fresh.read(prompt)
        engine.put(0, most_ahead=7)
        for token in range(1, 8 - n_wrong):
            engine.put(token, most_ahead=7)
        assert len(engine._ahead) == n_wrong
        mark = engine.mark()
        assert engine._ahead == [] and engine.ledger.rejected_tokens == n_wrong
        n_marked = len(engine.ledger)
        engine.read([77, 78])
        engine.go_back(n_marked, mark)
        engine.save()
        engine.read([5])
        fresh.read(engine.ledger.tokens[len(prompt) :])
        assert engine.ledger.tokens == fresh.ledger.tokens
        assert np.abs(table(engine) - table(fresh)).max() < 1e-3
        assert engine.rewind([*engine.ledger.tokens[:-1], 6]) == n_marked
        engine.read([6])
        other = make_engine(n_drafted=0)
        other.read(engine.ledger.tokens)
        assert np.abs(table(engine) - table(other)).max() < 1e-3


def test_more_than_the_last_decode_is_never_taken_back(make_engine: Any) -> None:
    """llama.cpp would say yes, and the state would be wrong."""
    engine = make_engine(n_drafted=3)
    context = engine._context
    engine.read(list(range(40)))
    assert not context.take_back(4)  # of forty, but three states are kept
    context.clear()
    context.decode([1, 2, 3], 0)
    assert not context.take_back(3)
    context.clear()
    context.decode([1, 2, 3, 4], 0)
    assert context.take_back(2)
    assert not context.take_back(1)  # of what is left no states are kept


def test_where_nothing_can_be_taken_back_drafting_ends_and_the_turn_is_right(make_engine: Any) -> None:
    replies = []
    for n_drafted in (0, 7):
        engine = make_engine(n_drafted=n_drafted)
        if n_drafted:
            engine._context.take_back = lambda _n: False
        chat = conversation(engine)
        chat.begin("S", [], "one two three one two four " * 8, 1)
        text = "one two three one two three one two four one"
        chat._sampler = Script(engine.vocab.tokenize(text), engine.vocab.tokenize(END)[0])
        replies.append(say(chat).raw)
        if n_drafted:
            assert engine._most_drafted == 0
            assert engine.drafted_tokens <= 7 + engine.accepted_tokens
    assert replies[0] == replies[1]


@pytest.mark.parametrize("at", [0, 3])
def test_an_abort_within_a_draft_poisons_nothing(make_engine: Any, at: int) -> None:
    from agent.model.engine_context import DecodeAbortedError

    expected = make_engine(n_drafted=0)
    text = "def total(items):\n    return sum(items)\n" * 6
    chats = []
    for engine in (expected, make_engine()):
        chat = conversation(engine)
        chat.begin("S", [], text, 1)
        chats.append((engine, chat))
    whole = say(chats[0][1], max_tokens=120)
    engine, chat = chats[1]
    decode, n_batches = engine._context.decode, 0

    def cut(tokens: Any, position: int, **more: Any) -> None:
        nonlocal n_batches
        n_batches += bool(more)
        if n_batches == at + 1:
            timer = threading.Timer(0.0, engine.abort.set)
            timer.start()
            timer.join()
        decode(tokens, position, **more)

    engine._context.decode = cut
    with pytest.raises(DecodeAbortedError):
        say(chat, max_tokens=120)
    engine._context.decode = decode
    engine.abort.clear()
    again = say(chat, max_tokens=120)
    assert again.raw == whole.raw
    assert engine.ledger.tokens == expected.ledger.tokens
    assert again.usage.evaluated_tokens == whole.usage.evaluated_tokens


def test_ten_answers_to_one_question_are_drafted_in_the_same_way(make_engine: Any) -> None:
    engine = make_engine("tadpole")
    chat = conversation(engine, sampling=Sampling(temperature=0.0))
    chat.begin("S", [], "def total(items):\n    return sum(items)\n" * 5, 1)
    answers = set()
    question = list(chat._pending)
    for _ in range(10):
        before = (engine.drafted_tokens, engine.accepted_tokens)
        reply = say(chat, max_tokens=80)
        answers.add((reply.raw, engine.drafted_tokens - before[0], engine.accepted_tokens - before[1]))
        chat._ask_again(question)
    assert len(answers) == 1


def test_a_kept_beginning_serves_an_engine_that_drafts(make_engine: Any, tmp_path: Path) -> None:
    from agent.model.prefixes import PrefixStore

    tokens = [i % 100 for i in range(200)]
    first = make_engine(prefixes=PrefixStore(tmp_path, {"n_rs_seq": 7}))
    first.rewind(tokens, n_prefix=150)
    first.read(tokens[:150])
    first.save(lasting=True)
    assert first._prefixes is not None
    first._prefixes.wait()
    second = make_engine(prefixes=PrefixStore(tmp_path, {"n_rs_seq": 7}))
    assert second.rewind(tokens, n_prefix=150) == 150
    for engine in (first, second):
        engine.begin_turn()
        engine.read(tokens[150:])
        engine.put(0, most_ahead=7)
        engine.put(99, most_ahead=7)
    assert first.ledger.rejected_tokens == second.ledger.rejected_tokens > 0
    assert np.abs(table(first, first._row) - table(second, second._row)).max() < 1e-3
