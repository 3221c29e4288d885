"""From messages to the model's prompt with the chat template inside the GGUF; pure.

History is never rendered again: a turn that was generated stays as its tokens, and only what follows it (the
observations and the next generation prompt) is rendered, by rendering a small made-up conversation and cutting it.
So any template that renders as Qwen3.5's does will do.

Text that is not ours is put in after rendering, as parts of its own, so that the tokenizer can keep it from forging
control tokens (`find_breaks`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.errors import ModelFileError
from agent.model.chat_template import HINT, Renderer, Template
from agent.types import JsonObject, Observation, Turn

_PROBE_TOOL: JsonObject = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "probe",
        "parameters": {"type": "object", "properties": {"probe_key": {"type": "string"}}, "required": ["probe_key"]},
    },
}


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a prompt. What is not `trusted` came from files, commands or people."""

    text: str
    trusted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """The beginning of a conversation, up to and with the first generation prompt.

    `system` is the system turn with the tools (a checkpoint is worth keeping behind it); `user` is the rest.
    """

    system: tuple[Part, ...]
    user: tuple[Part, ...]


class ChatFormat:
    """One chat template. `ends` are the texts of the tokens that end a turn. A `renderer` bounds foreign templates.

    Raises ModelFileError where the file has no template, or one that knows no tools.
    """

    def __init__(
        self,
        template: str | None,
        *,
        bos: str = "",
        ends: Sequence[str] = ("<|im_end|>", "<|endoftext|>"),
        renderer: Renderer | None = None,
    ) -> None:
        if not template or not template.strip():
            raise ModelFileError("the model has no chat template: it is a base model, not one to talk to", HINT)
        self._ends = tuple(ends)
        self._bos = bos
        self._renderer = renderer or Template(template)
        self._check_tools()
        prompt = self._render([_message("system", "S"), _message("user", "U")], [_PROBE_TOOL], generate=True)
        self.opens_thinking = prompt.rstrip().endswith("<think>")

    def prefix(self, system: str, tools: Sequence[JsonObject], user: str) -> Prefix:
        """The system turn with the tools, the first user turn, and the generation prompt."""
        slots = _Slots()
        messages = [_message("system", slots.add(system)), _message("user", slots.add(user))]
        text = self._render(messages, tools, generate=True)
        at = text.find(slots.mark(1))
        start = text.rfind("<|im_start|>", 0, max(0, at))
        cut = start if start > text.find(slots.mark(0)) else 0
        return Prefix(system=tuple(slots.fill(text[:cut])), user=tuple(slots.fill(text[cut:])))

    def suffix(self, observations: Sequence[Observation]) -> list[Part]:
        """What follows a generated turn: its end mark, the observations, and the next generation prompt."""
        slots = _Slots()
        answer = slots.add("")
        calls = [_call("probe_tool", {"probe_key": "x"}, f"call_{i}") for i in range(max(1, len(observations)))]
        messages = [
            _message("system", "S"),
            _message("user", "U"),
            {"role": "assistant", "content": answer, "reasoning_content": "R", "tool_calls": calls},
        ]
        messages += [
            {"role": "tool", "content": slots.add(item.text), "name": item.tool, "tool_call_id": f"call_{i}"}
            for i, item in enumerate(observations)
        ]
        text = self._render(messages, [_PROBE_TOOL], generate=True)
        answer_at = text.find(slots.mark(0))
        end = min((at for at in (text.find(mark, answer_at) for mark in self._ends) if at >= 0), default=-1)
        if end < 0:
            raise ModelFileError(f"the chat template ends a turn with none of {', '.join(self._ends)}", HINT)
        return list(slots.fill(text[end:]))

    def turn(self, turn: Turn) -> list[Part]:
        """A turn as the model would have generated it: behind the generation prompt, without the end mark."""
        if turn.raw is not None:
            return [Part(turn.raw, trusted=True)]
        calls = [_call(call.name, call.arguments, call.id or f"call_{i}") for i, call in enumerate(turn.calls)]
        before = [_message("system", "S"), _message("user", "U")]
        message = {"role": "assistant", "content": turn.content, "reasoning_content": turn.reasoning}
        prompt = self._render(before, [_PROBE_TOOL], generate=True)
        whole = self._render([*before, {**message, **({"tool_calls": calls} if calls else {})}], [_PROBE_TOOL])
        end = max(whole.rfind(mark) for mark in self._ends)
        if end < 0 or not whole.startswith(prompt):
            return [Part(_plain_turn(turn), trusted=True)]
        return [Part(whole[len(prompt) : end], trusted=True)]

    def _render(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], *, generate: bool = False) -> str:
        return self._renderer.render(
            {
                "messages": list(messages),
                "tools": list(tools) or None,
                "add_generation_prompt": generate,
                "enable_thinking": True,
                "preserve_thinking": True,
                "bos_token": self._bos,
                "eos_token": self._ends[0],
            }
        )

    def _check_tools(self) -> None:
        messages = [
            _message("system", "S"),
            _message("user", "U"),
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "R",
                "tool_calls": [_call("probe_tool", {"probe_key": "probe_value"}, "call_0")],
            },
            {"role": "tool", "content": "probe_answer", "name": "probe_tool", "tool_call_id": "call_0"},
        ]
        text = self._render(messages, [_PROBE_TOOL], generate=True)
        if "probe_key" not in text.split("probe_value")[0] or "probe_answer" not in text:
            raise ModelFileError("the chat template of the model knows no tools", HINT)
        if "<tool_call>" not in text or "<function=" not in text:
            raise ModelFileError(
                "the chat template of the model writes tool calls in another way than Qwen3.5's",
                "Use FrogNano (`frog-lsp model pull`), or serve the model and give its --endpoint.",
            )


