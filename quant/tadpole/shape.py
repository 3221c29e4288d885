"""The sizes of the tiny network; no torch is needed to know them."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Shape:
    """The sizes of a network."""

    vocabulary: int
    hidden: int = 192
    layers: int = 4
    feed_forward: int = 320
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    linear_heads: int = 6
    linear_size: int = 32
    rotary: int = 32
    rope_base: float = 10_000.0

    def as_dict(self) -> dict[str, float]:
        """The sizes by name."""
        return asdict(self)


def sections(rotary: int) -> list[int]:
    """How llama.cpp must split the rotary pairs so that none is left unrotated for text."""
    d = rotary // 2
    return [(d + 2) // 3, (d + 1) // 3, d // 3, 0]
