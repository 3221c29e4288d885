"""The parser of what the model says: reasoning, content and tool calls of one turn.

The text begins inside thinking, as the chat template's generation prompt leaves it. Pure; never raises.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent.model.call_structure import read_structure
from agent.model.call_tags import BadBlock, Block, Text, Think
from agent.model.coercion import DEFAULT_TYPES, Types, coerce_arguments, read_types
from agent.types import CallProblem, JsonObject, ToolCall

Finish = Literal["stop", "length"]

FORMAT_HINT = (
    "This tool call could not be read, so nothing ran. Write a call like this:\n"
    "<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>"
)
"""The observation that answers a block that is no call."""

_END_OF_TURN = ("<|im_end|>", "<|endoftext|>")
_CUT_TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """One turn, read.

    `reasoning` is the text inside thinking, `content` the text outside thinking and calls; the pieces of each are
    stripped and joined by one blank line. `calls` are those that may run, in order. `truncated`: the turn was cut by
    the length limit; then `calls` and `problems` are empty.
    """

    reasoning: str = ""
    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    problems: tuple[CallProblem, ...] = ()
    truncated: bool = False


def parse(text: str, *, finish: Finish = "stop", tools: Sequence[JsonObject] | None = None) -> Parsed:
    """Read one turn. `tools` are OpenAI function schemas (None: the five tools of the Leaf contract)."""
    types = DEFAULT_TYPES if tools is None else read_types(tools)
    truncated = finish == "length"
    text = _trim(text, truncated)
    thoughts: list[str] = []
    pieces: list[str] = []
    calls: list[ToolCall] = []
    problems: list[CallProblem] = []
    thinking, index = True, 0
    for segment in read_structure(text, {name: frozenset(keys) for name, keys in types.items()}):
        match segment:
            case Text(start, end):
                (thoughts if thinking else pieces).append(text[start:end].strip())
            case Think(closes=closes):
                thinking = not closes
            case BadBlock():
                thinking = False
                problems.append(CallProblem(index=index, call=None, message=FORMAT_HINT))
                index += 1
            case Block():
                thinking = False
                call, messages = _read_call(text, segment, types)
                problems += [CallProblem(index=index, call=len(calls), message=message) for message in messages]
                calls.append(call)
                index += 1
    return Parsed(
        reasoning="\n\n".join(filter(None, thoughts)),
        content="\n\n".join(filter(None, pieces)),
        calls=() if truncated else tuple(calls),
        problems=() if truncated else tuple(problems),
        truncated=truncated,
    )


class IncrementalParser:
    """The same parser for text that arrives in pieces of any size, also in the middle of a character or a tag."""

    def __init__(self, tools: Sequence[JsonObject] | None = None) -> None:
        self._tools = tools
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []

    def feed(self, piece: str | bytes) -> str:
        """Take the next piece; returns the text that is now complete (for display)."""
        text = piece if isinstance(piece, str) else self._decoder.decode(piece)
        self._pieces.append(text)
        return text

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._pieces)

    def finish(self, finish: Finish) -> Parsed:
        """Read the whole turn."""
        self._pieces.append(self._decoder.decode(b"", final=True))
        return parse(self.text, finish=finish, tools=self._tools)


def parse_command(stdin: bytes, finish: Finish = "stop") -> dict[str, Any]:
    """What `frog-lsp parse` prints, as a JSON object."""
    parsed = parse(stdin.decode("utf-8", "replace"), finish=finish)
    return {
        "reasoning": parsed.reasoning,
        "content": parsed.content,
        "calls": [{"name": call.name, "arguments": dict(call.arguments)} for call in parsed.calls],
        "problems": [{"index": p.index, "call": p.call, "message": p.message} for p in parsed.problems],
        "truncated": parsed.truncated,
    }


def _trim(text: str, truncated: bool) -> str:
    """Take off end-of-turn marks, and a tag that was cut."""
    while (bare := text.rstrip()).endswith(_END_OF_TURN):
        text = bare[: bare.rindex("<|")]
    if truncated:
        at = text.rfind("<", len(text) - 12 if len(text) > 12 else 0)
        if at >= 0 and any(tag.startswith(text[at:]) for tag in _CUT_TAGS):
            text = text[:at]
    return text


def _read_call(text: str, block: Block, types: Types) -> tuple[ToolCall, list[str]]:
    if block.json is not None:
        name, raw = _read_json(block.json)
    else:
        name, raw = block.name, {key: _strip_value(text[start:end]) for key, start, end in block.values}
    arguments, problems = coerce_arguments(raw, types.get(name, {}))
    return ToolCall(name=name, arguments=arguments), problems


def _strip_value(raw: str) -> str:
    """Drop exactly one newline at each end. One that is CRLF after the opening tag makes the other CRLF too."""
    if raw.startswith("\r\n"):
        return raw[2:].removesuffix("\r\n") if raw.endswith("\r\n") else raw[2:].removesuffix("\n")
    return raw.removeprefix("\n").removesuffix("\n")


def _read_json(value: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {}
    return value["name"], arguments if isinstance(arguments, dict) else {}
