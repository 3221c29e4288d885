"""The agent's runs, as the server starts them. Everything heavy is imported when the first run starts.

The process of the worker stays between runs, with its model, and is let go after some idle time.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agent.errors import FrogError
from agent.types import RunEvent, RunResult, RunSpec
from lsp_server.runs import RunHandle

if TYPE_CHECKING:
    from agent.model.client import WorkerModel
    from agent.model.keeper import WorkerKeeper
    from agent.run import Run


class AgentLauncher:
    """Makes real runs, and keeps one worker for all of them."""

    def __init__(self) -> None:
        self._keeper: WorkerKeeper | None = None
        self._idle_unload_s = 0.0

    def make(self, spec: RunSpec, on_event: Callable[[RunEvent], None], idle_unload_s: float) -> RunHandle:
        """A run of the agent that has not begun."""
        return _LaunchedRun(self, spec, on_event, idle_unload_s)

    async def worker_model(
        self, spec: RunSpec, idle_unload_s: float, on_note: Callable[[str], None]
    ) -> WorkerModel | None:
        """A model in the kept worker, for a run of the worker; whoever gets it closes it.

        None for other kinds, and where there is no such model: the run then meets the same error and reports it.
        """
        if spec.model.kind != "worker":
            return None
        from agent.model.client import WorkerModel, WorkerOptions
        from agent.model.keeper import WorkerKeeper
        from agent.model.locate import locate

        if self._keeper is None or self._idle_unload_s != idle_unload_s:
            await self.close()
            self._keeper, self._idle_unload_s = WorkerKeeper(idle_unload_s), idle_unload_s
        with contextlib.suppress(FrogError):
            return WorkerModel(
                locate(spec.model.path),
                seed=spec.seed,
                context_is_explicit=spec.context_is_explicit,
                options=WorkerOptions.of(spec.model),
                keeper=self._keeper,
                on_note=on_note,
            )
        return None

    async def close(self) -> None:
        """Let the worker go now."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await keeper.close()


class _LaunchedRun:
    """A run that imports the agent when it is executed."""

    def __init__(
        self, launcher: AgentLauncher, spec: RunSpec, on_event: Callable[[RunEvent], None], idle_unload_s: float
    ) -> None:
        self._launcher = launcher
        self._spec = spec
        self._on_event = on_event
        self._idle_unload_s = idle_unload_s
        self._loading: asyncio.Task[Any] | None = None
        self._run: Run | None = None
        self._is_cancelled = False

    async def execute(self) -> RunResult:
        # On a thread, so that the editor is answered while the agent is loaded for the first time.
        self._loading = asyncio.create_task(asyncio.to_thread(_load, self._spec.model.kind))
        await self._loading
        model = await self._launcher.worker_model(self._spec, self._idle_unload_s, self._note)
        run: Run = importlib.import_module("agent.run").Run(self._spec, self._on_event, model=model)
        self._run = run
        if self._is_cancelled:
            run.cancel()
        try:
            return await run.execute()
        finally:
            if model is not None:
                await model.close()

    def _note(self, text: str) -> None:
        """What the worker says later belongs to the result of its run, too."""
        if self._run is not None:
            self._run.note(text)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._loading is not None:
            self._loading.cancel()  # the thread goes on; nobody waits for it
        if self._run is not None:
            self._run.cancel()


_MODEL_MODULES = {
    "worker": ("agent.model.client", "agent.model.keeper", "agent.model.locate"),
    "endpoint": ("agent.model.consent", "agent.model.endpoint", "httpcore", "h11", "anyio._backends._asyncio"),
    "scripted": ("agent.model.scripted",),
}
"""What a run imports by itself, but on the loop: an HTTP client and what it loads for its first request alone take
0.8 s of a slow core, in which the editor is not answered."""


def _load(model_kind: str) -> None:
    importlib.import_module("agent.run")
    for name in _MODEL_MODULES.get(model_kind, ()):
        with contextlib.suppress(ImportError):  # the run meets the same, and says it
            importlib.import_module(name)
