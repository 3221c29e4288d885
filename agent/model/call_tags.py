"""The tags of the wire format, and the segments that a turn is split into."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

_TAGS = re.compile(
    r"<(?:(?P<plain>/?(?:tool_call|think)|/function|/parameter)"
    r"|(?P<named>function|parameter)=(?P<name>[^<>\n]{1,256}))>"
)
_BRACE = re.compile(r"\s*\{")
# Finds the end of an object without the decoder, which counts the lines of the whole text for each error.
_JSON_TOKEN = re.compile(r'[ \t\r\n]*([{}\[\],:]|"[^"\\]*(?:\\.[^"\\]*)*"|[-+.0-9A-Za-z]+)', re.DOTALL)
_LOOK_BACK = 200


class Tag(Enum):
    """The tags of the wire format."""

    CALL = "tool_call"
    CALL_END = "/tool_call"
    FUNCTION = "function"
    FUNCTION_END = "/function"
    PARAMETER = "parameter"
    PARAMETER_END = "/parameter"
    THINK = "think"
    THINK_END = "/think"
    END = ""


_TAG_OF = {tag.value: tag for tag in Tag}


@dataclass(frozen=True, slots=True)
class Text:
    """Text outside calls, from `start` to `end` (offsets in characters)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Think:
    """`<think>` or `</think>` outside calls."""

    start: int
    closes: bool


@dataclass(frozen=True, slots=True)
class Block:
    """A call. `values` are (key, start, end) of XML parameters, or `json` is what a JSON object held."""

    start: int
    name: str
    values: tuple[tuple[str, int, int], ...] = ()
    json: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class BadBlock:
    """A `<tool_call>` that cannot be read as a call; `closed` where a `</tool_call>` ends it."""

    start: int
    end: int
    closed: bool


Segment = Text | Think | Block | BadBlock


class Mark(NamedTuple):
    """One tag: its offsets in characters, and the name of a function or the key of a parameter."""

    tag: Tag
    start: int
    end: int
    name: str = ""


def find_marks(text: str) -> list[Mark]:
    """All tags in order, and one of kind END behind the last."""
    found = []
    for match in _TAGS.finditer(text):
        plain, named, name = match.groups()
        if named is None:
            found.append(Mark(_TAG_OF[plain], match.start(), match.end()))
        elif name := name.strip().strip("\"'").strip():
            found.append(Mark(_TAG_OF[named], match.start(), match.end(), name))
    found.append(Mark(Tag.END, len(text), len(text)))
    return found


def find_brace(text: str, at: int) -> int:
    """The offset of a `{` that follows `at` after white space alone, or -1."""
    match = _BRACE.match(text, at)
    return match.end() - 1 if match else -1


def begins_line(text: str, mark: Mark) -> bool:
    """Whether white space alone stands before the mark on its line."""
    return text[max(0, mark.start - _LOOK_BACK) : mark.start].rpartition("\n")[2].strip() == ""


def is_mention(text: str, mark: Mark) -> bool:
    """A `<tool_call>` in the middle of a line of prose is talked about, not made."""
    before = text[max(0, mark.start - _LOOK_BACK) : mark.start].rpartition("\n")[2].rpartition(">")[2]
    return before.strip() != "" and not text.startswith(("\n", "\r"), mark.end) and mark.end < len(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)


def read_json_call(text: str, at: int) -> tuple[dict[str, Any], int] | None:
    """The JSON object with a name that begins at `at`, and the offset of its end."""
    depth, end = 0, at
    while match := _JSON_TOKEN.match(text, end):
        end = match.end()
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(match[1], 0)
        if depth == 0:
            break
    else:
        return None
    try:
        value = _clean(_DECODER.decode(text[at:end]))
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, dict) and isinstance(value.get("name"), str) else None


def _clean(value: Any) -> Any:
    """Half a surrogate pair becomes U+FFFD; a number too large for a float is refused: neither can be written again."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(value)
    return value
