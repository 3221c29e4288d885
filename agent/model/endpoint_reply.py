"""From an assembled reply to a turn, and from turns back to the messages of the history. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.model.coercion import Types, coerce_arguments, read_types
from agent.model.endpoint_escape import escape, unescape
from agent.model.endpoint_stream import Reply, read_arguments
from agent.model.tool_calls import parse
from agent.observations import is_nudged
from agent.types import CallProblem, JsonObject, Observation, ToolCall, Turn, Usage

CUT_REASONS = frozenset({"length", "max_tokens"})
CHARS_PER_TOKEN = 3.5  # code and English with the Qwen3.5 tokenizer; only where the server reports no usage
_TAG = re.compile(r"<tool_call>|<function=|</?think>")
_THINK_END = "</think>"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReply:
    """A turn, and how the server sent it: calls and reasoning in fields of their own, or as tags in the text."""

    turn: Turn
    structured_calls: bool
    text_calls: bool
    separate_reasoning: bool
    text_reasoning: bool
    usage_is_estimate: bool


def read_reply(
    reply: Reply, tools: Sequence[JsonObject], *, sent_chars: int, duration_s: float, seen_ids: set[str]
) -> ReadReply:
    """Read a reply as a turn; `tools` are the schemas it was asked with.

    Adds the ids of its calls to `seen_ids`; ids that come again are replaced.

    Tags in the text, or in the reasoning, are read by the parser of the wire format.
    """
    cut = reply.finish_reason in CUT_REASONS
    has_tags = any(_TAG.search(text) is not None for text in (reply.content, reply.reasoning))
    types = read_types(tools)
    structured = [] if cut else [_structured_call(piece.name, read_arguments(piece), types) for piece in reply.calls]
    calls: list[ToolCall] = [call for call, _ in structured]
    problems = [
        CallProblem(index=at, call=at, message=message)
        for at, (_, messages) in enumerate(structured)
        for message in messages
    ]
    reasoning, content, raw = reply.reasoning.strip("\n"), reply.content.strip(), None
    text_calls = False
    if has_tags:
        raw = wire_text(reply)
        parsed = parse(raw, finish="length" if cut else "stop", tools=tools)
        reasoning, content = parsed.reasoning, parsed.content
        text_calls = bool(parsed.calls)
        if structured:
            known = [(call.name, call.arguments) for call in calls]
            calls += [call for call in parsed.calls if (call.name, call.arguments) not in known]
        else:
            calls, problems = list(parsed.calls), list(parsed.problems)
    usage, is_estimate = _read_usage(reply, sent_chars)
    turn = Turn(
        reasoning=unescape(reasoning),
        content=unescape(content),
        calls=() if cut else tuple(_with_ids(calls, reply, seen_ids)),
        problems=() if cut else tuple(problems),
        truncated=cut,
        raw=raw,
        usage=usage,
        context_tokens=usage.prompt_tokens + usage.completion_tokens,
        duration_s=duration_s,
    )
    return ReadReply(
        turn=turn,
        structured_calls=bool(reply.calls),
        text_calls=text_calls,
        separate_reasoning=bool(reply.reasoning),
        text_reasoning=thinks_in_text(reply),
        usage_is_estimate=is_estimate,
    )


def thinks_in_text(reply: Reply) -> bool:
    """Whether the server left the reasoning in the text."""
    return not reply.reasoning and (_THINK_END in reply.content or reply.content.lstrip().startswith("<think>"))


def wire_text(reply: Reply) -> str:
    """The reply as the model wrote it after the generation prompt: it begins inside thinking."""
    if not reply.reasoning:
        return reply.content if thinks_in_text(reply) else f"{_THINK_END}\n\n{reply.content}"
    if not reply.content:
        return reply.reasoning
    return f"{reply.reasoning}\n{_THINK_END}\n\n{reply.content}"


def assistant_message(turn: Turn, reasoning_names: Sequence[str]) -> JsonObject:
    """The message of the history for a turn. Arguments are JSON text without escapes beyond those of JSON.

    A turn with a block that could not be read keeps its text as it was written, so that the model sees it.
    """
    message: JsonObject = {"role": "assistant", "content": escape(turn.content)}
    if turn.reasoning:
        message.update(dict.fromkeys(reasoning_names, escape(turn.reasoning)))
    unread = any(problem.call is None for problem in turn.problems)
    if unread and turn.raw is not None:
        message["content"] = turn.raw.rpartition(_THINK_END)[2].strip("\n")
    elif turn.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": escape(json.dumps(dict(call.arguments), ensure_ascii=False)),
                },
            }
            for call in turn.calls
        ]
    return message


def tool_messages(turn: Turn, observations: Sequence[Observation]) -> list[JsonObject]:
    """The messages of the history for the observations of a turn, in their order. A nudge answers no call."""
    if is_nudged(turn):
        return [{"role": "user", "content": escape(seen.text)} for seen in observations]
    ids = [call.id for call in turn.calls]
    return [
        {
            "role": "tool",
            "tool_call_id": seen.call_id or (ids[at] if at < len(ids) else f"call_unread_{at}"),
            "content": escape(seen.text),
        }
        for at, seen in enumerate(observations)
    ]


def _structured_call(name: str, arguments: dict[str, Any], types: Types) -> tuple[ToolCall, list[str]]:
    coerced, problems = coerce_arguments(arguments, types.get(name, {}))
    return ToolCall(name=name, arguments=coerced), problems


def _with_ids(calls: Sequence[ToolCall], reply: Reply, seen_ids: set[str]) -> list[ToolCall]:
    """`calls` with an id each that no other call of the conversation has."""
    named: list[ToolCall] = []
    for at, call in enumerate(calls):
        wanted = reply.calls[at].id if at < len(reply.calls) else ""
        number = len(seen_ids)
        while not wanted or wanted in seen_ids:
            wanted = f"call_{number}"
            number += 1
        seen_ids.add(wanted)
        named.append(replace(call, id=wanted, arguments=unescape(dict(call.arguments))))
    return named


def _read_usage(reply: Reply, sent_chars: int) -> tuple[Usage, bool]:
    """The counts the server reported, else estimates; endpoints tell nothing of evaluated tokens."""
    prompt, completion = reply.prompt_tokens, reply.completion_tokens
    is_estimate = prompt is None or completion is None
    return (
        Usage(
            prompt_tokens=round(sent_chars / CHARS_PER_TOKEN) if prompt is None else prompt,
            completion_tokens=round(reply.n_chars / CHARS_PER_TOKEN) if completion is None else completion,
            evaluated_tokens=None,
            redecoded_tokens=None,
            draft_rejected_tokens=None,
        ),
        is_estimate,
    )
