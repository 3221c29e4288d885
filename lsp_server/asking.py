"""Asking a person what is to be fixed. LSP has no box for words: what can be asked is a choice among known issues."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import Iterable, Iterator

from agent.changes.changeset import shown
from agent.errors import UsageError
from lsp_server.client import NoAnswerError
from lsp_server.issue import from_file, short
from lsp_server.runs import NotToldError, RunManager
from lsp_server.session import Place, Session

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S = 600.0
"""Some clients never answer (ALE 3.3); nobody who is asked needs longer."""
MAX_CHOICES = 5
MAX_LOOKED_AT = 200
"""The most trajectories that are opened to find issues of one folder, newest first."""
LOOK = "Look at this file"


async def ask_issue(session: Session, runs: RunManager, place: Place) -> str:
    """The text of the issue that a person chose. Raises NotToldError, after saying how to give the words."""
    name = shown(place.relative) or place.folder.name
    session_issues = [
        record.spec.issue.text
        for record in sorted(runs.records.values(), key=lambda record: -record.since_s)
        if record.spec is not None and record.spec.issue.text and record.folder.path == place.folder.path
    ]
    kept = await asyncio.to_thread(lambda: list(_kept_issues(place.folder.path)))
    choices = _by_title([*session_issues, *kept])
    if place.relative:
        choices[LOOK] = from_file(shown(place.relative))
    answer = await _ask(session, f"What should FrogNano fix in {name}?", list(choices)) if choices else None
    if answer is None:
        session.client.show(
            f"FrogNano was not told what to fix in {name}. Give the words with the command: "
            'frog.fix {"uri": …, "issue": "what is wrong"}.'
        )
        raise NotToldError
    return choices[answer]


async def _ask(session: Session, question: str, titles: list[str]) -> str | None:
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            return await session.client.ask(question, titles)
    except (NoAnswerError, TimeoutError) as error:
        logger.info("what to fix was not answered: %s", error)
        return None


def _by_title(issues: Iterable[str]) -> dict[str, str]:
    """The first issues with different titles, by their titles."""
    chosen: dict[str, str] = {}
    for text in issues:
        first = next((line for line in text.splitlines() if line.strip()), "")
        title = short(first)
        if title and title not in chosen and title != LOOK:
            chosen[title] = text
        if len(chosen) == MAX_CHOICES:
            break
    return chosen


def _kept_issues(folder: str) -> Iterator[str]:
    """The issues of earlier runs in a folder, newest first, from what is kept in the state folder."""
    trajectory = importlib.import_module("agent.trajectory")  # heavy, and not needed before the first question
    real = os.path.realpath(folder)
    try:
        entries = [(entry.stat().st_mtime, entry.path) for entry in os.scandir(trajectory.trajectories_dir())]
    except OSError:
        return
    for _, path in sorted(entries, reverse=True)[:MAX_LOOKED_AT]:
        try:
            header, _outcome = trajectory.peek_trajectory(path)
        except UsageError:
            continue
        text = header.get("issue")
        if header.get("workspace") == real and isinstance(text, str) and text.strip():
            yield text
