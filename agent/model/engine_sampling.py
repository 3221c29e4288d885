"""How the next token is chosen: chains of llama.cpp's samplers."""

from __future__ import annotations

import secrets
from typing import Any

from agent.model.engine_library import lib
from agent.model.sampling import Sampling


class Sampler:
    """One chain. Call `close` when it is no longer needed."""

    def __init__(self, sampling: Sampling, seed: int | None) -> None:
        self._chain: Any = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        for part in _parts(sampling, secrets.randbits(32) if seed is None else seed & 0xFFFFFFFF):
            lib.llama_sampler_chain_add(self._chain, part)

    def sample(self, context: Any, row: int = -1) -> int:
        """The next token from the logits of the last decoded one, or of the token at `row` of the last decode."""
        return int(lib.llama_sampler_sample(self._chain, context, row))

    def close(self) -> None:
        """Free the chain. Idempotent."""
        if self._chain is not None:
            lib.llama_sampler_free(self._chain)
            self._chain = None


def _parts(sampling: Sampling, seed: int) -> list[Any]:
    """Top-k first, since the others then see a few candidates of 248,320; then as Leaf's server samples:
    temperature before top-p."""
    if sampling.temperature <= 0:
        return [lib.llama_sampler_init_greedy()]
    parts = []
    if sampling.top_k > 0:
        parts.append(lib.llama_sampler_init_top_k(sampling.top_k))
    parts.append(lib.llama_sampler_init_temp(sampling.temperature))
    if sampling.top_p < 1:
        parts.append(lib.llama_sampler_init_top_p(sampling.top_p, 1))
    if sampling.min_p > 0:
        parts.append(lib.llama_sampler_init_min_p(sampling.min_p, 1))
    return [*parts, lib.llama_sampler_init_dist(seed)]
