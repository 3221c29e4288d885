"""Muon for the matrices, AdamW for the rest, shared between processes: each computes half of the matrix steps."""

import torch
import torch.distributed as dist
from torch import Tensor, nn


def _orthogonalise(g: Tensor) -> Tensor:
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


class Optimiser:
    """One step for all parameters of a network."""

    def __init__(self, network: nn.Module, rank: int, world: int) -> None:
        """Split the parameters into matrices and the rest."""
        self._rank, self._world = rank, world
        self.matrices: list[Tensor] = []
        self.rest: list[Tensor] = []
        for name, p in network.named_parameters():
            matrix = p.ndim == 2 and "embed" not in name and not name.endswith("conv") and min(p.shape) > 16
            (self.matrices if matrix else self.rest).append(p)
        self._momentum = [torch.zeros_like(p) for p in self.matrices]
        self._adam = torch.optim.AdamW(self.rest, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0)

    def state(self) -> dict[str, object]:
        """What a checkpoint keeps."""
        return {"momentum": self._momentum, "adam": self._adam.state_dict()}

    def load(self, state: dict[str, object]) -> None:
        """Take up a checkpoint."""
        for mine, theirs in zip(self._momentum, state["momentum"], strict=True):  # type: ignore[call-overload]
            mine.copy_(theirs)
        self._adam.load_state_dict(state["adam"])  # type: ignore[arg-type]

    @torch.no_grad()
    def share_gradients(self) -> None:
        """Average the gradients of all processes."""
        if self._world == 1:
            return
        parameters = [*self.matrices, *self.rest]
        flat = torch.cat([p.grad.reshape(-1) for p in parameters if p.grad is not None])
        dist.all_reduce(flat)
        flat /= self._world
        at = 0
        for p in parameters:
            if p.grad is not None:
                p.grad.copy_(flat[at : at + p.numel()].view_as(p))
                at += p.numel()

    @torch.no_grad()
    def step(self, matrix_rate: float, rest_rate: float, momentum: float = 0.95) -> None:
        """Move all parameters."""
        nn.utils.clip_grad_norm_(self.rest, 1.0)
        updates = []
        for index, (p, m) in enumerate(zip(self.matrices, self._momentum, strict=True)):
            assert p.grad is not None
            m.mul_(momentum).add_(p.grad)
            if index % self._world != self._rank:
                updates.append(torch.zeros_like(p))
                continue
            g = p.grad + momentum * m
            tall = g.shape[0] > g.shape[1]
            u = _orthogonalise(g.T if tall else g)
            updates.append((u.T if tall else u) * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)
        flat = torch.cat([u.reshape(-1) for u in updates])
        if self._world > 1:
            dist.all_reduce(flat)
        at = 0
        for p in self.matrices:
            p.mul_(1 - matrix_rate * 0.01).add_(flat[at : at + p.numel()].view_as(p), alpha=-matrix_rate)
            at += p.numel()
        for group in self._adam.param_groups:
            group["lr"] = rest_rate
        self._adam.step()
