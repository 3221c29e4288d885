"""The agent's runs, as the server starts them. Everything heavy is imported when the first run starts.

The worker's model stays loaded between runs and is let go after some idle time.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.errors import FrogError
from agent.types import RunEvent, RunResult, RunSpec
from lsp_server.runs import RunHandle

if TYPE_CHECKING:
    from agent.protocols import ChatModel


class AgentLauncher:
    """Makes real runs. One model of the worker is kept; runs that use it never overlap."""

    def __init__(self) -> None:
        self._model: ChatModel | None = None
        self._model_path: str | None = None
        self._unloading: asyncio.Task[None] | None = None

    def make(self, spec: RunSpec, on_event: Callable[[RunEvent], None], idle_unload_s: float) -> RunHandle:
        """A run of the agent that has not begun."""
        return _LaunchedRun(self, spec, on_event, idle_unload_s)

    async def borrow(self, spec: RunSpec) -> ChatModel | None:
        """The kept model for a run of the worker, None for other kinds. Raises FrogError where there is none."""
        if spec.model.kind != "worker" or spec.seed is not None:
            return None
        self._stop_unloading()
        if self._model is None or self._model_path != spec.model.path:
            from agent.models import choose_model

            await self.close()
            self._model, self._model_path = choose_model(spec, lambda _: None), spec.model.path
        return self._model

    def give_back(self, idle_unload_s: float) -> None:
        """Let the model go when it has been idle for so long."""
        self._stop_unloading()
        if self._model is not None:
            self._unloading = asyncio.create_task(self._unload_later(idle_unload_s))

    async def close(self) -> None:
        """Let the model go now."""
        self._stop_unloading()
        model, self._model = self._model, None
        if model is not None:
            await model.close()

    async def _unload_later(self, idle_s: float) -> None:
        await asyncio.sleep(idle_s)
        self._unloading = None
        await self.close()

    def _stop_unloading(self) -> None:
        if self._unloading is not None:
            self._unloading.cancel()
            self._unloading = None


class _LaunchedRun:
    """A run that imports the agent when it is executed."""

    def __init__(
        self, launcher: AgentLauncher, spec: RunSpec, on_event: Callable[[RunEvent], None], idle_unload_s: float
    ) -> None:
        self._launcher = launcher
        self._spec = spec
        self._on_event = on_event
        self._idle_unload_s = idle_unload_s
        self._cancel: Callable[[], None] | None = None
        self._is_cancelled = False

    async def execute(self) -> RunResult:
        # On a thread, so that the editor is answered while the agent is loaded for the first time.
        module = await asyncio.to_thread(importlib.import_module, "agent.run")

        model: ChatModel | None = None
        with contextlib.suppress(FrogError):  # the run meets the same error and puts it into its result
            model = await self._launcher.borrow(self._spec)
        run = module.Run(self._spec, self._on_event, model=model)
        self._cancel = run.cancel
        if self._is_cancelled:
            run.cancel()
        try:
            result: RunResult = await run.execute()
            return result
        finally:
            if model is not None:
                self._launcher.give_back(self._idle_unload_s)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._cancel is not None:
            self._cancel()
