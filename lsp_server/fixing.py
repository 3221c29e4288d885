"""From the parameters of `frog.fix` to a run."""

from __future__ import annotations

from agent.run_id import new_run_id
from agent.types import Issue, RunSpec
from lsp_server.issue import from_diagnostics, from_place
from lsp_server.messages import BadParamsError, FixParams, FixResult
from lsp_server.positions import split_lines
from lsp_server.runs import RunManager
from lsp_server.session import Place, RefusedError, Session, read_file
from lsp_server.texts import NotCarriedError, codec_of_file


def start_fix(session: Session, runs: RunManager, params: FixParams) -> FixResult:
    """Start a run on the workspace as the user sees it now. Raises RefusedError and BadParamsError."""
    session.remember_spelling(params["uri"])
    place = session.place_of(params["uri"])
    reason = session.refusal(place.folder)
    if reason is not None:
        raise RefusedError(reason)
    issue = Issue(text=_issue_text(session, place, params))
    if not issue.text.strip():
        raise BadParamsError("the issue is empty: say what is wrong")
    settings = session.settings_for(place.folder)
    buffers, notes = session.snapshot_buffers(place.folder)
    for note in notes:
        session.client.log(note, "warning")
    spec = RunSpec(
        run_id=new_run_id(),
        workspace=place.folder.path,
        issue=issue,
        model=settings.model.to_spec(),
        limits=settings.limits.to_limits(),
        jail=settings.jail.to_jail_settings(),
        test_command=settings.tests.command,
        buffers=buffers,
        prompt_file=settings.agent.prompt_file,
    )
    record, n_ahead = runs.start(spec, place.folder, settings.model.idle_unload_s)
    return {"runId": record.run_id, "place": n_ahead}


def _issue_text(session: Session, place: Place, params: FixParams) -> str:
    lines = _lines(session, place)
    diagnostics = params.get("diagnostics") or []
    words = (params.get("issue") or "").strip()
    if not place.relative and not words:
        return ""  # the folder as a whole: only words can say what is wrong
    if params.get("issue") is not None and not words and not diagnostics:
        return ""
    found = from_diagnostics(place.relative, lines, diagnostics) if diagnostics else ""
    if words:
        return f"{words}\n\n{found}".strip() if found else words
    return found or from_place(place.relative, lines, params.get("range"), session.capabilities.encoding)


def _lines(session: Session, place: Place) -> list[str]:
    buffer = session.buffer_of(place.folder, place.relative)
    if buffer is not None:
        return buffer.lines
    data = read_file(place.path)
    try:
        return split_lines(codec_of_file(data).to_text(data)) if data is not None else [""]
    except NotCarriedError:
        return [""]
