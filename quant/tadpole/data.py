"""Training examples: conversations as token ids with the labels of what the model says."""

from dataclasses import dataclass
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor

from quant.tadpole import prompt
from quant.tadpole.generator import project
from quant.tadpole.network import CHUNK
from quant.tadpole.trajectory import Span, conversation
from quant.tadpole.words import Split

# The shares of the families in training: the harder ones more often than in demonstrations.
SHARES = {"name": 34, "attr": 16, "stale": 8, "import": 8, "self": 8, "ret": 10, "op": 16}


@dataclass(frozen=True)
class Example:
    """One conversation."""

    ids: list[int]
    turns: list[int]  # 0 where the model does not speak, else the number of its turn
    family: str


class Examples:
    """Makes examples out of seeds."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Encode the constant prefix once."""
        self._tokenizer = tokenizer
        self._prefix: list[int] = tokenizer.encode(prompt.prefix()).ids

    def encode(self, spans: list[Span], family: str) -> Example:
        """Tokens and turns of a conversation."""
        ids, turns, turn = list(self._prefix), [0] * len(self._prefix), 0
        for span in spans:
            turn += span.said
            new = self._tokenizer.encode(span.text).ids
            ids += new
            turns += [turn if span.said else 0] * len(new)
        return Example(ids, turns, family)

    def make(self, seed: int, split: Split = "train", family: str | None = None, *, plain: bool = False) -> Example:
        """The example of a seed; in training it often ends after the edit, where the hard part is over."""
        random = Random(seed)
        chosen = family or random.choices(list(SHARES), list(SHARES.values()))[0]
        spans = conversation(project(seed, split, chosen), random, plain=plain)
        if not plain and len(spans) == 8 and random.random() < 0.7:
            spans = spans[:4]
        return self.encode(spans, chosen)


def batches(examples: list[Example], n_tokens: int) -> list[list[Example]]:
    """Batches of about equal length and at most so many padded tokens."""
    out: list[list[Example]] = []
    current: list[Example] = []
    for example in sorted(examples, key=lambda e: len(e.ids)):
        if current and len(example.ids) * (len(current) + 1) > n_tokens:
            out.append(current)
            current = []
        current.append(example)
    return [*out, current]


def tensors(batch: list[Example]) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [batch, time], the flat positions to predict from, and what comes there."""
    width = -(-max(len(e.ids) for e in batch) // CHUNK) * CHUNK
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    labels = torch.full((len(batch), width), -1)
    for row, example in enumerate(batch):
        tokens = torch.tensor(example.ids)
        said = torch.tensor(example.turns) > 0
        ids[row, : len(tokens)] = tokens
        labels[row, : len(tokens) - 1] = torch.where(said, tokens, -1)[1:]
    chosen = (labels.view(-1) >= 0).nonzero()[:, 0]
    return ids, chosen, labels.view(-1)[chosen]
