"""textDocument/codeAction: from memory, at once, carrying only a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lsprotocol import types

from lsp_server.application import Application
from lsp_server.capabilities import TAG_LLM_GENERATED, Capabilities, dig
from lsp_server.issue import is_range, look_at, message_of, short
from lsp_server.protocol import FrogServer, invalid_params
from lsp_server.session import RefusedError, Session

MAX_DIAGNOSTICS = 5
MAX_MARKER = 44
"""Columns of a comment's words: with the words of ours around them a title has 80."""
_AUTOMATIC = 2  # CodeActionTriggerKind.Automatic

JsonObject = dict[str, Any]


def register(server: FrogServer, application: Application) -> None:
    """Register the features of this file."""

    def code_action(params: Any) -> list[JsonObject]:
        uri = dig(params, "textDocument", "uri")
        if not isinstance(uri, str):
            raise invalid_params("textDocument.uri is missing")
        application.session.remember_spelling(uri)
        return actions(application.session, uri, dig(params, "range"), dig(params, "context"))

    server.feature(types.TEXT_DOCUMENT_CODE_ACTION)(code_action)


def actions(session: Session, uri: str, span: Any, context: Any) -> list[JsonObject]:
    """The entries for a range: one quickfix a diagnostic (five at most) and one for all, or one rewrite."""
    if not session.settings.code_actions.enabled:
        return []
    found = dig(context, "diagnostics")
    diagnostics = [d for d in found if isinstance(d, dict) and message_of(d).strip()] if isinstance(found, list) else []
    is_automatic = dig(context, "triggerKind") == _AUTOMATIC
    only = dig(context, "only")
    made: list[JsonObject] = []
    if diagnostics and _wanted("quickfix", only):
        for diagnostic in diagnostics[:MAX_DIAGNOSTICS]:
            title = f"Fix with FrogNano: {short(message_of(diagnostic))}"
            made.append(_action(title, "quickfix", uri, dig(diagnostic, "range"), [diagnostic]))
        if len(diagnostics) > 1:
            title = f"Fix all {len(diagnostics)} problems here with FrogNano"
            made.append(_action(title, "quickfix", uri, span, diagnostics))
    elif not is_automatic and _wanted("refactor.rewrite", only) and not diagnostics:
        made.append(_action(_title_of_place(session, uri, span), "refactor.rewrite", uri, span, []))
    return _for_client(made, session.capabilities, _reason_against(session, uri))


def _title_of_place(session: Session, uri: str, span: Any) -> str:
    """What a run without diagnostics will do here."""
    buffer = session.buffers.get(uri)
    lines, language_id = (buffer.lines, buffer.language_id) if buffer is not None else ([""], "")
    place = look_at(lines, span, session.capabilities.encoding, uri, language_id)
    if place.failure is not None:
        return f"Fix {'this failing test' if place.failure.is_test else 'what is reported here'} with FrogNano"
    if place.is_markdown:
        return f"Fix the {'selected issue' if place.is_part else 'issue in this file'} with FrogNano"
    named = f" ({short(place.marker.text, MAX_MARKER)})" if place.marker is not None else ""
    return f"Fix an issue here with FrogNano…{named}"


def _action(title: str, kind: str, uri: str, span: Any, diagnostics: Sequence[JsonObject]) -> JsonObject:
    argument: JsonObject = {
        "uri": uri,
        "range": span if is_range(span) else None,  # the command would refuse what is none
        "diagnostics": list(diagnostics),
    }
    action: JsonObject = {
        "title": title,
        "kind": kind,
        "command": {"title": title, "command": "frog.fix", "arguments": [argument]},
    }
    if diagnostics:
        action["diagnostics"] = list(diagnostics)
    return action


def _wanted(kind: str, only: Any) -> bool:
    """Whether `only` lets a kind through: kinds are hierarchical, `refactor` takes `refactor.rewrite`."""
    if not isinstance(only, list) or not only:
        return True
    return any(wanted in ("", kind) or kind.startswith(f"{wanted}.") for wanted in only if isinstance(wanted, str))


def _reason_against(session: Session, uri: str) -> str | None:
    try:
        return session.refusal(session.place_of(uri).folder) or session.problem
    except RefusedError as refused:
        return str(refused)


def _for_client(made: list[JsonObject], capabilities: Capabilities, reason: str | None) -> list[JsonObject]:
    if reason is not None and not capabilities.disabled_actions:
        return []
    if not capabilities.code_action_literals:
        return [action["command"] for action in made]
    for action in made:
        if reason is not None:
            action["disabled"] = {"reason": reason}
            del action["command"]
        if capabilities.llm_tag:
            action["tags"] = [TAG_LLM_GENERATED]
    return made
