"""Train the tiny model: two processes of one thread each, always fresh examples, a checkpoint every two minutes.

`--resume` goes on from the last checkpoint of the folder; a file `stop` in it ends the run after a checkpoint. The
schedule follows the minutes trained, so that a resumed run anneals at the same place; `--minutes` may be raised to go
on longer.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - the name everybody knows it by
from tokenizers import Tokenizer
from torch import multiprocessing

from quant.tadpole import data, model_file, tokenizer
from quant.tadpole.modules import KINDS
from quant.tadpole.network import Network
from quant.tadpole.optimiser import Optimiser
from quant.tadpole.shape import Shape
from quant.tadpole.start import start

# Without these glibc maps and unmaps every large tensor, which takes longer than the arithmetic.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "8000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "300000000",
}
CHECKPOINT_S = 120.0
_POOL = 48  # examples made at once, then sorted into batches


@dataclass(frozen=True)
class Plan:
    """What a run is asked to do."""

    out: Path
    minutes: float
    resume: bool
    n_tokens: int
    matrix_rate: float
    rest_rate: float
    decay: float
    evaluate_s: float
    layers: int
    hidden: int
    feed_forward: int
    world: int
    warm_minutes: float
    beta: float
    begin: Path | None


def _parse(argv: list[str] | None = None) -> Plan:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=85)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--n-tokens", type=int, default=3000, help="padded tokens of a batch, per process")
    parser.add_argument("--matrix-rate", type=float, default=0.01)
    parser.add_argument("--rest-rate", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.5, help="the last share of the time, in which the rates fall")
    parser.add_argument("--evaluate-s", type=float, default=360)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--feed-forward", type=int, default=320)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--warm-minutes", type=float, default=10, help="how long only short examples are used")
    parser.add_argument("--beta", type=float, default=0.995, help="decay of the averaged weights")
    parser.add_argument("--begin", type=Path, help="a model file whose weights and vocabulary the training begins with")
    return Plan(**vars(parser.parse_args(argv)))


class Run:
    """One process of a training run."""

    def __init__(self, plan: Plan, rank: int) -> None:
        """Set up the network and take up the checkpoint."""
        self.plan, self.rank = plan, rank
        made = Tokenizer.from_file(str(plan.out / "tokenizer.json"))
        self.examples = data.Examples(made)
        size = -(-made.get_vocab_size() // 32) * 32
        torch.manual_seed(1)
        shape = Shape(size, hidden=plan.hidden, layers=plan.layers, feed_forward=plan.feed_forward)
        begun = None if plan.begin is None else model_file.read(plan.begin)
        self.network = Network(shape if begun is None else begun.shape)
        if begun is None:
            start(self.network)
        else:
            self.network.load_state_dict({n: torch.from_numpy(w).float() for n, w in begun.weights.items()})
        self.average = {name: p.detach().clone() for name, p in self.network.named_parameters()}
        self.optimiser = Optimiser(self.network, rank, plan.world)
        self.seed, self.step, self.elapsed_s, self.n_seen = 1_000_000_000 * (rank + 1), 0, 0.0, 0
        if plan.resume:
            self._load()
        self._queue: list[list[data.Example]] = []
        self._losses: list[float] = []

    def _load(self) -> None:
        state = torch.load(self.plan.out / "checkpoint.pt", weights_only=True)
        self.network.load_state_dict(state["network"])
        self.average = state["average"]
        self.optimiser.load(state["optimiser"])
        self.step, self.elapsed_s, self.n_seen = state["step"], state["elapsed_s"], state["n_seen"]
        self.seed += state["drawn"] + 1_000_000

    def save(self) -> None:
        """Write a checkpoint, whole or not at all."""
        state = {
            "shape": self.network.shape.as_dict(),
            "network": self.network.state_dict(),
            "average": self.average,
            "optimiser": self.optimiser.state(),
            "step": self.step,
            "elapsed_s": self.elapsed_s,
            "n_seen": self.n_seen,
            "drawn": self.seed - 1_000_000_000 * (self.rank + 1),
        }
        part = self.plan.out / "checkpoint.part"
        torch.save(state, part)
        part.replace(self.plan.out / "checkpoint.pt")

    def log(self, text: str) -> None:
        """One line on the screen and in the learning curve."""
        line = f"{self.elapsed_s / 60:6.1f} min  step {self.step}  {self.n_seen / 1e6:.2f} M tokens  {text}"
        print(line, flush=True)
        with (self.plan.out / "log.txt").open("a") as out:
            out.write(line + "\n")

    def _batch(self) -> list[data.Example]:
        if not self._queue:
            progress = self.elapsed_s / 60 / max(self.plan.warm_minutes, 1e-3)
            limit = 420 if progress < 0.5 else 700 if progress < 1 else 1500
            pool: list[data.Example] = []
            while len(pool) < _POOL:
                made = self.examples.make(self.seed)
                self.seed += 1
                if len(made.ids) <= limit:
                    pool.append(made)
            self._queue = data.batches(pool, self.plan.n_tokens)
            order = torch.randperm(len(self._queue)).tolist()
            self._queue = [self._queue[i] for i in order]
        return self._queue.pop()

    def train_step(self) -> None:
        """One step of all processes."""
        plan = self.plan
        ids, chosen, labels = data.tensors(self._batch())
        loss = F.cross_entropy(self.network(ids, chosen), labels)
        loss.backward()
        self.optimiser.share_gradients()
        left = 1 - self.elapsed_s / 60 / plan.minutes
        rate = min(1.0, (self.step + 1) / 30) * max(0.02, min(1.0, left / plan.decay))
        self.optimiser.step(plan.matrix_rate * rate, plan.rest_rate * rate)
        self.network.zero_grad(set_to_none=True)
        self.step += 1
        self.n_seen += ids.numel() * plan.world
        self._losses.append(float(loss.detach()))
        if self.rank == 0:
            beta = min(plan.beta, self.step / (self.step + 10))
            with torch.no_grad():
                for name, p in self.network.named_parameters():
                    self.average[name].lerp_(p, 1 - beta)

    def report(self, rate: float) -> None:
        """The mean loss since the last report."""
        mean = sum(self._losses) / len(self._losses)
        self._losses.clear()
        self.log(f"loss {mean:.4f}  {rate:.0f} tokens/s")

    @torch.no_grad()
    def evaluate(self, per_family: int = 10) -> None:
        """Whole conversations with held-out words, teacher forced, by the averaged weights."""
        kept = {name: p.detach().clone() for name, p in self.network.named_parameters()}
        self.network.load_state_dict(self.average)
        made = [self.examples.held_out(5_000_000 + seed, family) for family in KINDS for seed in range(per_family)]
        whole = dict.fromkeys(KINDS, 0)
        turns = [0] * 4
        for batch in data.batches(made, self.plan.n_tokens):
            ids, chosen, labels = data.tensors(batch)
            right = torch.ones(ids.numel(), dtype=torch.bool)
            right[chosen] = self.network(ids, chosen).argmax(-1) == labels
            for row, example in zip(right.view(ids.shape), batch, strict=True):
                turn_of = torch.tensor(example.turns)[1:]
                good = [bool(row[: len(turn_of)][turn_of == turn].all()) for turn in range(1, 5)]
                whole[example.family] += all(good)
                turns = [t + g for t, g in zip(turns, good, strict=True)]
        self.network.load_state_dict(kept)
        total = sum(whole.values()) / len(made)
        shares = " ".join(f"{f} {n / per_family:.2f}" for f, n in whole.items())
        self.log(f"HELD OUT {total:.3f}  {shares}  turns " + " ".join(f"{t / len(made):.2f}" for t in turns))

    def go(self) -> None:
        """Train until the minutes are over."""
        begun, before = time.monotonic(), self.elapsed_s
        saved = reported = begun
        evaluated, seen = begun, self.n_seen
        while self.elapsed_s < self.plan.minutes * 60:
            self.train_step()
            stop = (self.plan.out / "stop").exists()
            shared = torch.tensor([time.monotonic() - begun + before, float(stop)])
            if self.plan.world > 1:
                dist.broadcast(shared, 0)
            self.elapsed_s = float(shared[0])
            if shared[1]:
                break
            now = time.monotonic()
            if self.rank == 0 and now - reported > 20:
                self.report((self.n_seen - seen) / (now - reported))
                reported, seen = now, self.n_seen
            if self.rank == 0 and now - saved > CHECKPOINT_S:
                saved = now
                self.save()
            if self.rank == 0 and now - evaluated > self.plan.evaluate_s:
                evaluated = now
                self.evaluate()
        if self.rank == 0:
            self.save()
            if not shared[1]:
                self.evaluate(20)


def _process(rank: int, plan: Plan) -> None:
    torch.set_num_threads(1)
    if plan.world > 1:
        meeting = plan.out / "meeting"
        dist.init_process_group("gloo", init_method=f"file://{meeting.resolve()}", rank=rank, world_size=plan.world)
    Run(plan, rank).go()


def _note_provenance(plan: Plan, arguments: list[str]) -> None:
    """Write what is needed to run this again into the folder: commands and commits, the file that it began with."""
    path = plan.out / "training.json"
    begun = json.loads(path.read_text("utf-8")) if path.exists() else {}
    now = _provenance(plan, arguments)
    if begun:
        begun.setdefault("resumed", []).append({key: now[key] for key in ("command", "commit")})
    path.write_text(json.dumps(begun or now), "utf-8")


def _provenance(plan: Plan, arguments: list[str]) -> dict[str, str | None]:
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    begun = None if plan.begin is None else hashlib.sha256(plan.begin.read_bytes()).hexdigest()
    begin = None if plan.begin is None else plan.begin.name
    command = " ".join(begin or "" if Path(word) == plan.begin else word for word in ["RUN", *arguments[1:]])
    return {"command": f"python -m quant.tadpole.train {command}", "commit": commit, "begin_sha256": begun}


def main() -> None:
    """Start the processes."""
    plan = _parse()
    if any(os.environ.get(key) != value for key, value in MALLOC.items()):
        os.execve(sys.executable, [sys.executable, "-m", "quant.tadpole.train", *sys.argv[1:]], os.environ | MALLOC)  # noqa: S606
    plan.out.mkdir(parents=True, exist_ok=True)
    for name in ("meeting", "stop"):
        (plan.out / name).unlink(missing_ok=True)
    if not (plan.out / "tokenizer.json").exists():
        made = tokenizer.train() if plan.begin is None else tokenizer.rebuild(model_file.read(plan.begin).vocabulary)
        made.save(str(plan.out / "tokenizer.json"))
    _note_provenance(plan, sys.argv[1:])
    if plan.world == 1:
        _process(0, plan)
    else:
        multiprocessing.start_processes(_process, (plan,), nprocs=plan.world, start_method="spawn")


if __name__ == "__main__":
    main()
