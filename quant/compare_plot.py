"""The plot of a comparison, a PNG: tool calls as bars with their intervals, divergence as a curve. Needs Pillow."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.errors import UsageError
from quant.compare import Comparison
from quant.compare_metrics import Array, join
from quant.compare_report import LABELS, shorten
from quant.compare_turns import MEASURES

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

WIDTH, HEIGHT = 1200, 640
_INK, _GRID = "#222222", "#dddddd"
_BARS = (("A, raw", "#a6c8e4"), ("A, repaired", "#2b6ca3"), ("B, raw", "#f6cfa3"), ("B, repaired", "#d9772b"))
_CURVES = (("what it writes", "#2b6ca3"), ("what it reads", "#6f9a3c"))
_LEAST_KL = 1e-6
_TOP, _BOTTOM = 130, 560

Box = tuple[int, int, int, int]
"""left, top, right, bottom of a panel's axes, in pixels."""


def can_draw() -> bool:
    """Whether Pillow is installed."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        return False
    return True


def draw(found: Comparison, path: Path) -> None:
    """Write the picture; a file appears under `path` only when it is whole. Raises UsageError."""
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise UsageError("the plot needs the package Pillow", "Install it: `pip install frog-lsp[plot]`.") from error
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(image)
    for letter, side, y in (("A", found.a, 16), ("B", found.b, 42)):
        text = f"{letter}  {shorten(side.file.name, 90)}, {side.header.size_bytes / 1e6:,.1f} MB"
        _text(pen, (40, y), text, size=19)
    has_turns, has_logits = found.n_prompts > 0, found.said is not None or found.heard is not None
    if has_turns:
        _draw_turns(pen, found, (80, _TOP, 660 if has_logits else 1160, _BOTTOM))
    if has_logits:
        _draw_divergence(pen, found, (770 if has_turns else 80, _TOP, 1160, _BOTTOM))
    _save(image.save, path)


def _draw_turns(pen: ImageDraw, found: Comparison, box: Box) -> None:
    left, top, right, bottom = box
    title = f"Share of {found.n_prompts * len(found.seeds)} turns; intervals of 95 %"
    _text(pen, (left, top - 52), title, size=17)
    for percent in range(0, 101, 20):
        y = bottom - (bottom - top) * percent / 100
        pen.line((left, y, right, y), fill=_GRID)
        _text(pen, (left - 10, y), f"{percent} %", anchor="rm")
    tallies = [tally for side in found.stability for tally in (side.raw, side.repaired)]
    group = (right - left) / len(MEASURES)
    width = group * 0.8 / len(tallies)
    for i, measure in enumerate(MEASURES):
        begin = left + group * (i + 0.1)
        for k, (tally, (_, colour)) in enumerate(zip(tallies, _BARS, strict=True)):
            share, x = tally.share(measure), begin + k * width
            height = (bottom - top) * share.value
            pen.rectangle((x, bottom - height, x + width - 2, bottom), fill=colour)
            if share.low is not None and share.high is not None:
                middle = x + width / 2 - 1
                ends = [bottom - (bottom - top) * value for value in (share.low, share.high)]
                pen.line((middle, ends[0], middle, ends[1]), fill=_INK)
                for y in ends:
                    pen.line((middle - 3, y, middle + 3, y), fill=_INK)
        first, _, rest = LABELS[measure].rpartition(" ")
        for line, text in enumerate(filter(None, (first, rest))):
            _text(pen, (left + group * (i + 0.5), bottom + 8 + 18 * line), text, anchor="ma")
    pen.line((left, bottom, right, bottom), fill=_INK)
    _legend(pen, _BARS, (left, top - 26))


def _draw_divergence(pen: ImageDraw, found: Comparison, box: Box) -> None:
    left, top, right, bottom = box
    _text(pen, (left, top - 52), "Share of tokens with a larger KL (nats)", size=17)
    values = [join(found.said_scores).kl, join(found.heard_scores).kl]
    largest = max((float(kl.max()) for kl in values if len(kl)), default=0.0)
    low, high = math.log10(_LEAST_KL), max(0, math.ceil(math.log10(max(largest, _LEAST_KL))))
    for percent in range(0, 101, 20):
        y = bottom - (bottom - top) * percent / 100
        pen.line((left, y, right, y), fill=_GRID)
        _text(pen, (left - 10, y), f"{percent} %", anchor="rm")
    for power in range(round(low), high + 1):
        x = left + (right - left) * (power - low) / (high - low)
        pen.line((x, top, x, bottom), fill=_GRID)
        _text(pen, (x, bottom + 8), "1" if power == 0 else "10" if power == 1 else f"1e{power}", anchor="ma")
    for kl, (_, colour) in zip(values, _CURVES, strict=True):
        points = [
            (left + (right - left) * (x - low) / (high - low), bottom - (bottom - top) * share)
            for x, share in exceedance(kl, low, high)
        ]
        if points:
            pen.line(points, fill=colour, width=3)
    pen.line((left, bottom, right, bottom), fill=_INK)
    _legend(pen, _CURVES, (left, top - 26))


def exceedance(kl: Array, low: float, high: float, n_points: int = 200) -> list[tuple[float, float]]:
    """(log10 of x, share of values above x) at even steps; none where there are no values."""
    if not len(kl):
        return []
    ordered = np.sort(kl)
    steps = np.linspace(low, high, n_points)
    above = 1 - np.searchsorted(ordered, 10**steps, side="right") / len(ordered)
    return [(float(x), float(share)) for x, share in zip(steps, above, strict=True)]


def _legend(pen: ImageDraw, items: Sequence[tuple[str, str]], at: tuple[int, int]) -> None:
    x, y = at
    for name, colour in items:
        pen.rectangle((x, y, x + 12, y + 12), fill=colour)
        _text(pen, (x + 18, y + 6), name, anchor="lm")
        x += 122


def _text(pen: ImageDraw, at: tuple[float, float], text: str, *, size: int = 14, anchor: str = "la") -> None:
    from PIL import ImageFont

    font = ImageFont.load_default(size)
    # A build of Pillow without FreeType has one small font, which knows no anchors and no letters beyond Latin-1.
    if isinstance(font, ImageFont.FreeTypeFont):
        pen.text(at, text, fill=_INK, font=font, anchor=anchor)
    else:
        width = pen.textlength(plain := text.encode("latin-1", "replace").decode("latin-1"), font=font)
        x = at[0] - {"l": 0.0, "m": width / 2, "r": width}[anchor[0]]
        pen.text((x, at[1]), plain, fill=_INK, font=font)


def _save(write: Callable[..., None], path: Path) -> None:
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                write(file, format="PNG")
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}", "Name another file with --plot."
        ) from error
