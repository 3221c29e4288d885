"""The runs of a connection: start, queue, cancel, finish; one asyncio task a run, one run a folder.

Runs of the worker share one model, so those of several folders wait for one another too, first come, first served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from agent.changes.changeset import printable
from agent.changes.proposal import Proposal
from agent.changes.renames import LostError, Renames
from agent.types import ChangeKind, ExitReason, RunEvent, RunResult, RunSpec, RunStarted, ToolStarted
from lsp_server.messages import RunRow, RunState
from lsp_server.progress import ProgressTokens, RunProgress
from lsp_server.renames import name_in
from lsp_server.session import Folder, RefusedError, Session, read_file
from lsp_server.uris import is_at_or_below, relative_to

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


class NotToldError(Exception):
    """The person did not say what is to be fixed."""


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
    trajectory: str | None = None
    idle_unload_s: float = 600.0
    handle: RunHandle | None = None
    task: asyncio.Task[None] | None = None
    is_asking: bool = False
    """Whether the person is being asked what is to be fixed. No other run waits for that."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the proposal is applied: one at a time."""
    touched: set[str] = field(default_factory=set)
    """The files that the run's tools named so far."""
    changed: set[str] = field(default_factory=set)
    """The files that somebody else changed on disk since the run began, by their names in the snapshot."""
    seems_at: dict[str, str] = field(default_factory=dict)
    """Of files that are gone, where the same bytes were found. A guess for a person, never followed."""
    unseen: dict[str, bytes | None] = field(default_factory=dict)
    """Files that the client said it edited, though nothing showed it; with what was on disk then."""
    cancelled_because: str = ""
    place: int = 0
    """Its place in the queue."""
    _renames: Renames = field(default_factory=Renames)

    @property
    def is_alive(self) -> bool:
        """Whether it is not over."""
        return self.state in ("queued", "running")

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to apply."""
        return self.proposal is not None and self.state in ("proposed", "partly-applied", "conflict")

    @property
    def renames(self) -> Renames:
        """What the client renamed since the snapshot; kept with the proposal once there is one."""
        return Renames(self.proposal.renames) if self.proposal is not None else self._renames

    @renames.setter
    def renames(self, renames: Renames) -> None:
        self._renames = renames
        if self.proposal is not None:
            self.proposal = replace(self.proposal, renames=renames.pairs)

    def note_unseen(self, relative: str) -> None:
        """The client said that it edited a file, and neither a document nor the disk shows it."""
        with contextlib.suppress(LostError):
            self.unseen[relative] = read_file(os.path.join(self.folder.path, self.path_now(relative)))

    def path_now(self, relative: str) -> str:
        """Where a file of the snapshot, or one that the run makes, is in the folder today. Raises LostError."""
        return self.renames.place(relative, is_there=not self._is_to_be_made(relative))

    def _is_to_be_made(self, relative: str) -> bool:
        proposal = self.proposal
        makes = (ChangeKind.CREATED, ChangeKind.RENAMED)
        if proposal is None or relative in proposal.applied_files:
            return False
        if not any(change.path == relative and change.kind in makes for change in proposal.changes.changes):
            return False
        if not proposal.applied_hunks:
            return True
        return proposal.hunk_numbers().get(relative, frozenset()).isdisjoint(proposal.applied_hunks)

    def row(self) -> RunRow:
        """The run as `frog.runs` lists it."""
        row: RunRow = {
            "runId": self.run_id,
            "state": self.state,
            "title": self.title,
            "folder": self.folder.uri,
            "exitReason": self.exit_reason,
            "files": [printable(change.path) for change in self.proposal.changes.changes] if self.proposal else [],
        }
        if self.state == "queued":
            row["place"] = self.place
        return row

    def blocks(self, other: RunRecord) -> bool:
        """Whether `other` has to wait for this run: the same folder, or the one model of this machine."""
        if self.is_asking:
            return False
        if self.folder.path == other.folder.path or self.folder.real == other.folder.real:
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
        self.on_changed: list[Callable[[], None]] = []
        """Called when a run began, touched another file, is over, or was renamed: what to watch may be another."""
        self._is_closed = False

    def start(
        self,
        spec: RunSpec,
        folder: Folder,
        idle_unload_s: float,
        ask: Callable[[], Awaitable[RunSpec]] | None = None,
    ) -> tuple[RunRecord, int]:
        """Queue a run and start it if nothing is in its way; the record and its place (0: it starts now).

        With `ask` the run stays queued until that gives its spec; where it raises NotToldError, it is cancelled.
        Raises RefusedError when the connection is ending.
        """
        if self._is_closed:
            raise RefusedError("the server is shutting down")
        record = RunRecord(spec.run_id, folder, spec.issue.title, spec=spec, idle_unload_s=idle_unload_s)
        record.is_asking = ask is not None
        self.records[spec.run_id] = record
        record.place = len(self._ahead_of(record))
        record.task = asyncio.create_task(self._do(record, ask), name=f"lsp run {spec.run_id}")
        return record, record.place

    def add(self, record: RunRecord) -> None:
        """Take a run that an earlier server left."""
        self.records[record.run_id] = record
        self.tell_changed()

    def tell_changed(self) -> None:
        """Tell the listeners that something is another way with the runs."""
        for listener in self.on_changed:
            listener()

    def cancel(self, run_id: str | None = None) -> list[str]:
        """Cancel one run or all; the ids of those that were not over."""
        chosen = [r for r in self.records.values() if run_id in (None, r.run_id) and r.is_alive]
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

    # --- the workspace changes --------------------------------------------------------------------------------

    def leave(self, folder: Folder) -> list[str]:
        """A workspace folder was removed: its runs are cancelled, its proposals stay on disk. The ids of the runs.

        One whose proposal is just being applied stays until that is done.
        """
        mine = [record for record in self.records.values() if record.folder.path == folder.path]
        alive = [record for record in mine if record.is_alive]
        for record in alive:
            record.cancelled_because = "its folder was removed from the workspace"
            self._cancel_one(record)
        for record in mine:
            if record not in alive and not record.lock.locked():
                del self.records[record.run_id]
        self.tell_changed()
        return [record.run_id for record in alive]

    def follow_rename(self, old: str, new: str) -> list[RunRecord]:
        """A file or folder has another path: runs and proposals follow. Those whose proposal is to be kept anew.

        A run that works in a workspace folder that was renamed itself is cancelled: what it reads is by the old path.
        """
        follow: list[RunRecord] = []
        for record in self.records.values():
            if is_at_or_below(record.folder.path, old):
                self._move_folder(record, new + record.folder.path[len(old) :])
            else:
                folder = record.folder.path
                names = name_in(folder, old), name_in(folder, new)
                if os.path.isabs(names[0]) and not any(names[0] in pair for pair in record.renames.pairs):
                    continue  # it never was of this folder
                record.renames = record.renames.then(*names)
            if record.proposal is not None:
                follow.append(record)
        self.tell_changed()
        return follow

    def _move_folder(self, record: RunRecord, path: str) -> None:
        known = next((folder for folder in self._session.folders if folder.path == path), None)
        record.folder = known or replace(record.folder, path=path)
        if record.proposal is not None:
            record.proposal = replace(record.proposal, workspace=path, folder=record.folder.uri)
        if record.state == "queued" and record.spec is not None:
            record.spec = replace(record.spec, workspace=path)
        elif record.state == "running":
            record.cancelled_because = "its folder was renamed"
            self._cancel_one(record)

    # --- one run ----------------------------------------------------------------------------------------------

    async def _do(self, record: RunRecord, ask: Callable[[], Awaitable[RunSpec]] | None) -> None:
        progress = RunProgress(
            self._session.client,
            self._session.capabilities,
            self._tokens,
            record.run_id,
            f"FrogNano: {record.title}",
            lambda: self._cancel_one(record),
        )
        place = f"queued, place {record.place}" if record.place else "starting"
        begun = asyncio.create_task(progress.begin("asking what to fix" if ask else place))

        def take(event: RunEvent) -> None:
            progress.take(event)
            if isinstance(event, RunStarted):
                record.trajectory = event.trajectory
            elif isinstance(event, ToolStarted):
                self._note_touched(record, event)

        try:
            if ask is not None:
                self._take_spec(record, await ask())
            await self._wait_for_turn(record, progress)
            record.state = "running"
            assert record.spec is not None
            record.touched.update(record.spec.buffers)
            record.handle = self._launcher.make(record.spec, take, record.idle_unload_s)
            self.tell_changed()
            self._take_result(record, await record.handle.execute())
        except (asyncio.CancelledError, NotToldError):
            record.state, record.exit_reason = "cancelled", ExitReason.CANCELLED.value
        except Exception:
            logger.exception("run %s failed", record.run_id)
            record.state = "failed"
        finally:
            record.handle, record.is_asking = None, False
            progress.end(_last_words(record))
            begun.cancel()
            self._on_finished(record)
            self.tell_changed()

    def _ahead_of(self, record: RunRecord) -> list[RunRecord]:
        """The runs that it has to wait for. Records are kept in the order in which they came."""
        ahead: list[RunRecord] = []
        for other in self.records.values():
            if other is record:
                break
            if other.is_alive and other.blocks(record):
                ahead.append(other)
        return ahead

    async def _wait_for_turn(self, record: RunRecord, progress: RunProgress) -> None:
        told = record.place
        while ahead := self._ahead_of(record):
            record.place = len(ahead)
            if record.place != told:
                told = record.place
                progress.report(f"queued, place {told}")
            tasks = [other.task for other in ahead if other.task is not None]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        record.place = 0
        if told:
            progress.report("starting")

    def _note_touched(self, record: RunRecord, event: ToolStarted) -> None:
        name = event.call.arguments.get("file_path")
        if not isinstance(name, str) or "\0" in name or record.spec is None:
            return
        path = os.path.normpath(os.path.join(record.spec.workspace, name))
        relative = relative_to(record.spec.workspace, path)
        if relative is not None and relative not in record.touched:
            record.touched.add(relative)
            self.tell_changed()

    def _take_spec(self, record: RunRecord, spec: RunSpec) -> None:
        """The person has said what to fix: the run takes its place behind those that came meanwhile."""
        record.spec, record.title, record.is_asking = spec, spec.issue.title, False
        self.records[record.run_id] = self.records.pop(record.run_id)

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
            proposal = Proposal.of(record.spec, result, record.folder.uri)
            record.proposal = replace(proposal, renames=record.renames.pairs)
            record.state = "proposed"
        elif result.error is not None or result.exit_reason in _FAILURES:
            record.state = "failed"
        else:
            record.state = "nothing"


def _last_words(record: RunRecord) -> str:
    if record.state == "proposed":
        n = len(record.proposal.changes.changes) if record.proposal else 0
        return f"a proposal: {n} {'file' if n == 1 else 'files'}"
    if record.state == "cancelled" and record.cancelled_because:
        return f"cancelled: {record.cancelled_because}"
    if record.state == "failed" and record.result is not None and record.result.error is not None:
        return f"failed: {record.result.error.message}"
    words = {"nothing": "ended without a change", "cancelled": "cancelled", "failed": "failed"}
    return words.get(record.state, "ended")
