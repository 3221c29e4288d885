"""A chat template that is not Qwen3.5's is rendered as the file has it, over the same ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.model.chat_format import ChatFormat
from agent.model.sampling import Sampling
from agent.types import Observation, Usage
from tests.model.test_turns_repaired import READ, play
from tests.model.tiny import TEMPLATE

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("require_model")]

OTHER = (
    TEMPLATE.replace("<|im_start|>assistant\\n<think>\\n", "[bot] ")
    .replace("<|im_start|>", "[turn] ")
    .replace('"\\n</think>\\n\\n"', '"\\n\\n"')
    .replace("<|im_end|>", "<|endoftext|>")
)


@pytest.fixture
def engine(tiny_path: Path) -> Iterator[Any]:
    from agent.model.engine import Engine
    from agent.model.engine_context import LoadedModel

    model = LoadedModel(str(tiny_path), n_gpu_layers=None, repack=True, on_progress=lambda _: True)
    made = Engine(model, n_ctx=2048, n_threads=1)
    yield made
    made.close()
    model.close()


def test_the_frame_is_the_templates_and_nothing_is_read_twice(engine: Any) -> None:
    from agent.model.engine_chat import Conversation

    chat_format = ChatFormat(OTHER, bos=engine.vocab.bos, ends=engine.vocab.ends)
    assert not chat_format.opens_thinking
    chat = Conversation(engine, chat_format, Sampling(temperature=0.0))
    chat.begin("System.", [], "The issue.", 1)
    total, observations = Usage(), []
    for said in (READ, READ[:-12], READ.replace("Read", "read")):
        reply = play(chat, engine, said, observations=observations)
        assert reply.raw == READ
        total += reply.usage
        observations = [Observation(tool="Read", text="a.py\n1. x")]
    assert total.evaluated_tokens == len(engine.ledger) == reply.context_tokens - 1
    text = b"".join(map(engine.vocab.piece, engine.ledger.tokens)).decode()
    assert "<|im_start|>" not in text and text.count("[bot] <tool_call>") == 3
    # The model ended its turns with one end token; between the turns stands the one of the template.
    assert text.count("</tool_call><|endoftext|>\n[turn] user\n<tool_response>") == 2
