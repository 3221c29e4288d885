"""What keeping turns under control costs: the same turns of the bundled model, generated with and without repairs."""

from __future__ import annotations

import time

from agent.model.chat_format import ChatFormat
from agent.model.engine import Engine
from agent.model.engine_chat import Conversation
from agent.model.engine_context import LoadedModel
from agent.model.gguf_header import read_header
from agent.model.locate import locate
from agent.model.model_facts import read_facts
from agent.model.sampling import Sampling
from agent.tools.schemas import TOOLS
from tests.bench.table import Row, paired_medians, reported

N_TURNS = 4
TOKENS_PER_TURN = 200
ROUNDS = 5


def rows() -> list[Row]:
    """Tokens a second in turn, so that a machine that slows down slows both."""
    file = locate(None)
    facts = read_facts(read_header(file.path), is_bundled=file.kind == "demonstration")
    model = LoadedModel(file.path, n_gpu_layers=0, repack=False, on_progress=lambda _: True)
    engine = Engine(model, n_ctx=4096, n_threads=1)
    chat_format = ChatFormat(facts.template, bos=model.vocab.bos, ends=model.vocab.ends)

    def speed(repairs: bool) -> float:
        chat = Conversation(engine, chat_format, Sampling(temperature=1.0), repairs_calls=repairs)
        n_tokens, seconds = 0, 0.0
        for seed in range(N_TURNS):
            chat.begin(facts.system_prompt or "Fix it.", facts.tools or TOOLS, "The tests fail.", seed)
            begun = time.perf_counter()
            reply = chat.generate(
                [],
                max_tokens=TOKENS_PER_TURN,
                thought_tokens=None,
                on_text=lambda _: None,
                on_prefill=lambda _done, _total: None,
            )
            seconds += time.perf_counter() - begun
            n_tokens += reply.usage.completion_tokens
        chat.close()
        return n_tokens / seconds

    plain, repaired = paired_medians([lambda: speed(False), lambda: speed(True)], ROUNDS)
    engine.close()
    model.close()
    cost_us = 1e6 * (1 / repaired - 1 / plain)
    return [
        reported("turns/without-repairs", plain, "tokens/s", "the bundled model, prompts read included"),
        reported("turns/with-repairs", repaired, "tokens/s", f"{plain:.0f} tokens/s without"),
        reported("turns/cost-of-repairs", cost_us, "us/token", "a token of the 4B takes about 100,000"),
    ]
