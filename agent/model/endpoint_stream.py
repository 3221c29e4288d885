"""From the bytes of an OpenAI-compatible answer to one assembled reply. Pure; no network here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MAX_LINE_BYTES = 16 * 1024 * 1024  # one event: far above a whole turn of 8,192 tokens
MAX_CALLS = 128
_LINE_END = re.compile(rb"\r\n|\n|\r")


class StreamError(ValueError):
    """The bytes are not the stream that was asked for."""


class SseDecoder:
    """Server-sent events from pieces of any size; lines end at LF, CRLF or CR only.

    (A decoder built on `str.splitlines` also cuts at U+2028 and form feed, which JSON may hold unescaped.)
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0  # up to here the buffer holds no line end
        self._data: list[bytes] = []
        self._event = ""

    def feed(self, piece: bytes) -> Iterator[tuple[str, str]]:
        """Yield (event name or "", data) for each event that `piece` completes. Raises StreamError."""
        self._buffer += piece
        if len(self._buffer) > MAX_LINE_BYTES:
            raise StreamError("one line of the stream is larger than 16 MiB")
        yield from self._drain(at_end=False)

    def finish(self) -> Iterator[tuple[str, str]]:
        """Yield the last event where the stream ended without a blank line after it."""
        yield from self._drain(at_end=True)
        if self._buffer:
            yield from self._take_line(bytes(self._buffer))
            self._buffer.clear()
            self._scanned = 0
        yield from self._take_line(b"")

    def _drain(self, *, at_end: bool) -> Iterator[tuple[str, str]]:
        start = 0
        for match in _LINE_END.finditer(self._buffer, self._scanned):
            if match.group() == b"\r" and match.end() == len(self._buffer) and not at_end:
                break  # the LF of a CRLF may still come
            line = bytes(self._buffer[start : match.start()])
            start = match.end()
            yield from self._take_line(line)
        del self._buffer[:start]
        self._scanned = len(self._buffer) - self._buffer.endswith(b"\r")

    def _take_line(self, line: bytes) -> Iterator[tuple[str, str]]:
        if not line:
            if self._data:
                yield self._event, b"\n".join(self._data).decode("utf-8", "replace")
            self._data, self._event = [], ""
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"error":  # llama-server of 2024 writes its errors so
            yield "error", value.decode("utf-8", "replace")


@dataclass(slots=True)
class CallPieces:
    """One structured call while its pieces arrive. `arguments` is JSON text, or an object where a server sends one."""

    key: object
    id: str = ""
    name: str = ""
    arguments: str = ""
    arguments_object: dict[str, Any] | None = None


@dataclass(slots=True)
class Reply:
    """Everything an answer said, streamed or whole.

    `reasoning_field` is the name that the server used for reasoning ("" for none); `n_choices` counts the
    choices seen; `prompt_tokens` and `completion_tokens` are None where the server reports no usage.
    """

    content: str = ""
    reasoning: str = ""
    calls: list[CallPieces] = field(default_factory=list)
    finish_reason: str | None = None
    reasoning_field: str = ""
    n_choices: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    done: bool = False

    @property
    def n_chars(self) -> int:
        """The characters generated so far."""
        return len(self.content) + len(self.reasoning) + sum(len(call.arguments) for call in self.calls)

    def add(self, chunk: dict[str, Any]) -> str:
        """Take one chunk (with `delta`) or a whole answer (with `message`); return the text that is new.

        Raises StreamError where the chunk has not the shape of a chat completion.
        """
        self._add_usage(chunk.get("usage"))
        choices = chunk.get("choices")
        if choices is None and ("usage" in chunk or "prompt_progress" in chunk):
            return ""
        if not isinstance(choices, list):
            raise StreamError("the answer has no list of choices")
        text = ""
        for choice in choices:
            if not isinstance(choice, dict):
                raise StreamError("a choice of the answer is not an object")
            if choice.get("index") not in (None, 0):
                continue
            self.n_choices += 1
            message = choice.get("delta") or choice.get("message") or {}
            if not isinstance(message, dict):
                raise StreamError("the message of a choice is not an object")
            text += self._add_message(message)
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                self.finish_reason = reason
        return text

    def _add_message(self, message: dict[str, Any]) -> str:
        text = ""
        for name in ("reasoning_content", "reasoning"):
            piece = message.get(name)
            if isinstance(piece, str) and piece:
                self.reasoning_field = self.reasoning_field or name
                if name == self.reasoning_field:  # some servers send both names with the same text
                    self.reasoning += piece
                    text += piece
        piece = message.get("content")
        if isinstance(piece, list):
            piece = "".join(str(part.get("text") or "") for part in piece if isinstance(part, dict))
        if isinstance(piece, str) and piece:
            self.content += piece
            text += piece
        calls = message.get("tool_calls")
        for position, delta in enumerate(calls if isinstance(calls, list) else []):
            if not isinstance(delta, dict):
                raise StreamError("a tool call of the answer is not an object")
            text += self._add_call(delta, position)
        return text

    def _add_call(self, delta: dict[str, Any], position: int) -> str:
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        given_id = delta.get("id") if isinstance(delta.get("id"), str) else ""
        call = self._find_call(delta.get("index", position), given_id or "")
        call.id = call.id or (given_id or "")
        name = function.get("name")
        text = ""
        if isinstance(name, str) and name and name != call.name:
            call.name += name
            text += name
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            call.arguments_object = arguments
        elif isinstance(arguments, str) and arguments:
            call.arguments += arguments
            text += arguments
        return text

    def _find_call(self, key: object, given_id: str) -> CallPieces:
        """The call that a piece belongs to: of the same index, unless it brings another id."""
        for call in reversed(self.calls):
            if call.key == key and (not given_id or not call.id or call.id == given_id):
                return call
        if len(self.calls) >= MAX_CALLS:
            raise StreamError(f"the answer has more than {MAX_CALLS} tool calls")
        call = CallPieces(key=key)
        self.calls.append(call)
        return call

    def _add_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if isinstance(prompt, int):
            self.prompt_tokens = prompt
        if isinstance(completion, int):
            self.completion_tokens = completion


def read_arguments(call: CallPieces) -> dict[str, Any]:
    """The arguments of a structured call; `{}` for what is not an object, so that the tool answers with its error."""
    if call.arguments_object is not None:
        return call.arguments_object
    value: object = call.arguments
    for _ in range(2):  # some servers encode the JSON text once more
        if not isinstance(value, str):
            break
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}
