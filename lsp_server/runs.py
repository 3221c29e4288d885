"""The runs of a connection: start, queue, cancel, finish; one asyncio task a run, one run a folder.

Runs of the worker share one model, so those of several folders wait for one another too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from agent.changes.changeset import printable
from agent.changes.merge import Conflict
from agent.changes.proposal import Proposal
from agent.types import ExitReason, RunEvent, RunResult, RunSpec
from lsp_server.messages import RunRow, RunState
from lsp_server.progress import ProgressTokens, RunProgress
from lsp_server.session import Folder, Session

logger = logging.getLogger(__name__)

OVER: frozenset[RunState] = frozenset(
    {"proposed", "nothing", "applied", "partly-applied", "conflict", "discarded", "cancelled", "failed"}
)
_FAILURES = frozenset(
    {
        ExitReason.LLM_QUERY_ERROR,
        ExitReason.TOOL_ERROR,
        ExitReason.JAIL_UNAVAILABLE,
        ExitReason.MODEL_UNAVAILABLE,
    }
)


class RunHandle(Protocol):
    """A run of the agent."""

    async def execute(self) -> RunResult:
        """Do the run; trouble is in the result."""
        ...

    def cancel(self) -> None:
        """Stop generating and kill every jailed process."""
        ...


class Launcher(Protocol):
    """Makes runs, and holds what they share (the model)."""

    def make(self, spec: RunSpec, on_event: Callable[[RunEvent], None], idle_unload_s: float) -> RunHandle:
        """A run that has not begun."""
        ...

    async def close(self) -> None:
        """Release what is shared."""
        ...


@dataclass(slots=True)
class RunRecord:
    """One run. `proposal` is there once it has ended with changes; `result` once it has ended in this process."""

    run_id: str
    folder: Folder
    title: str
    state: RunState = "queued"
    spec: RunSpec | None = None
    since_s: float = field(default_factory=time.time)
    exit_reason: str | None = None
    proposal: Proposal | None = None
    result: RunResult | None = None
    conflicts: dict[str, tuple[Conflict, ...]] = field(default_factory=dict)
    """By path, of the last attempt to apply."""
    trajectory: str | None = None
    idle_unload_s: float = 600.0
    handle: RunHandle | None = None
    task: asyncio.Task[None] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the proposal is applied: one at a time."""

    def row(self) -> RunRow:
        """The run as `frog.runs` lists it."""
        return {
            "runId": self.run_id,
            "state": self.state,
            "title": self.title,
            "folder": self.folder.uri,
            "exitReason": self.exit_reason,
            "files": [printable(change.path) for change in self.proposal.changes.changes] if self.proposal else [],
        }

    def blocks(self, other: RunRecord) -> bool:
        """Whether `other` has to wait for this run: the same folder, or the one model of this machine."""
        if self.folder.path == other.folder.path:
            return True
        kinds = [record.spec.model.kind for record in (self, other) if record.spec is not None]
        return kinds == ["worker", "worker"]


class RunManager:
    """All runs of a connection, by id. `on_finished` is called on the loop when a run is over."""

    def __init__(
        self,
        session: Session,
        tokens: ProgressTokens,
        launcher: Launcher,
        on_finished: Callable[[RunRecord], None],
    ) -> None:
        self._session = session
        self._tokens = tokens
        self._launcher = launcher
        self._on_finished = on_finished
        self.records: dict[str, RunRecord] = {}
        self._is_closed = False

    def start(self, spec: RunSpec, folder: Folder, idle_unload_s: float) -> tuple[RunRecord, int]:
        """Queue a run and start it if nothing is in its way; the record and its place (0: it starts now)."""
        record = RunRecord(spec.run_id, folder, spec.issue.title, spec=spec, idle_unload_s=idle_unload_s)
        place = sum(other.state in ("queued", "running") and other.blocks(record) for other in self.records.values())
        self.records[spec.run_id] = record
        record.task = asyncio.create_task(self._do(record, place), name=f"lsp run {spec.run_id}")
        return record, place

    def cancel(self, run_id: str | None = None) -> list[str]:
        """Cancel one run or all; the ids of those that were not over."""
        chosen = [r for r in self.records.values() if run_id in (None, r.run_id) and r.state in ("queued", "running")]
        for record in chosen:
            self._cancel_one(record)
        return [record.run_id for record in chosen]

    @staticmethod
    def _cancel_one(record: RunRecord) -> None:
        if record.handle is not None:
            record.handle.cancel()
        elif record.task is not None:
            record.task.cancel()

    async def close(self, timeout_s: float) -> None:
        """Cancel everything and wait for it, then release the model."""
        self._is_closed = True
        self.cancel()
        tasks = [record.task for record in self.records.values() if record.task is not None and not record.task.done()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                if tasks:
                    await asyncio.wait(tasks)
                await self._launcher.close()

    # --- one run ----------------------------------------------------------------------------------------------

    async def _do(self, record: RunRecord, place: int) -> None:
        progress = RunProgress(
            self._session.client,
            self._session.capabilities,
            self._tokens,
            record.run_id,
            f"FrogNano: {record.title}",
            lambda: self._cancel_one(record),
        )
        begun = asyncio.create_task(progress.begin(f"queued, place {place}" if place else "starting"))
        try:
            await self._wait_for_turn(record, progress)
            record.state = "running"
            assert record.spec is not None
            record.handle = self._launcher.make(record.spec, progress.take, record.idle_unload_s)
            self._take_result(record, await record.handle.execute())
        except asyncio.CancelledError:
            record.state, record.exit_reason = "cancelled", ExitReason.CANCELLED.value
        except Exception:
            logger.exception("run %s failed", record.run_id)
            record.state = "failed"
        finally:
            record.handle = None
            progress.end(_last_words(record))
            begun.cancel()
            self._on_finished(record)

    async def _wait_for_turn(self, record: RunRecord, progress: RunProgress) -> None:
        last = -1
        while True:
            ahead = [
                other
                for other in self.records.values()
                if other is not record and other.state in ("queued", "running") and other.blocks(record)
            ]
            # Records are kept in the order in which they came: only those before this one are ahead.
            order = list(self.records)
            ahead = [other for other in ahead if order.index(other.run_id) < order.index(record.run_id)]
            if not ahead:
                return
            if len(ahead) != last:
                last = len(ahead)
                progress.report(f"queued, place {last}")
            await asyncio.wait(
                [other.task for other in ahead if other.task is not None], return_when=asyncio.FIRST_COMPLETED
            )

    @staticmethod
    def _take_result(record: RunRecord, result: RunResult) -> None:
        record.result = result
        record.exit_reason = result.exit_reason.value
        record.trajectory = result.trajectory
        if result.exit_reason is ExitReason.CANCELLED:
            record.state = "cancelled"
            return
        if result.changes.changes:
            assert record.spec is not None
            record.proposal = Proposal.of(record.spec, result, record.folder.uri)
            record.state = "proposed"
        elif result.error is not None or result.exit_reason in _FAILURES:
            record.state = "failed"
        else:
            record.state = "nothing"


def _last_words(record: RunRecord) -> str:
    if record.state == "proposed":
        n = len(record.proposal.changes.changes) if record.proposal else 0
        return f"a proposal: {n} {'file' if n == 1 else 'files'}"
    if record.state == "failed" and record.result is not None and record.result.error is not None:
        return f"failed: {record.result.error.message}"
    words = {"nothing": "ended without a change", "cancelled": "cancelled", "failed": "failed"}
    return words.get(record.state, "ended")