def complete_thinking(raw: str, opens_thinking: bool) -> str:
    """The text for the parser, which begins inside thinking, where the generation prompt does not open it."""
    return raw if opens_thinking or raw.lstrip().startswith("<think>") else f"</think>\n\n{raw}"


def find_breaks(parts: Iterable[Part], tags: re.Pattern[str]) -> list[str]:
    """Cut a prompt into pieces to be tokenised apart, so that no tag comes about that the template did not write.

    `tags` matches the texts that the tokenizer would take as one control token. A tag that lies wholly or
    in part in text that is not trusted is cut behind its first character: the characters stay the same.
    """
    text, trusted = "", []
    for part in parts:
        if part.trusted:
            trusted.append((len(text), len(text) + len(part.text)))
        text += part.text
    pieces, begin, area = [], 0, 0
    at = 0
    while match := tags.search(text, at):
        start, end = match.span()
        while area < len(trusted) and trusted[area][1] < end:
            area += 1
        if not (area < len(trusted) and trusted[area][0] <= start and end <= trusted[area][1]):
            pieces.append(text[begin : start + 1])
            begin = start + 1
        at = start + 1
    pieces.append(text[begin:])
    return [piece for piece in pieces if piece]


def tag_pattern(texts: Iterable[str]) -> re.Pattern[str]:
    """The pattern of `find_breaks` for the texts of a vocabulary's control tokens."""
    ordered = sorted({text for text in texts if len(text) > 1}, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, ordered)) or r"(?!)")


class _Slots:
    """Places in a rendered template for text that is not ours.

    Each is rendered between two spaces: a template that trims its contents takes them away, and then the text is
    trimmed too.
    """

    def __init__(self) -> None:
        self._contents: list[str] = []

    def mark(self, i: int) -> str:
        return f"\ue000frog:{i}\ue001"

    def add(self, content: str) -> str:
        self._contents.append(content)
        return f" {self.mark(len(self._contents) - 1)} "

    def fill(self, text: str) -> list[Part]:
        parts: list[Part] = []
        for i, content in enumerate(self._contents):
            before, found, after = text.partition(self.mark(i))
            if not found:
                continue
            if before.endswith(" "):
                before = before[:-1]
            else:
                content = content.lstrip()
            if after.startswith(" "):
                after = after[1:]
            else:
                content = content.rstrip()
            parts += [Part(before, trusted=True), Part(content, trusted=False)]
            text = after
        return [part for part in [*parts, Part(text, trusted=True)] if part.text]


def _message(role: str, content: str) -> JsonObject:
    return {"role": role, "content": content}


def _call(name: str, arguments: Mapping[str, Any], call_id: str) -> JsonObject:
    """A call for the template. Values are texts already: `True` would else be written for `true`."""
    texts = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in arguments.items()
    }
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": texts}}


def _plain_turn(turn: Turn) -> str:
    """The wire format of the Qwen3.5 family, for a template that renders history in another way."""
    calls = []
    for call in turn.calls:
        values = _call(call.name, call.arguments, "")["function"]["arguments"]
        body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
        calls.append(f"<tool_call>\n<function={call.name}>\n{body}</function>\n</tool_call>")
    rest = "\n\n".join(filter(None, [turn.content, "\n".join(calls)]))
    return f"{turn.reasoning}\n</think>\n\n{rest}"
