"""What the engine does beside decoding, and that nothing is read twice: counts, and shares of one run's time."""

from __future__ import annotations

import time
from typing import Any, Self

from agent.model.chat_format import ChatFormat
from agent.model.engine import Engine
from agent.model.engine_chat import Conversation
from agent.model.engine_context import Context, LoadedModel
from agent.model.gguf_header import read_header
from agent.model.locate import locate
from agent.model.model_facts import read_facts
from agent.tools.schemas import TOOLS
from agent.types import Observation
from tests.bench.table import Row, at_most, reported

N_TURNS = 20
N_CTX = 8192
TOKENS_PER_TURN = 120
SOURCE = "\n".join(f"{n}. value_{n} = compute({n}, other_{n})" for n in range(1, 13))


class DecodeClock:
    """Adds up the time inside `llama_decode` and how often it was called."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.n_calls = 0
        self._decode = Context.decode

    def __enter__(self) -> Self:
        clock = self

        def timed(context: Context, tokens: Any, position: int) -> None:
            begun = time.perf_counter()
            try:
                clock._decode(context, tokens, position)
            finally:
                clock.seconds += time.perf_counter() - begun
                clock.n_calls += 1

        Context.decode = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Context.decode = self._decode  # type: ignore[method-assign]


def rows() -> list[Row]:
    """A conversation of 20 turns on the bundled model; what it answers does not matter here."""
    file = locate(None)
    facts = read_facts(read_header(file.path), is_bundled=file.kind == "demonstration")
    model = LoadedModel(file.path, n_gpu_layers=0, repack=False, on_progress=lambda _: True)
    engine = Engine(model, n_ctx=N_CTX, n_threads=1)
    chat = Conversation(engine, ChatFormat(facts.template, bos=model.vocab.bos, ends=model.vocab.ends), facts.sampling)
    with DecodeClock() as clock:
        begun = time.perf_counter()
        chat.begin(facts.system_prompt or "Fix the issue.", facts.tools or TOOLS, "The tests fail.", 1)
        observations: list[Observation] = []
        evaluated = made = n_context = 0
        for turn in range(N_TURNS):
            reply = chat.generate(
                observations,
                max_tokens=TOKENS_PER_TURN,
                thought_tokens=None,
                on_text=lambda _: None,
                on_prefill=lambda _done, _total: None,
            )
            evaluated += reply.usage.evaluated_tokens or 0
            made += reply.usage.completion_tokens
            n_context = reply.context_tokens
            observations = [Observation(tool="Read", text=f"source_{turn}.py\n{SOURCE}")]
        seconds = time.perf_counter() - begun
    chat.close()
    engine.close()
    model.close()
    return [
        at_most(
            "engine/evaluated-20-turns", evaluated / (n_context - 1), "x", 1.0, "each token of the conversation once"
        ),
        reported("engine/outside-decode", 100 * (1 - clock.seconds / seconds), "%", "time of the 20 turns"),
        reported("engine/decode-calls-per-token", clock.n_calls / made, "calls"),
        reported("engine/generated", made / seconds, "tokens/s", "prompts read included"),
    ]
