"""The network: Gated DeltaNet and gated attention in turn, as llama.cpp computes architecture `qwen35`.

Small and in single precision. The delta rule runs in chunks of 16: the doubling inverse loses all precision with longer
chunks once keys are correlated.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody knows it by
from torch import Tensor, nn

from quant.tadpole.shape import Shape

CHUNK = 16
_UPPER = torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu(1)


class Norm(nn.Module):
    """Root-mean-square normalisation with a learnt scale."""

    def __init__(self, size: int) -> None:
        """Start at scale one."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """The gated delta rule over [batch, head, time, size], the time a multiple of the chunk."""
    b, h, t, d = k.shape
    n = t // CHUNK

    def chunks(x: Tensor) -> Tensor:
        return x.reshape(b * h, n, CHUNK, -1)

    q, k = _unit(q) * d**-0.5, _unit(k)
    q, k, v, kb = chunks(q), chunks(k), chunks(v * beta[..., None]), chunks(k * beta[..., None])
    g = g.reshape(b * h, n, CHUNK).cumsum(-1)
    eg = g.exp()[..., None]
    decay = (g[..., :, None] - g[..., None, :]).masked_fill(_UPPER, -1e9).exp()
    kt = k.transpose(-1, -2)
    attention = (q @ kt) * decay
    power = -((kb @ kt) * decay).tril(-1)
    x = torch.cat((v, kb * eg), -1)
    x = x + power @ x
    span = 2
    while span < CHUNK:
        power = power @ power
        x = x + power @ x
        span *= 2
    u, w = x[..., :d], x[..., d:]
    kd = (k * (g[..., -1:] - g).exp()[..., None]).transpose(-1, -2)
    cd = g[..., -1].exp()[..., None, None]
    state = torch.zeros(b * h, d, d)
    out = []
    for ui, wi, qi, ai, ki, ci in zip(*(part.unbind(1) for part in (u, w, q * eg, attention, kd, cd)), strict=True):
        vi = ui - wi @ state
        out.append(qi @ state + ai @ vi)
        state = state * ci + ki @ vi
    return torch.stack(out, 1).reshape(b, h, t, -1)


class DeltaNet(nn.Module):
    """A Gated DeltaNet layer: short convolution, delta rule, gated norm."""

    def __init__(self, s: Shape) -> None:
        """Make the weights; the layer's start is set by `start.py`."""
        super().__init__()
        self.heads, self.size = s.linear_heads, s.linear_size
        width = self.heads * self.size
        self.qkv = _linear(s.hidden, 3 * width)
        self.conv = nn.Parameter(torch.empty(3 * width, 4).uniform_(-0.5, 0.5))
        self.gate = _linear(s.hidden, width)
        self.beta = _linear(s.hidden, self.heads)
        self.alpha = _linear(s.hidden, self.heads)
        dt = torch.exp(torch.rand(self.heads) * 3.4 - 5.3)
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.a_log = nn.Parameter(torch.log(torch.empty(self.heads).uniform_(0.01, 16)))
        self.norm = Norm(self.size)
        self.out = _linear(width, s.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Mix over time."""
        b, t, _ = x.shape
        w = self.conv
        y = F.pad(self.qkv(x), (0, 0, 3, 0))
        y = F.silu(y[:, :t] * w[:, 0] + y[:, 1 : t + 1] * w[:, 1] + y[:, 2 : t + 2] * w[:, 2] + y[:, 3:] * w[:, 3])
        q, k, v = y.view(b, t, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        beta = self.beta(x).sigmoid().transpose(1, 2)
        g = (-self.a_log.exp() * F.softplus(self.alpha(x) + self.dt_bias)).transpose(1, 2)
        o = delta_rule(q, k, v, g, beta).transpose(1, 2)
        o = self.norm(o) * F.silu(self.gate(x).view(b, t, self.heads, self.size))
        mixed: Tensor = self.out(o.reshape(b, t, -1))
        return mixed


class Attention(nn.Module):
    """Full attention with normalised queries and keys, half rotary, and an output gate."""

    def __init__(self, s: Shape) -> None:
        """Make the weights."""
        super().__init__()
        self.heads, self.kv_heads, self.size = s.heads, s.kv_heads, s.head_size
        self.q = _linear(s.hidden, s.heads * s.head_size * 2)
        self.k = _linear(s.hidden, s.kv_heads * s.head_size)
        self.v = _linear(s.hidden, s.kv_heads * s.head_size)
        self.out = _linear(s.heads * s.head_size, s.hidden)
        self.q_norm = Norm(s.head_size)
        self.k_norm = Norm(s.head_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        """Attend to what came before."""
        b, t, _ = x.shape
        q, gate = self.q(x).view(b, t, self.heads, 2 * self.size).chunk(2, -1)
        q = _rotate(self.q_norm(q).transpose(1, 2), cos, sin)
        k = _rotate(self.k_norm(self.k(x).view(b, t, self.kv_heads, self.size)).transpose(1, 2), cos, sin)
        v = self.v(x).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        weights = (q * self.size**-0.5 @ k.transpose(-1, -2) + mask).softmax(-1)
        o = (weights @ v).transpose(1, 2)
        mixed: Tensor = self.out((o * gate.sigmoid()).reshape(b, t, -1))
        return mixed


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    r = cos.shape[-1]
    h = r // 2
    a, rest = x[..., :r], x[..., r:]
    return torch.cat((a * cos + torch.cat((-a[..., h:], a[..., :h]), -1) * sin, rest), -1)


class Block(nn.Module):
    """One layer: a mixer over time and a gated feed-forward net."""

    def __init__(self, s: Shape, index: int) -> None:
        """Every second layer is full attention."""
        super().__init__()
        self.full = index % 2 == 1
        self.mixer: nn.Module = Attention(s) if self.full else DeltaNet(s)
        self.norm = Norm(s.hidden)
        self.post_norm = Norm(s.hidden)
        self.gate = _linear(s.hidden, s.feed_forward)
        self.up = _linear(s.hidden, s.feed_forward)
        self.down = _linear(s.feed_forward, s.hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        """Add what the mixer and the net say."""
        h = self.norm(x)
        x = x + (self.mixer(h, cos, sin, mask) if self.full else self.mixer(h))
        h = self.post_norm(x)
        out: Tensor = x + self.down(F.silu(self.gate(h)) * self.up(h))
        return out


class Network(nn.Module):
    """The whole model; the embedding is also the output matrix."""

    def __init__(self, shape: Shape) -> None:
        """Make all layers."""
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocabulary, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape, i) for i in range(shape.layers))
        self.norm = Norm(shape.hidden)
        self.inverse = 1.0 / shape.rope_base ** (torch.arange(0, shape.rotary, 2).float() / shape.rotary)
        self._tables: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def _table(self, t: int) -> tuple[Tensor, Tensor, Tensor]:
        if t not in self._tables:
            angles = torch.arange(t).float()[:, None] * self.inverse
            angles = torch.cat((angles, angles), -1)
            mask = torch.full((t, t), float("-inf")).triu(1)
            self._tables[t] = (angles.cos(), angles.sin(), mask)
        return self._tables[t]

    def forward(self, ids: Tensor, chosen: Tensor | None = None) -> Tensor:
        """Logits of all positions, or of the chosen flat positions."""
        cos, sin, mask = self._table(ids.shape[1])
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        x = x.reshape(-1, x.shape[-1])
        return F.linear(self.norm(x if chosen is None else x[chosen]), self.embed.weight)
