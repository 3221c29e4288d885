"""The reviews of proposals: a preview against the files and buffers of now, shown, and written again after changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from agent.changes.diff import hunks, sections
from agent.changes.proposal import Proposal
from agent.errors import UsageError
from agent.types import FileChange
from lsp_server.apply.applier import means_of
from lsp_server.apply.now import FolderNow
from lsp_server.apply.preview import prepare
from lsp_server.client import NoAnswerError
from lsp_server.messages import ProposalResult, ReviewResult
from lsp_server.proposals.details import describe
from lsp_server.proposals.kept import KeptProposals, past_of
from lsp_server.review import forget_review, review_path, virtual_uri, write_private
from lsp_server.runs import RunRecord
from lsp_server.session import RefusedError, Session
from lsp_server.uris import uri_of

logger = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], None]


class Reviews:
    """Renders, shows and refreshes."""

    def __init__(self, session: Session, kept: KeptProposals, spawn: Spawn) -> None:
        self._session = session
        self._kept = kept
        self._spawn = spawn
        self._writing = asyncio.Lock()
        self._texts: dict[str, str] = {}
        """By run, the review as it was last rendered."""
        self.shows_virtual = False
        """Whether the client has taken us as the provider of `frog-review:` documents."""

    async def show(self, run_id: str) -> ReviewResult:
        """Write the review of now and show it. Raises RefusedError."""
        record, proposal = await self._kept.with_proposal(run_id)
        async with self._writing:
            await self._render(record)
            path = self._write(record)
        uri, shown = uri_of(path), False
        if self._session.capabilities.show_document:
            if self.shows_virtual and await self._session.client.show_document(virtual_uri(run_id)):
                uri, shown = virtual_uri(run_id), True
            else:
                shown = await self._session.client.show_document(uri)
        if not shown:
            self._session.client.show(f"The review of “{record.title}” is in {path}")
        self._tell(run_id)
        return {"uri": uri, "path": path, "shown": shown, "nHunks": len(hunks(proposal.changes))}

    async def describe(self, run_id: str) -> ProposalResult:
        """The proposal as data, with what applying would do now. Raises RefusedError."""
        record, proposal = await self._kept.with_proposal(run_id)
        folder = FolderNow(self._session, record.folder, record.path_now)
        foresee = await prepare(proposal, folder, means_of(self._session), past_of(record))
        places = {change.path: folder.uri(change.path) for change in proposal.changes.changes}
        return await asyncio.to_thread(lambda: describe(proposal, record.folder.uri, foresee(), places))

    async def text(self, run_id: str) -> str:
        """The review for a virtual document, rendered now. Raises RefusedError for an unknown run."""
        record = self._kept.record(run_id)
        try:
            await self._kept.with_proposal(run_id)
        except RefusedError as refused:
            return f"# {refused}\n"
        async with self._writing:
            return await self._render(record)

    async def refresh(self, run_id: str) -> None:
        """Write the review again if one was written or is shown, and tell the client. Never raises RefusedError."""
        try:
            record = self._kept.record(run_id)
        except RefusedError:
            return
        with contextlib.suppress(RefusedError):  # discarded: the review goes
            await self._kept.with_proposal(run_id)
        async with self._writing:
            is_written = review_path(run_id).exists()
            before = self._texts.get(run_id)
            if not is_written and before is None:
                return
            if _is_gone(record):
                forget_review(run_id)
                self._texts.pop(run_id, None)
            elif await self._render(record) == before and is_written:
                return
            elif is_written:
                try:
                    self._write(record)
                except RefusedError as refused:
                    logger.error("%s", refused)
        self._tell(run_id)

    async def open_hunks(self, run_id: str) -> dict[int, FileChange]:
        """The hunks that may still be applied or discarded, with their files. Raises RefusedError."""
        record = self._kept.record(run_id)
        proposal = record.proposal
        if proposal is None or not record.is_waiting:
            raise RefusedError(f"nothing is to be applied: the run is {record.state}")
        settled = {*proposal.applied_hunks, *proposal.discarded_hunks}
        files = {*proposal.applied_files, *proposal.discarded_files}
        owners = await asyncio.to_thread(_owners, proposal)
        return {n: change for n, change in owners.items() if n not in settled and change.path not in files}

    async def shown_text(self, run_id: str) -> str:
        """The review as it was last rendered. Raises RefusedError."""
        return self._texts[run_id] if run_id in self._texts else await self.text(run_id)

    # --- rendering --------------------------------------------------------------------------------------------

    async def _render(self, record: RunRecord) -> str:
        from agent.changes.review import render

        proposal = record.proposal
        if proposal is None or _is_gone(record):  # discarded while we waited
            return f"# The proposal of run {record.run_id} is {record.state}.\n"
        folder = FolderNow(self._session, record.folder, record.path_now)
        foresee = await prepare(proposal, folder, means_of(self._session), past_of(record))
        text = await asyncio.to_thread(lambda: render(proposal, foresee()))
        self._texts[record.run_id] = text
        return text

    def _write(self, record: RunRecord) -> str:
        if _is_gone(record):
            raise RefusedError(f"the run has no proposal: it is {record.state}")
        try:
            data = self._texts[record.run_id].encode("utf-8", "backslashreplace")
            return write_private("reviews", review_path(record.run_id).name, data)
        except UsageError as error:
            raise RefusedError(error.in_one_line) from error

    # --- the client -------------------------------------------------------------------------------------------

    def _tell(self, run_id: str) -> None:
        if self._session.capabilities.code_lens_refresh:
            self._spawn(self._request("workspace/codeLens/refresh", None))
        if self.shows_virtual:
            self._spawn(self._request("workspace/textDocumentContent/refresh", {"uri": virtual_uri(run_id)}))

    async def _request(self, method: str, params: Any) -> None:
        try:
            await self._session.client.request(method, params)
        except NoAnswerError as error:
            logger.info("%s", error)


def _is_gone(record: RunRecord) -> bool:
    return record.proposal is None or record.state == "discarded"


def _owners(proposal: Proposal) -> dict[int, FileChange]:
    """The change that each hunk is of."""
    return {hunk.number: section.change for section in sections(proposal.changes) for hunk in section.hunks}
