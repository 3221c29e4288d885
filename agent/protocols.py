"""All that the loop knows of the world: a model, an executor of tools, a recorder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from agent.types import JsonObject, Limits, ModelInfo, Observation, RunEvent, ToolCall, Turn

OnText = Callable[[str], None]
"""Gets each piece of the model's raw text, in order; must not block."""

OnPrefill = Callable[[int, int], None]
"""Gets (tokens read, tokens to read) of the prompt; must not block."""


class ChatModel(Protocol):
    """A model that holds one conversation, append-only.

    The order is open, begin, (generate)*, close. `begin` may come again: it starts the conversation anew.
    Cancelling the task that awaits `generate` stops the generation; the next call is then `begin` or `close`.
    """

    async def open(self, limits: Limits) -> ModelInfo:
        """Load the model. Raises ModelUnavailable, ModelFileError, ContextTooLarge."""
        ...

    async def begin(self, system: str, tools: Sequence[JsonObject], user: str) -> None:
        """Start a conversation: the system prompt, the tools (OpenAI function schemas), the issue."""
        ...

    async def recall(self, turn: Turn, observations: Sequence[Observation]) -> None:
        """Append a turn that was made earlier, and its observations, without generating (resume)."""
        ...

    async def generate(self, observations: Sequence[Observation], on_text: OnText, on_prefill: OnPrefill) -> Turn:
        """Answer the observations of the last turn (none at first).

        Raises ContextOverflow, ModelQueryError, ModelUnavailable.
        """
        ...

    async def close(self) -> None:
        """Release everything. Idempotent; never raises."""
        ...


class ToolExecutor(Protocol):
    """Runs tool calls one after another in the private view."""

    async def execute(self, call: ToolCall) -> Observation:
        """Every trouble of the call is an observation. Raises ToolRunnerDied when the runner is gone."""
        ...


class Recorder(Protocol):
    """Takes the events of a run."""

    def record(self, event: RunEvent) -> None:
        """Must not block and must not raise."""
        ...
