"""Applying and discarding a proposal or a part of it; what is not in place stays in it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent.changes.changeset import printable
from agent.changes.diff import patch
from agent.changes.proposal import Proposal, is_never_applied
from agent.errors import UsageError
from agent.types import ChangeKind, ChangeSet, FileChange
from lsp_server.apply.applier import Applier
from lsp_server.client import NoAnswerError
from lsp_server.messages import AppliedFile, ApplyResult, DiscardResult, FileOutcome
from lsp_server.proposals.kept import KeptProposals, past_of
from lsp_server.proposals.reviews import Reviews, Spawn
from lsp_server.proposals.words import report
from lsp_server.review import write_private
from lsp_server.runs import OVER, RunRecord
from lsp_server.session import RefusedError, Session

logger = logging.getLogger(__name__)

_IN_PLACE: frozenset[FileOutcome] = frozenset({"applied", "unchanged"})
_STRUCTURE = frozenset({ChangeKind.DELETED, ChangeKind.RENAMED})


class Decisions:
    """Does what a person decided."""

    def __init__(self, session: Session, kept: KeptProposals, reviews: Reviews, spawn: Spawn) -> None:
        self._session = session
        self._kept = kept
        self._reviews = reviews
        self._spawn = spawn

    async def apply(
        self, run_id: str, files: Sequence[str] | None = None, hunks: Sequence[int] | None = None
    ) -> ApplyResult:
        """Apply a proposal or a part of it through the editor. Raises RefusedError."""
        record, _ = await self._kept.with_proposal(run_id)
        if record.lock.locked():
            raise RefusedError("the proposal is being applied already")
        async with record.lock:
            proposal = record.proposal
            if proposal is None:
                raise RefusedError(f"the run has no proposal: it is {record.state}")
            try:
                chosen = _choose(proposal, files, hunks)
            except UsageError as error:
                raise _refused(error) from error
            applier = Applier(self._session, record.folder, past_of(record), record.path_now)
            texts = [change for change in chosen if change.kind not in _STRUCTURE]
            structure = [change for change in chosen if change.kind in _STRUCTURE]
            outcomes = await applier.apply(texts)
            is_named = files is not None or hunks is not None
            outcomes += await self._apply_structure(record, applier, structure, is_named=is_named)
            result = await self._conclude(record, chosen, outcomes, hunks)
        self._spawn(self._reviews.refresh(run_id))
        return result

    async def discard(
        self, run_id: str, files: Sequence[str] | None = None, hunks: Sequence[int] | None = None
    ) -> DiscardResult:
        """Take files or hunks out of a proposal, or forget all of it. Raises RefusedError."""
        record = self._kept.record(run_id)
        if record.state not in OVER:
            raise RefusedError("the run is not over: cancel it first")
        is_whole = files is None and hunks is None
        if not is_whole:
            await self._kept.with_proposal(run_id)
        if record.lock.locked():
            raise RefusedError("the proposal is being applied")
        async with record.lock:
            if is_whole or record.proposal is None:
                await self._kept.forget(record)
            else:
                named = _named(record.proposal, files)
                try:
                    await self._kept.step(record, lambda kept: kept.with_discarded(named, hunks))
                except UsageError as error:
                    raise _refused(error) from error
        self._spawn(self._reviews.refresh(run_id))
        return {"runId": run_id, "state": record.state}

    # --- renames and deletes ----------------------------------------------------------------------------------

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
        self._spawn(self._ask_for_structure(record, applier, changes))
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
            left = record.proposal.chosen().changes if record.proposal is not None else ()
            if any(change not in left for change in changes):
                self._session.client.show(f"Not done: {words}. It was discarded meanwhile.")
                return
            result = await self._conclude(record, changes, await applier.apply_structure(changes))
        self._spawn(self._reviews.refresh(record.run_id))
        self._session.client.show(result["message"])

    async def _conclude(
        self,
        record: RunRecord,
        chosen: list[FileChange],
        outcomes: list[AppliedFile],
        hunks: Sequence[int] | None = None,
    ) -> ApplyResult:
        """The state of the proposal after an attempt; what is not in place stays in it."""
        proposal = record.proposal
        assert proposal is not None
        by_outcome = {row["path"]: row["outcome"] for row in outcomes}
        for change in chosen:
            if by_outcome.get(printable(change.path)) == "unconfirmed":
                record.note_unseen(change.path)
        in_place = [change for change in chosen if by_outcome.get(printable(change.path)) in _IN_PLACE]
        whole = [change.path for change in in_place if change in proposal.changes.changes]
        own = proposal.hunk_numbers()
        asked = {number for change in in_place for number in own.get(change.path, ())}
        numbers = (asked if hunks is None else asked & set(hunks)) - set(proposal.discarded_hunks)
        is_conflict = not in_place and "conflict" in by_outcome.values()
        await self._kept.step(record, lambda kept: kept.with_applied(whole, numbers, conflict=is_conflict))
        by_hand = [change for change in chosen if by_outcome.get(printable(change.path)) == "by-hand"]
        patch_path = self._patch_by_hand(record, by_hand)
        return {
            "runId": record.run_id,
            "applied": bool(outcomes) and all(row["outcome"] in _IN_PLACE for row in outcomes),
            "state": record.state,
            "files": outcomes,
            "patch": patch_path,
            "message": report(outcomes, patch_path, record.state),
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


def _choose(proposal: Proposal, files: Sequence[str] | None, hunks: Sequence[int] | None) -> list[FileChange]:
    """What is to be applied. Flagged changes only where their files are named, those never applied not even then.

    Raises UsageError for files and hunks that are not there, or that were discarded.
    """
    return [
        change
        for change in proposal.chosen(_named(proposal, files), hunks).changes
        if change.applied_by_default or (files is not None and not is_never_applied(change))
    ]


def _named(proposal: Proposal, files: Sequence[str] | None) -> list[str] | None:
    """The files as the proposal names them: the client was told their printable names."""
    if files is None:
        return None
    paths = {path for c in proposal.changes.changes for path in (c.path, c.old_path) if path is not None}
    names = {printable(path): path for path in paths}
    # A name may read as another one that is not UTF-8 is shown.
    return [name if name in paths else names.get(name, name) for name in files]


def _refused(error: UsageError) -> RefusedError:
    return RefusedError(error.in_one_line)
