"""What the features share: the session, the runs, the proposals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from lsp_server.progress import ProgressTokens
from lsp_server.proposals.proposals import Proposals
from lsp_server.runs import Launcher, RunManager, RunRecord
from lsp_server.session import Session

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = 0.4
"""A shutdown during a run ends within half a second; what is left then dies with our end of its pipe."""


class Application:
    """One connection's parts."""

    def __init__(self, session: Session, launcher: Launcher) -> None:
        self.session = session
        self.tokens = ProgressTokens()
        self.runs = RunManager(session, self.tokens, launcher, self._run_finished)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.proposals = Proposals(session, self.runs, self.spawn)
        self.on_finished: list[Any] = []
        self.on_initialized: list[Callable[[], None]] = []
        """Called when the client may be asked things."""
        self.on_files_changed: list[Callable[[RunRecord, frozenset[str]], None]] = []
        """Told of a run, and of its files (by their names in the snapshot) that changed in the editor or on disk."""
        self.on_folders_added: list[Callable[[], None]] = []
        self.on_stop: list[Callable[[], None]] = []
        self.is_shut_down = False

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Do something in the background; trouble goes to the log."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task in the background failed", exc_info=error)

    def _run_finished(self, record: RunRecord) -> None:
        if not self.is_shut_down:
            for listener in self.on_finished:
                listener(record)

    async def stop(self) -> None:
        """Cancel all runs and wait for them. Idempotent."""
        self.is_shut_down = True
        for stop in self.on_stop:
            stop()
        for task in list(self._tasks):
            task.cancel()
        await self.runs.close(STOP_TIMEOUT_S)
