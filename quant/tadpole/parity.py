"""Compare the training network with llama.cpp on the same weights, position by position."""

import argparse
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer

from quant.tadpole import data, prompt
from quant.tadpole.engine import Engine
from quant.tadpole.generator import project
from quant.tadpole.network import CHUNK, Network
from quant.tadpole.shape import Shape
from quant.tadpole.trajectory import conversation


def compare(run: Path, model: Path, n_conversations: int = 2) -> tuple[int, int, float]:
    """Positions, how many have the same most likely token, and the largest difference of a logit."""
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    network = Network(Shape(**state["shape"]))
    network.load_state_dict(state["average"])
    tokenizer = Tokenizer.from_file(str(run / "tokenizer.json"))
    examples = data.Examples(tokenizer)
    engine = Engine(model)
    n, same, worst = 0, 0, 0.0
    for seed in range(n_conversations):
        spans = conversation(project(seed), Random(seed), plain=True)
        ids = examples.encode(spans, "").ids
        text = prompt.prefix() + "".join(span.text for span in spans)
        if engine.tokens(text) != ids:
            raise ValueError("the tokenizers disagree")
        padded = ids + [0] * (-len(ids) % CHUNK)
        with torch.no_grad():
            mine = network(torch.tensor([padded]))[: len(ids)]
        engine.clear()
        for at, token in enumerate(ids):
            engine.feed([token])
            theirs = torch.from_numpy(engine.logits())
            same += int(theirs.argmax()) == int(mine[at].argmax())
            worst = max(worst, float((theirs - mine[at]).abs().max()))
        n += len(ids)
    return n, same, worst


def main() -> None:
    """Compare on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("model", type=Path)
    args = parser.parse_args()
    n, same, worst = compare(args.run, args.model)
    print(f"{n} positions, the same first choice at {same} ({100 * same / n:.1f} %), largest difference {worst:.2g}")


if __name__ == "__main__":
    main()
