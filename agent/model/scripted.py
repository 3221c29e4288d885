"""A model that plays turns from a file: for tests, for demonstrations of the machinery, and for replay.

The file is a JSON list of turns, or JSON lines with one turn each. A turn is an object with `raw` (text as a model
writes it, parsed as such) or with any of `reasoning`, `content` and `calls` (`{"name", "arguments"}`), and optionally
`finish` ("stop" or "length"), `delay_s` (seconds before it comes), or `error` (the run then fails with that text; a
`kind` of "model_unavailable", "context_overflow" or "llm_query_error" says how). A trajectory of ours is played too:
its assistant turns.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.errors import ContextOverflow, FrogError, ModelFileError, ModelQueryError, ModelUnavailable
from agent.model.tool_calls import parse
from agent.protocols import OnPrefill, OnText
from agent.types import JsonObject, Limits, ModelInfo, Observation, ToolCall, Turn, Usage

_ERRORS: dict[str, type[FrogError]] = {
    kind.kind: kind for kind in (ModelUnavailable, ContextOverflow, ModelQueryError, ModelFileError)
}
_HINT = "A file of turns is a JSON list, or JSON lines, of objects with `raw`, or with `reasoning`, `content`, `calls`."


class ScriptedModel:
    """Plays the turns of a file in order, whatever the observations are; a `ChatModel`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._turns: list[JsonObject] = []
        self._next = 0
        self._n_tokens = 0
        self._known: set[tuple[str | None, ...]] = set()
        self._tools: Sequence[JsonObject] = ()

    async def open(self, limits: Limits) -> ModelInfo:
        """Read the file. Raises ModelFileError."""
        del limits
        self._turns = read_turns(self._path)
        self._next = 0
        self._known.clear()
        return ModelInfo(kind="scripted", name=Path(self._path).name)

    async def begin(self, system: str, tools: Sequence[JsonObject], user: str) -> None:
        """Start a conversation; the turns go on where they were."""
        self._tools = list(tools)
        self._n_tokens = _count(system) + _count(json.dumps(self._tools)) + _count(user)

    async def recall(self, turn: Turn, observations: Sequence[Observation]) -> None:
        """Pass over a turn that was made earlier; one that comes again after a new beginning only once."""
        who = tuple(call.id for call in turn.calls) or (turn.raw, turn.reasoning, turn.content)
        self._next += who not in self._known
        self._known.add(who)
        self._n_tokens += _count(turn.reasoning + turn.content) + sum(_count(item.text) for item in observations)

    async def generate(self, observations: Sequence[Observation], on_text: OnText, on_prefill: OnPrefill) -> Turn:
        """The next turn. Raises ModelQueryError when there is none left, and what the file says."""
        began = time.monotonic()
        n_prompt = sum(_count(item.text) for item in observations)
        on_prefill(n_prompt, n_prompt)
        if self._next >= len(self._turns):
            raise ModelQueryError(
                f"the file of turns {self._path} has no turn {self._next + 1}",
                "Add one without calls, which ends a run.",
            )
        given = self._turns[self._next]
        await asyncio.sleep(float(given.get("delay_s", 0)))
        self._next += 1
        if "error" in given:
            raise _ERRORS.get(str(given.get("kind")), ModelQueryError)(str(given["error"]))
        turn = self._read(given)
        self._known.add(tuple(call.id for call in turn.calls) or (turn.raw, turn.reasoning, turn.content))
        text = turn.raw if turn.raw is not None else f"{turn.reasoning}\n</think>\n\n{turn.content}"
        for line in text.splitlines(keepends=True):
            on_text(line)
        n_made = _count(text)
        self._n_tokens += n_prompt + n_made
        return replace(
            turn,
            usage=Usage(prompt_tokens=n_prompt, completion_tokens=n_made, evaluated_tokens=None, redecoded_tokens=None),
            context_tokens=self._n_tokens,
            duration_s=time.monotonic() - began,
        )

    async def close(self) -> None:
        """Nothing to release."""

    def _read(self, given: JsonObject) -> Turn:
        truncated = given.get("finish", "stop") == "length"
        if "raw" in given:
            raw = str(given["raw"])
            parsed = parse(raw, finish="length" if truncated else "stop", tools=self._tools or None)
            return Turn(
                reasoning=parsed.reasoning,
                content=parsed.content,
                calls=self._with_ids(parsed.calls),
                problems=parsed.problems,
                truncated=parsed.truncated,
                raw=raw,
            )
        calls = () if truncated else tuple(_read_call(call) for call in given.get("calls") or ())
        return Turn(
            reasoning=str(given.get("reasoning") or ""),
            content=str(given.get("content") or ""),
            calls=self._with_ids(calls),
            truncated=truncated,
        )

    def _with_ids(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        return tuple(replace(call, id=f"call_{self._next}_{i}") for i, call in enumerate(calls))


def read_turns(path: str) -> list[JsonObject]:
    """The turns of a file, checked. Raises ModelFileError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(f"the file of turns {path} cannot be read: {error}", _HINT) from error
    try:
        values = _read_values(text)
    except ValueError as error:
        raise ModelFileError(f"the file of turns {path} is not JSON: {error}", _HINT) from error
    if values and isinstance(values[0], dict) and "trajectory_format" in values[0]:
        steps = [item for item in values if isinstance(item, dict) and isinstance(item.get("assistant"), dict)]
        values = [_from_step(step) for step in steps]
    for i, value in enumerate(values, 1):
        _check_turn(value, f"turn {i} of {path}")
    return values


def _read_values(text: str) -> list[Any]:
    if text.lstrip().startswith("["):
        values = json.loads(text)
        return values if isinstance(values, list) else [values]
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _check_turn(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise ModelFileError(f"{where} is not an object", _HINT)
    if not {"raw", "reasoning", "content", "calls", "error"} & value.keys():
        raise ModelFileError(f"{where} has nothing to say", _HINT)
    if value.get("finish", "stop") not in ("stop", "length"):
        raise ModelFileError(f"{where}: finish must be stop or length", _HINT)
    delay_s = value.get("delay_s", 0)
    if isinstance(delay_s, bool) or not isinstance(delay_s, int | float) or delay_s < 0:
        raise ModelFileError(f"{where}: delay_s must be a number of seconds", _HINT)
    calls = value.get("calls") or []
    if not isinstance(calls, list) or not all(isinstance(c, dict) and isinstance(c.get("name"), str) for c in calls):
        raise ModelFileError(f"{where}: calls must be a list of objects with a name", _HINT)


def _read_call(call: JsonObject) -> ToolCall:
    arguments = call.get("arguments")
    return ToolCall(name=call["name"], arguments=arguments if isinstance(arguments, dict) else {})


def _from_step(step: JsonObject) -> JsonObject:
    """A turn from the line of a step in a trajectory."""
    finish = {"finish": "length"} if step.get("truncated") else {}
    if isinstance(step.get("raw"), str):
        return {"raw": step["raw"], **finish}
    message, calls = step["assistant"], []
    for item in message.get("tool_calls") or ():
        arguments = item["function"].get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                arguments = {}
        calls.append({"name": item["function"].get("name"), "arguments": arguments})
    return {"reasoning": message.get("reasoning_content"), "content": message.get("content"), "calls": calls, **finish}


def _count(text: str) -> int:
    """About as many tokens as a tokenizer would make of it."""
    return len(text) // 4
