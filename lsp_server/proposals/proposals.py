"""The proposals of a connection, and what becomes of a run at its end."""

from __future__ import annotations

import logging

from lsp_server.client import NoAnswerError
from lsp_server.messages import LogResult
from lsp_server.proposals.decisions import Decisions
from lsp_server.proposals.kept import KeptProposals
from lsp_server.proposals.reviews import Reviews, Spawn
from lsp_server.proposals.words import failure, summary
from lsp_server.runs import RunManager, RunRecord
from lsp_server.session import RefusedError, Session
from lsp_server.uris import uri_of

logger = logging.getLogger(__name__)


class Proposals:
    """Finds, shows, applies and discards proposals: each part does one of it."""

    def __init__(self, session: Session, runs: RunManager, spawn: Spawn) -> None:
        self._session = session
        self.kept = KeptProposals(session, runs)
        self.reviews = Reviews(session, self.kept, spawn)
        self.decisions = Decisions(session, self.kept, self.reviews, spawn)

    async def refresh_review(self, run_id: str) -> None:
        """Write the review of a run again, if one was written or is open, after a file of it changed."""
        await self.reviews.refresh(run_id)

    async def announce(self, record: RunRecord) -> None:
        """Say how a run ended and, for a proposal, ask what to do with it."""
        client = self._session.client
        if record.state == "nothing":
            words = record.result.final_message.strip() if record.result is not None else ""
            says = f" It says: {words[:300]}" if words else ""
            client.show(f"FrogNano changed nothing for “{record.title}”.{says}")
        elif record.state == "failed":
            client.show(f"FrogNano could not work on “{record.title}”: {failure(record)}", "error")
        if record.proposal is None:
            return
        await self.kept.keep(record)
        text = summary(record.title, record.proposal)
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
                await self.reviews.show(record.run_id)
            elif answer == "Apply":
                client.show((await self.decisions.apply(record.run_id))["message"])
            elif answer == "Discard":
                await self.decisions.discard(record.run_id)
        except RefusedError as refused:
            client.show(str(refused), "warning")

    async def log(self, run_id: str, *, show: bool = True) -> LogResult:
        """Name the trajectory, and show it. Raises RefusedError for an unknown run."""
        path = self.kept.record(run_id).trajectory
        shown = False
        if show and path is not None:
            shown = self._session.capabilities.show_document and await self._session.client.show_document(uri_of(path))
            if not shown:
                self._session.client.show(f"The trajectory of the run is in {path}")
        return {"runId": run_id, "path": path, "shown": shown}
