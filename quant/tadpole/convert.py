"""Write a trained checkpoint as a GGUF file of architecture `qwen35`."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from quant.tadpole import model_file, tokenizer
from quant.tadpole.model_file import FORMS, ModelFile
from quant.tadpole.shape import Shape


def load(run: Path, *, averaged: bool = True) -> ModelFile:
    """The averaged (or the last) weights of a training run."""
    state: dict[str, Any] = torch.load(run / "checkpoint.pt", weights_only=True)
    weights = {name: w.detach().float().numpy() for name, w in state["average" if averaged else "network"].items()}
    shape = Shape(**state["shape"])
    training = run / "training.json"
    about: dict[str, Any] = json.loads(training.read_text("utf-8")) if training.exists() else {}
    about |= {"steps": state["step"], "minutes": round(state["elapsed_s"] / 60, 1), "padded_tokens": state["n_seen"]}
    made = tokenizer.vocabulary(tokenizer.load(run / "tokenizer.json"), shape.vocabulary)
    return ModelFile(weights, shape, made, json.dumps(about, sort_keys=True))


def main() -> None:
    """Convert on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the folder of a training run")
    parser.add_argument("out", type=Path)
    parser.add_argument("--form", choices=sorted(FORMS), default="f16")
    parser.add_argument("--last", action="store_true", help="the last weights instead of the averaged ones")
    args = parser.parse_args()
    model_file.write(load(args.run, averaged=not args.last), args.out, args.form)
    print(f"{args.out}: {args.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
