"""Training examples: conversations as token ids with the labels of what the model says."""

from dataclasses import dataclass
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor

from quant.tadpole import modules, prompt, trajectory
from quant.tadpole.generator import project
from quant.tadpole.network import CHUNK
from quant.tadpole.trajectory import Span

# The shares of the families in training: the harder ones more often than in demonstrations.
SHARES = {"name": 30, "attr": 16, "stale": 8, "import": 8, "self": 8, "ret": 10, "op": 20}
KIND_SHARES = {"name": 20, "attr": 10, "stale": 5, "import": 13, "self": 12, "ret": 12, "op": 14, "off": 14}
_REFUSALS, _ABSENT = 0.06, 0.01
_PHRASED = 0.3  # the share of the projects of `generator`, which the demonstration has
_PLAIN_LENGTH = 8  # spans of a conversation without a failure on the way


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

    def make(self, seed: int) -> Example:
        """A training example; it often ends after the edit, where the hard part is over."""
        random = Random(seed)
        chance = random.random()
        if chance < _REFUSALS:
            return self.encode(trajectory.refusal(random), "other")
        if chance < _REFUSALS + _PHRASED:
            made = project(seed, "train", random.choices(list(SHARES), list(SHARES.values()))[0])
        else:
            kinds = random.choices(list(KIND_SHARES), list(KIND_SHARES.values()))
            made = modules.make(seed, "train", kinds[0])
        if chance > 1 - _ABSENT:
            return self.encode(trajectory.absent(made, random), "other")
        spans = trajectory.conversation(made, random)
        if len(spans) == _PLAIN_LENGTH and random.random() < 0.75:
            spans = spans[:4]
        return self.encode(spans, made.family)

    def held_out(self, seed: int, family: str) -> Example:
        """A whole conversation of an evaluation, with words that training never sees."""
        made = modules.make(seed, "demo", family)
        return self.encode(trajectory.conversation(made, Random(seed), plain=True), family)


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
