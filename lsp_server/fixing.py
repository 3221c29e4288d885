"""From the parameters of `frog.fix` to a run."""

from __future__ import annotations

import os

from agent.changes.changeset import shown
from agent.run_id import new_run_id
from agent.types import Issue, RunSpec
from lsp_server.asking import ask_issue
from lsp_server.issue import (
    MAX_ISSUE_BYTES,
    Source,
    bounded,
    from_diagnostics,
    from_place,
    is_markdown,
    with_place,
)
from lsp_server.messages import BadParamsError, FixParams, FixResult
from lsp_server.positions import split_lines
from lsp_server.quotes import size_of
from lsp_server.runs import NotToldError, RunManager
from lsp_server.session import Place, RefusedError, Session, read_file
from lsp_server.texts import NotCarriedError, codec_of_file

MAX_WORDS_BYTES = MAX_ISSUE_BYTES * 3 // 4
"""Of the words of a person where diagnostics are quoted, too."""
MAX_QUOTED_FILE_BYTES = 16 << 20
"""Of a larger file that is not open no lines are quoted: reading it would keep the editor waiting."""


def start_fix(session: Session, runs: RunManager, params: FixParams) -> FixResult:
    """Start a run on the workspace as the user sees it now. Raises RefusedError and BadParamsError.

    Where nothing says what is wrong, the run is queued while the person is asked.
    """
    uri = params.get("uri")
    if uri is None:
        uri = _only_folder(session, params)
    session.remember_spelling(uri)
    place = session.place_of(uri)
    _refuse(session, place)
    run_id = new_run_id()
    idle_unload_s = session.settings_for(place.folder).model.idle_unload_s
    text = issue_text(session, place, params)
    if text is not None:
        if not text:
            raise BadParamsError("the issue is empty: say what is wrong")
        record, n_ahead = runs.start(_spec(session, place, run_id, text), place.folder, idle_unload_s)
        return {"runId": record.run_id, "place": n_ahead}

    async def ask() -> RunSpec:
        chosen = await ask_issue(session, runs, place)
        try:
            _refuse(session, place)
        except RefusedError as refused:  # trust can be taken away while a person thinks
            session.client.show(str(refused), "warning")
            raise NotToldError from refused
        return _spec(session, place, run_id, chosen)

    record, n_ahead = runs.start(_spec(session, place, run_id, ""), place.folder, idle_unload_s, ask)
    record.title = f"What to fix in {shown(place.relative) or place.folder.name}"
    return {"runId": record.run_id, "place": n_ahead}


def _only_folder(session: Session, params: FixParams) -> str:
    if params.get("issue") is None:
        raise BadParamsError("uri is missing")
    if not session.folders:
        raise RefusedError("no folder is open: open the project's folder in the editor")
    if len(session.folders) > 1:
        names = ", ".join(folder.name for folder in session.folders)
        raise BadParamsError(f"uri is missing: several folders are open ({names})")
    return session.folders[0].uri


def _refuse(session: Session, place: Place) -> None:
    reason = session.refusal(place.folder)
    if reason is not None:
        raise RefusedError(reason)


def _spec(session: Session, place: Place, run_id: str, text: str) -> RunSpec:
    settings = session.settings_for(place.folder)
    buffers, notes = session.snapshot_buffers(place.folder)
    for note in notes:
        session.client.log(note, "warning")
    return RunSpec(
        run_id=run_id,
        workspace=place.folder.path,
        issue=Issue(text=text),
        model=settings.model.to_spec(),
        limits=settings.limits.to_limits(),
        jail=settings.jail.to_jail_settings(),
        test_command=settings.tests.command,
        buffers=buffers,
        prompt_file=settings.agent.prompt_file,
    )


def issue_text(session: Session, place: Place, params: FixParams) -> str | None:
    """The issue that the parameters say, `""` where they say an empty one, None where they say nothing."""
    words, diagnostics, span = params.get("issue"), params.get("diagnostics") or [], params.get("range")
    if not place.relative:
        return None if words is None else bounded(words)
    if words is not None and not diagnostics and (span is None or not words.strip()):
        return bounded(words)
    source = _source(session, place)
    if words is not None and not diagnostics:
        return with_place(source, bounded(words, MAX_WORDS_BYTES), span)
    if diagnostics:
        told = bounded(words or "", MAX_WORDS_BYTES)
        room = MAX_ISSUE_BYTES - size_of(told) - 2
        return f"{told}\n\n{from_diagnostics(source, diagnostics, room)}".strip()
    if span is None and not is_markdown(place.relative, source.language_id):
        return None
    return from_place(source, span)


def _source(session: Session, place: Place) -> Source:
    folder = place.folder

    def name_of(uri: str) -> str:
        try:
            other = session.place_of(uri)
        except RefusedError:
            other = None
        if other is not None and other.folder.path == folder.path and other.relative:
            return shown(other.relative)
        return shown(uri.rstrip("/").rpartition("/")[2]) + " (outside the project)"

    def is_file(relative: str) -> bool:
        path = os.path.join(folder.path, relative)
        return session.buffers.at(path) is not None or os.path.isfile(path)

    buffer = session.buffer_of(folder, place.relative)
    return Source(
        relative=shown(place.relative),
        lines=buffer.lines if buffer is not None else _lines_on_disk(place.path),
        encoding=session.capabilities.encoding,
        language_id=buffer.language_id if buffer is not None else "",
        roots=(folder.path, os.path.realpath(folder.path)),
        name_of=name_of,
        is_file=is_file,
    )


def _lines_on_disk(path: str) -> list[str]:
    data = read_file(path, MAX_QUOTED_FILE_BYTES)
    try:
        return split_lines(codec_of_file(data).to_text(data)) if data is not None else [""]
    except NotCarriedError:
        return [""]
