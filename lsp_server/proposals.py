"""What can be done with a run that is over: announce, review, apply, discard, show its log."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Sequence

from agent.changes.changeset import printable
from agent.changes.diff import hunks as hunks_of
from agent.changes.diff import patch, select
from agent.changes.proposals import Proposal, ProposalStore
from agent.errors import ProposalError, UsageError
from agent.types import ChangeKind, ChangeSet, ExitReason, FileChange
from lsp_server.application import Application
from lsp_server.apply.applier import Applier
from lsp_server.client import NoAnswerError
from lsp_server.messages import (
    AppliedFile,
    ApplyResult,
    DiscardResult,
    FileOutcome,
    LogResult,
    ReviewResult,
    RunState,
)
from lsp_server.review import forget_review, write_private
from lsp_server.runs import OVER, RunRecord
from lsp_server.session import RefusedError
from lsp_server.uris import uri_of

logger = logging.getLogger(__name__)

_IN_PLACE: frozenset[FileOutcome] = frozenset({"applied", "unchanged", "unconfirmed"})
_APPLICABLE: frozenset[RunState] = frozenset({"proposed", "applied", "partly-applied", "conflict"})
_STRUCTURE = frozenset({ChangeKind.DELETED, ChangeKind.RENAMED})


class Proposals:
    """The proposals of a connection."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._session = application.session
        self._store = ProposalStore()

    async def records(self) -> list[RunRecord]:
        """All runs of the open folders, also those that earlier servers left; the newest last."""
        kept = await asyncio.to_thread(self._store.list)
        for proposal in reversed(kept):
            self._take_kept(proposal)
        known = self._application.runs.records.values()
        return sorted(known, key=lambda record: record.since_s)

    async def forget_old(self) -> None:
        """Remove what is older than the setting says."""
        days = self._session.settings.state.keep_days
        await asyncio.to_thread(self._store.forget, older_than_days=days)
        trajectory = await asyncio.to_thread(importlib.import_module, "agent.trajectory")
        await asyncio.to_thread(trajectory.forget_trajectories, older_than_days=days)

    def _take_kept(self, proposal: Proposal) -> None:
        folder = next((f for f in self._session.folders if f.path == proposal.workspace), None)
        if folder is not None and proposal.run_id not in self._application.runs.records:
            self._application.runs.records[proposal.run_id] = RunRecord(
                proposal.run_id,
                folder,
                proposal.title,
                state=proposal.state.value,
                since_s=proposal.created_s,
                exit_reason=proposal.exit_reason.value,
                proposal=proposal,
                trajectory=proposal.trajectory,
            )

    def record(self, run_id: str) -> RunRecord:
        """One run. Raises RefusedError."""
        if run_id not in self._application.runs.records:
            try:
                self._take_kept(self._store.load(run_id))
            except ProposalError as error:
                raise RefusedError(error.message) from error
        record = self._application.runs.records.get(run_id)
        if record is None:
            raise RefusedError(f"there is no run {run_id!r} in the open folders")
        return record

    async def _keep(self, proposal: Proposal) -> None:
        try:
            await asyncio.to_thread(self._store.save, proposal)
        except ProposalError as error:
            logger.error("%s %s", error.message, error.hint)
            self._session.client.log(f"{error.message} {error.hint}", "error")

    # --- the end of a run -------------------------------------------------------------------------------------

    async def announce(self, record: RunRecord) -> None:
        """Say how a run ended and, for a proposal, ask what to do with it."""
        client = self._session.client
        if record.state == "nothing":
            words = record.result.final_message.strip() if record.result is not None else ""
            says = f" It says: {words[:300]}" if words else ""
            client.show(f"FrogNano changed nothing for “{record.title}”.{says}")
        elif record.state == "failed":
            client.show(f"FrogNano could not work on “{record.title}”: {_failure(record)}", "error")
        if record.proposal is None:
            return
        await self._keep(record.proposal)
        text = _summary(record.title, record.proposal)
        if not self._session.settings_for(record.folder).review.ask:
            client.log(f"{text} It waits for frog.apply (run {record.run_id}).", "info")
            return
        try:
            answer = await client.ask(text, ["Review", "Apply", "Discard"])
        except NoAnswerError as error:
            logger.info("%s", error)
            client.show(f"{text} Use frog.review, frog.apply or frog.discard (run {record.run_id}).")
            return
        try:
            if answer == "Review":
                await self.review(record.run_id)
            elif answer == "Apply":
                client.show((await self.apply(record.run_id))["message"])
            elif answer == "Discard":
                await self.discard(record.run_id)
        except RefusedError as refused:
            client.show(str(refused), "warning")

    # --- review -----------------------------------------------------------------------------------------------

    async def review(self, run_id: str) -> ReviewResult:
        """Write the numbered diff and show it. Raises RefusedError."""
        record, proposal = self._with_proposal(run_id)
        from agent.changes.review import render

        try:
            path = write_private("reviews", f"{run_id}.diff", render(proposal).encode("utf-8", "backslashreplace"))
        except UsageError as error:
            raise RefusedError(f"{error.message}. {error.hint}") from error
        uri = uri_of(path)
        shown = self._session.capabilities.show_document and await self._session.client.show_document(uri)
        if not shown:
            self._session.client.show(f"The review of “{record.title}” is in {path}")
        return {"uri": uri, "path": path, "shown": shown, "nHunks": len(hunks_of(proposal.changes))}

    # --- apply ------------------------------------------------------------------------------------------------

    async def apply(
        self, run_id: str, files: Sequence[str] | None = None, hunks: Sequence[int] | None = None
    ) -> ApplyResult:
        """Apply a proposal or a part of it through the editor. Raises RefusedError."""
        record, proposal = self._with_proposal(run_id)
        if record.lock.locked():
            raise RefusedError("the proposal is being applied already")
        async with record.lock:
            try:
                chosen = _choose(proposal.changes, files, hunks)
            except UsageError as error:
                raise RefusedError(f"{error.message} {error.hint}".strip()) from error
            applier = Applier(self._session, record.folder, record.spec.buffers if record.spec is not None else None)
            texts = [change for change in chosen if change.kind not in _STRUCTURE]
            structure = [change for change in chosen if change.kind in _STRUCTURE]
            outcomes = await applier.apply(texts)
            outcomes += await self._apply_structure(record, applier, structure, is_named=files is not None)
            record.conflicts = applier.conflicts
            return await self._conclude(record, chosen, outcomes, hunks)

    async def _apply_structure(
        self, record: RunRecord, applier: Applier, changes: list[FileChange], *, is_named: bool
    ) -> list[AppliedFile]:
        """Renames and deletes: asked for apart, unless they were named or no questions are wanted."""
        if not changes:
            return []
        can_all = all(applier.can("rename" if c.kind is ChangeKind.RENAMED else "delete") for c in changes)
        may_ask = self._session.settings_for(record.folder).review.ask
        if is_named or not may_ask or not can_all:
            return await applier.apply_structure(changes)
        self._application.spawn(self._ask_for_structure(record, applier, changes))
        return [
            {"path": printable(change.path), "outcome": "asked", "detail": "waits for your answer"}
            for change in changes
        ]

    async def _ask_for_structure(self, record: RunRecord, applier: Applier, changes: list[FileChange]) -> None:
        words = ", ".join(
            f"rename {printable(change.old_path)} to {printable(change.path)}"
            if change.old_path
            else f"delete {printable(change.path)}"
            for change in changes
        )
        try:
            answer = await self._session.client.ask(f"FrogNano also wants to {words}.", ["Do it", "Keep the files"])
        except NoAnswerError as error:
            logger.info("%s", error)
            names = ", ".join(printable(change.path) for change in changes)
            self._session.client.show(f"Not done: {words}. Name them in frog.apply to do it: {names}.")
            return
        if answer != "Do it":
            return
        async with record.lock:
            result = await self._conclude(record, changes, await applier.apply_structure(changes))
        self._session.client.show(result["message"])

    async def _conclude(
        self,
        record: RunRecord,
        chosen: list[FileChange],
        outcomes: list[AppliedFile],
        hunks: Sequence[int] | None = None,
    ) -> ApplyResult:
        """The state of the proposal after an attempt; what is not in place stays in it."""
        assert record.proposal is not None
        by_outcome = {row["path"]: row["outcome"] for row in outcomes}
        in_place = [change for change in chosen if by_outcome.get(printable(change.path)) in _IN_PLACE]
        whole = [change.path for change in in_place if any(change is c for c in record.proposal.changes.changes)]
        names = {change.path for change in in_place}
        numbers = [
            hunk.number
            for hunk in hunks_of(record.proposal.changes)
            if hunk.path in names and (hunks is None or hunk.number in hunks)
        ]
        is_conflict = not in_place and "conflict" in by_outcome.values()
        record.proposal = record.proposal.with_applied(whole, numbers, conflict=is_conflict)
        record.state = record.proposal.state.value
        await self._keep(record.proposal)
        by_hand = [change for change in chosen if by_outcome.get(printable(change.path)) == "by-hand"]
        patch_path = self._patch_by_hand(record, by_hand)
        return {
            "runId": record.run_id,
            "applied": bool(outcomes) and all(row["outcome"] in _IN_PLACE for row in outcomes),
            "state": record.state,
            "files": outcomes,
            "patch": patch_path,
            "message": _report(outcomes, patch_path),
        }

    def _patch_by_hand(self, record: RunRecord, changes: list[FileChange]) -> str | None:
        text = patch(ChangeSet(changes=tuple(changes))) if changes else ""
        if not text:
            return None
        try:
            return write_private("patches", f"{record.run_id}.patch", text.encode("utf-8", "surrogateescape"))
        except UsageError as error:
            logger.error("%s", error.message)
            return None

    # --- discard and log --------------------------------------------------------------------------------------

    async def discard(self, run_id: str) -> DiscardResult:
        """Forget a proposal. Raises RefusedError for a run that is not over."""
        record = self.record(run_id)
        if record.state not in OVER:
            raise RefusedError("the run is not over: cancel it first")
        if record.lock.locked():
            raise RefusedError("the proposal is being applied")
        record.state = "discarded"
        record.proposal = None
        forget_review(run_id)
        try:
            await asyncio.to_thread(self._store.discard, run_id)
        except ProposalError as error:
            logger.info("%s", error.message)
        return {"runId": run_id, "state": "discarded"}

    async def show_log(self, run_id: str) -> LogResult:
        """Show the trajectory. Raises RefusedError for an unknown run."""
        path = self.record(run_id).trajectory
        shown = False
        if path is not None:
            shown = self._session.capabilities.show_document and await self._session.client.show_document(uri_of(path))
            if not shown:
                self._session.client.show(f"The trajectory of the run is in {path}")
        return {"runId": run_id, "path": path, "shown": shown}

    def _with_proposal(self, run_id: str) -> tuple[RunRecord, Proposal]:
        record = self.record(run_id)
        if record.proposal is None or record.state not in _APPLICABLE:
            raise RefusedError(f"the run has no proposal: it is {record.state}")
        return record, record.proposal


