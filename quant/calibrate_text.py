"""The text that calibrates a model: runs, rendered as the model reads them, and cut to what is wanted."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from agent.model.chat_format import ChatFormat
from agent.model.engine_vocab import Vocab
from agent.model.model_facts import ModelFacts
from agent.model.template_process import TemplateProcess
from quant.transcripts import read_conversations, render


def render_all(sources: Sequence[str], facts: ModelFacts, vocab: Vocab) -> list[tuple[int, ...]]:
    """The tokens of all runs, with the model's own system prompt and tools where it knows no others.

    Raises UsageError, ModelFileError.
    """
    with contextlib.closing(TemplateProcess(facts.template)) as process:
        chat = ChatFormat(facts.template, bos=vocab.bos, ends=vocab.ends, renderer=process)
        return [
            render(conversation, chat, vocab, system=facts.system_prompt, tools=facts.tools).tokens
            for conversation in read_conversations(sources)
        ]


def cut_evenly(lengths: Sequence[int], most: int) -> list[int]:
    """How much of each is taken so that it is `most` at most in all: the short ones whole, the long ones alike."""
    taken = [0] * len(lengths)
    room = most
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    for n_done, i in enumerate(order):
        taken[i] = min(lengths[i], room // (len(order) - n_done))
        room -= taken[i]
    return taken
