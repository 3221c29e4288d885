"""The start of training: a network whose first two layers already copy.

Learning to copy from a random start takes most of the training of so small a model. So the first layer starts as a
shift register (it writes the last four tokens beside each other), and the first attention layer starts as an induction
head over three tokens (it looks for an earlier place with the same three tokens and predicts what followed there).
Training is free to change all of it.
"""

import torch
from torch import Tensor, nn

from quant.tadpole.network import Attention, DeltaNet, Network

_SLOT = 32  # the width of one place of the shift register
_LAGS = (0, 1, 2, 3)


def _orthogonal(rows: int, columns: int) -> Tensor:
    made = torch.empty(rows, columns)
    nn.init.orthogonal_(made)
    return made


@torch.no_grad()
def start(network: Network) -> None:
    """Set the weights to the start of training."""
    s = network.shape
    words = s.hidden - _SLOT * len(_LAGS)  # dimensions of the embedding itself, the first of them constant
    for name, weight in network.named_parameters():
        if weight.ndim == 2 and not name.endswith("conv"):
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
            if name.endswith(("out.weight", "down.weight")):
                nn.init.zeros_(weight)
    nn.init.normal_(network.embed.weight, std=0.02)
    network.embed.weight[:, :words].normal_(std=1.0)
    network.embed.weight[:, 0] = 1.0
    network.embed.weight *= 0.35
    first, second = network.blocks[0].mixer, network.blocks[1].mixer
    assert isinstance(first, DeltaNet)
    assert isinstance(second, Attention)
    _shift_register(first, words)
    _induction(second, words)


def _shift_register(layer: DeltaNet, words: int) -> None:
    width = layer.heads * layer.size
    read = _orthogonal(layer.size, words - 1)
    for head, lag in enumerate(_LAGS):
        rows = slice(head * layer.size, (head + 1) * layer.size)
        for part in range(3):
            at = slice(part * width + rows.start, part * width + rows.stop)
            layer.conv[at] = 0.0
            layer.conv[at, 3 - (lag if part == 2 else 0)] = 1.0
            layer.qkv.weight[at] = 0.0
            if part == 2:
                layer.qkv.weight[at, 1:words] = read
            else:
                layer.qkv.weight[at, 0] = 1.0
        layer.gate.weight[rows] = 0.0
        layer.gate.weight[rows, 0] = 2.0
        layer.beta.weight[head] = 0.0
        layer.alpha.weight[head] = 0.0
        layer.dt_bias[head] = 3.0
        layer.a_log[head] = 1.5
        slot = words + head * _SLOT
        layer.out.weight[slot : slot + _SLOT, rows] = torch.eye(_SLOT) * 0.25


def _induction(layer: Attention, words: int) -> None:
    size = layer.size
    half = size // 2  # the upper half of a head is not rotated
    group = layer.heads // layer.kv_heads
    layer.q.weight.view(layer.heads, 2, size, -1)[:, 0] *= 0.1
    layer.k.weight *= 0.1
    scales = ((1.0, 0.9, 0.8), (1.0, 0.7, 0.0))
    for kv in range(layer.kv_heads):
        for i, scale in enumerate(scales[kv % 2]):
            mix = _orthogonal(half, _SLOT) * scale
            key = slice(kv * size + half, (kv + 1) * size)
            layer.k.weight[key, words + (i + 1) * _SLOT : words + (i + 2) * _SLOT] = mix
            for head in range(kv * group, (kv + 1) * group):
                query = slice(head * 2 * size + half, head * 2 * size + size)
                layer.q.weight[query, words + i * _SLOT : words + (i + 1) * _SLOT] = mix
        value = slice(kv * size, kv * size + min(size, words))
        layer.v.weight[value] = 0.0
        layer.v.weight[value, :words] = torch.eye(min(size, words), words)
        for head in range(kv * group, (kv + 1) * group):
            layer.out.weight[:words, head * size : head * size + words] = torch.eye(words, min(size, words)) * 0.8
    layer.q_norm.weight.fill_(1.5)
    layer.k_norm.weight.fill_(1.2)