def _choose(changes: ChangeSet, files: Sequence[str] | None, hunks: Sequence[int] | None) -> list[FileChange]:
    """What is to be applied. Flagged changes only where their files are named, those never applied not even then."""
    if files is not None:  # named as the client was told of them
        names = {printable(name): name for c in changes.changes for name in (c.path, c.old_path) if name is not None}
        files = [names.get(name, name) for name in files]
    return [
        change
        for change in select(changes, files, hunks).changes
        if change.applied_by_default or (files is not None and not any(f.level == "never" for f in change.flags))
    ]


def _summary(title: str, proposal: Proposal) -> str:
    n_files = len(proposal.changes.changes)
    text = f"FrogNano proposes changes in {n_files} {'file' if n_files == 1 else 'files'} for “{title}”"
    before, after = proposal.tests_before, proposal.tests_after
    if before is not None and after is not None:
        text += f"; tests: exit code {before.exit_code} before, {after.exit_code} after"
    else:
        text += "; tests: not checked"
    if proposal.exit_reason is not ExitReason.AGENT:
        text += f"; the run ended early ({proposal.exit_reason.value})"
    n_flagged = sum(not change.applied_by_default for change in proposal.changes.changes)
    if n_flagged:
        text += f"; {n_flagged} flagged, not applied unless named"
    if proposal.model.demonstration:
        text += "; demonstration model"
    return text + "."


def _failure(record: RunRecord) -> str:
    error = record.result.error if record.result is not None else None
    if error is None:
        return record.exit_reason or "see the log"
    return f"{error.message} {error.hint}".strip()


def _report(outcomes: Sequence[AppliedFile], patch_path: str | None) -> str:
    """What happened, in one line for a person."""
    if not outcomes:
        return "FrogNano: nothing to apply. Flagged changes are applied only when they are named."
    parts: list[str] = []
    words: dict[FileOutcome, str] = {
        "applied": "applied",
        "unchanged": "already in place",
        "unconfirmed": "applied, but not confirmed",
        "conflict": "in conflict, nothing applied there",
        "mismatch": "not as expected, look at it",
        "rejected": "not applied",
        "by-hand": "to be done by hand",
        "asked": "waiting for your answer",
    }
    for outcome, text in words.items():
        names = [row["path"] for row in outcomes if row["outcome"] == outcome]
        if names:
            parts.append(f"{text}: {', '.join(names)}")
    return "FrogNano: " + "; ".join(parts) + (f". Patch: {patch_path}" if patch_path else "")
