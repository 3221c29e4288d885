"""A turn as it was written, cut into its tags and what stands between them; pure.

A turn that is read again must not turn into tags what was plain text when the model wrote it: a value that holds the
characters of an end mark, a file that is quoted in a thought. Only what the parser reads as structure is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.model.call_structure import read_structure
from agent.model.call_tags import BadBlock, Block, Text, Think
from agent.model.chat_format import Part

_OPEN_CALL = "<tool_call>"


def wire_parts(raw: str) -> list[Part]:
    """The parts of a turn; together they are `raw`."""
    segments = read_structure(raw, {})
    ends = [*(item.start for item in segments[1:]), len(raw)]
    parts: list[Part] = []
    for item, end in zip(segments, ends, strict=True):
        match item:
            case Text():
                parts.append(Part(raw[item.start : end], trusted=False))
            case Think():
                tag_end = raw.index(">", item.start) + 1
                parts += [Part(raw[item.start : tag_end], trusted=True), Part(raw[tag_end:end], trusted=False)]
            case BadBlock():
                parts += _between(raw, item.start, end, [(item.start + len(_OPEN_CALL), item.end)])
            case Block(json=None):
                parts += _between(raw, item.start, end, [(start, stop) for _, start, stop in item.values])
            case Block():
                close = raw.rfind("</tool_call>", item.start, end)
                stop = close if close >= 0 else end
                parts += _between(raw, item.start, end, [(item.start + len(_OPEN_CALL), stop)])
    return _joined(piece for part in parts for piece in _bare(part) if piece.text)


def _between(raw: str, start: int, end: int, free: list[tuple[int, int]]) -> list[Part]:
    """From `start` to `end`: structure, but for the spans in `free`."""
    parts = []
    for begin, stop in free:
        parts += [Part(raw[start:begin], trusted=True), Part(raw[begin:stop], trusted=False)]
        start = stop
    return [*parts, Part(raw[start:end], trusted=True)]


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Neighbours of one kind as one part: a token may be a tag with the ends of the lines around it, and is trusted
    only where all of it lies in one part."""
    joined: list[Part] = []
    for part in parts:
        if joined and joined[-1].trusted == part.trusted:
            joined[-1] = Part(joined[-1].text + part.text, part.trusted)
        else:
            joined.append(part)
    return joined


def _bare(part: Part) -> list[Part]:
    """White space around text belongs to the structure: some tokens are a tag with its line's end."""
    if part.trusted:
        return [part]
    rest = part.text.lstrip()
    core = rest.rstrip()
    before, after = part.text[: len(part.text) - len(rest)], rest[len(core) :]
    return [Part(before, trusted=True), Part(core, trusted=False), Part(after, trusted=True)]
