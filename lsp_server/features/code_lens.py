"""textDocument/codeLens: over each open hunk of a review, what applies or discards it. No other document has any."""

from __future__ import annotations

from typing import Any

from lsprotocol import types

from lsp_server.application import Application
from lsp_server.capabilities import dig
from lsp_server.lenses import JsonObject, lenses
from lsp_server.protocol import FrogServer, invalid_params
from lsp_server.review import run_of_review
from lsp_server.session import RefusedError


def register(server: FrogServer, application: Application) -> None:
    """Register the features of this file."""
    session, reviews = application.session, application.proposals.reviews

    async def code_lens(params: Any) -> list[JsonObject]:
        uri = dig(params, "textDocument", "uri")
        if not isinstance(uri, str):
            raise invalid_params("textDocument.uri is missing")
        run_id = run_of_review(uri)
        if run_id is None:
            return []
        try:
            open_hunks = await reviews.open_hunks(run_id)
            buffer = session.buffers.get(uri)
            text = buffer.text if buffer is not None else await reviews.shown_text(run_id)
        except RefusedError:
            return []
        return lenses(text, run_id, open_hunks)

    server.feature(types.TEXT_DOCUMENT_CODE_LENS)(code_lens)
