"""The runs of the open folders with their proposals: in memory those of this server, on disk those of all.

What is on disk counts: the command line may have applied or discarded a part meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from agent.changes.proposals import Proposal, ProposalState, ProposalStore
from agent.errors import ProposalError
from lsp_server.apply.plan import Past
from lsp_server.messages import RunState
from lsp_server.runs import RunManager, RunRecord
from lsp_server.session import RefusedError, Session

logger = logging.getLogger(__name__)

_APPLICABLE: frozenset[RunState] = frozenset({"proposed", "applied", "partly-applied", "conflict"})


class KeptProposals:
    """Finds, keeps and changes the proposals of a connection."""

    def __init__(self, session: Session, runs: RunManager) -> None:
        self._session = session
        self._runs = runs
        self._store = ProposalStore()
        self._writing = asyncio.Lock()
        self._n_written = 0
        self._in_memory_alone: set[str] = set()
        """Runs whose proposal is another on disk, since it could not be written."""

    async def records(self) -> list[RunRecord]:
        """All runs of the open folders, also those that earlier servers left; the newest last."""
        n_written = self._n_written
        kept = await asyncio.to_thread(self._store.list)
        for proposal in reversed(kept):
            record = self._runs.records.get(proposal.run_id)
            if record is None:
                self._take(proposal)
            elif n_written == self._n_written:
                self._take_step_of_others(record, proposal)
        return sorted(self._runs.records.values(), key=lambda record: record.since_s)

    def record(self, run_id: str) -> RunRecord:
        """One run. Raises RefusedError."""
        if run_id not in self._runs.records:
            try:
                self._take(self._store.load(run_id))
            except ProposalError as error:
                raise RefusedError(error.message) from error
        record = self._runs.records.get(run_id)
        if record is None:
            raise RefusedError(f"there is no run {run_id!r} in the open folders")
        return record

    async def with_proposal(self, run_id: str) -> tuple[RunRecord, Proposal]:
        """A run that has something to apply, as it is on disk now. Raises RefusedError."""
        record = self.record(run_id)
        if record.proposal is not None and record.state in _APPLICABLE:
            try:
                kept = await asyncio.to_thread(self._store.load, run_id)
            except ProposalError as error:
                logger.info("run %s is in memory alone: %s", run_id, error.message)
            else:
                self._take_step_of_others(record, kept)
        if record.proposal is None or record.state not in _APPLICABLE:
            raise RefusedError(f"the run has no proposal: it is {record.state}")
        return record, record.proposal

    async def keep(self, record: RunRecord) -> None:
        """Write the proposal of a run that has just ended."""
        async with self._changing():
            if record.proposal is not None:
                await self._save(record.proposal)

    async def step(self, record: RunRecord, change: Callable[[Proposal], Proposal]) -> Proposal:
        """Change a proposal on disk and in memory; what it is then. Raises what `change` raises."""
        async with self._changing():
            known = record.proposal
            assert known is not None
            is_on_disk = record.run_id not in self._in_memory_alone
            try:
                after = await asyncio.to_thread(
                    self._store.update,
                    record.run_id,
                    lambda kept: change(_followed(kept, known) if is_on_disk else known),
                )
                self._in_memory_alone.discard(record.run_id)
            except ProposalError as error:  # a full disk, or it was never kept
                logger.info("%s", error.message)
                after = change(known)
                await self._save(after)
            self._take_state(record, after)
        self._runs.tell_changed()
        return after

    async def forget(self, record: RunRecord) -> None:
        """Discard a whole proposal; the line of the run stays."""
        record.state, record.proposal = "discarded", None
        async with self._changing():
            try:
                await asyncio.to_thread(self._store.discard, record.run_id)
            except ProposalError as error:
                logger.info("%s", error.message)
        self._runs.tell_changed()

    async def forget_old(self) -> None:
        """Remove what is older than the setting says."""
        days = self._session.settings.state.keep_days
        await asyncio.to_thread(self._store.forget, older_than_days=days)
        trajectory = await asyncio.to_thread(importlib.import_module, "agent.trajectory")
        await asyncio.to_thread(trajectory.forget_trajectories, older_than_days=days)

    def _take(self, proposal: Proposal) -> None:
        if proposal.run_id in self._runs.records:
            return
        folder = self._session.folder_at(proposal.workspace)
        if folder is not None:
            record = RunRecord(
                proposal.run_id,
                folder,
                proposal.title,
                state=proposal.state.value,
                since_s=proposal.created_s,
                exit_reason=proposal.exit_reason.value,
                proposal=proposal,
                trajectory=proposal.trajectory,
            )
            self._runs.add(record)

    @contextlib.asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """One change at a time; what was read from disk before or meanwhile is old afterwards."""
        async with self._writing:
            self._n_written += 1
            try:
                yield
            finally:
                self._n_written += 1

    def _take_step_of_others(self, record: RunRecord, kept: Proposal) -> None:
        """Another process may have changed what is on disk; what is just being changed here is not looked at."""
        is_known = record.proposal is not None and record.run_id not in self._in_memory_alone
        if is_known and not record.lock.locked():
            self._take_state(record, kept)

    @staticmethod
    def _take_state(record: RunRecord, proposal: Proposal) -> None:
        known = record.proposal
        record.state = proposal.state.value
        is_gone = proposal.state is ProposalState.DISCARDED
        record.proposal = None if is_gone or known is None else _followed(proposal, known)

    async def _save(self, proposal: Proposal) -> None:
        try:
            await asyncio.to_thread(self._store.save, proposal)
        except ProposalError as error:
            self._in_memory_alone.add(proposal.run_id)
            logger.error("%s", error.in_one_line)
            self._session.client.log(error.in_one_line, "error")


def _followed(kept: Proposal, known: Proposal) -> Proposal:
    """The proposal on disk, with what the client renamed since and this server alone may know yet."""
    return replace(kept, workspace=known.workspace, folder=known.folder, renames=known.renames)


def past_of(record: RunRecord) -> Past:
    """What is known of the time of a run; a run of an earlier server has told nothing of buffers."""
    return Past(record.spec.buffers if record.spec is not None else None, record.seems_at, record.unseen)
