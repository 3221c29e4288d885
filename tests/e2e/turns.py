"""A ChatModel whose turns are written in the test, some of them with something that happens meanwhile."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agent.protocols import OnPrefill, OnText
from agent.types import JsonObject, Limits, ModelInfo, Observation, ToolCall, Turn, Usage

Item = Turn | Exception | Callable[[], Turn | Awaitable[Turn]]


class Turns:
    """Plays turns in order; an exception is raised, a function is called and gives the turn."""

    def __init__(self, *items: Item, info: ModelInfo | None = None) -> None:
        self.items = list(items)
        self.info = info or ModelInfo(kind="scripted", name="turns")
        self.seen: list[list[Observation]] = []
        self.begun: list[tuple[str, str]] = []
        self.recalled: list[tuple[Turn, list[Observation]]] = []
        self.tools: Sequence[JsonObject] = ()
        self.is_closed = False
        self.waiting = asyncio.Event()

    async def open(self, limits: Limits) -> ModelInfo:
        return self.info

    async def begin(self, system: str, tools: Sequence[JsonObject], user: str) -> None:
        self.begun.append((system, user))
        self.tools = tools

    async def recall(self, turn: Turn, observations: Sequence[Observation]) -> None:
        self.recalled.append((turn, list(observations)))

    async def generate(self, observations: Sequence[Observation], on_text: OnText, on_prefill: OnPrefill) -> Turn:
        self.seen.append(list(observations))
        item = self.items.pop(0)
        if isinstance(item, Exception):
            raise item
        if callable(item):
            made = item()
            item = await made if inspect.isawaitable(made) else made
        on_text(item.content)
        return item

    async def close(self) -> None:
        self.is_closed = True

    async def for_ever(self) -> Turn:
        """A turn that never ends."""
        self.waiting.set()
        await asyncio.sleep(3600)
        return Turn()


def call(name: str, **arguments: Any) -> ToolCall:
    """A call of a tool."""
    return ToolCall(name=name, arguments=arguments, id="")


def turn(*calls: ToolCall, content: str = "") -> Turn:
    """A turn with these calls."""
    return Turn(content=content, calls=calls, usage=Usage(prompt_tokens=10, completion_tokens=5))


def read(path: str) -> ToolCall:
    """A Read."""
    return call("Read", file_path=path)


def edit(path: str, old: str, new: str) -> ToolCall:
    """An Edit."""
    return call("Edit", file_path=path, old_string=old, new_string=new)


def write(path: str, content: str) -> ToolCall:
    """A Write."""
    return call("Write", file_path=path, content=content)


def bash(command: str, **more: Any) -> ToolCall:
    """A Bash."""
    return call("Bash", command=command, **more)
