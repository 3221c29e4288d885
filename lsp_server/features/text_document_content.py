"""workspace/textDocumentContent: reviews as read-only virtual documents, for clients that show those (LSP 3.18)."""

from __future__ import annotations

import logging
from typing import Any

from lsprotocol import types

from lsp_server.application import Application
from lsp_server.capabilities import dig
from lsp_server.client import NoAnswerError
from lsp_server.protocol import FrogServer, invalid_params
from lsp_server.review import SCHEME, run_of_review
from lsp_server.session import RefusedError

logger = logging.getLogger(__name__)


def register(server: FrogServer, application: Application) -> None:
    """Register the features of this file."""
    session, reviews = application.session, application.proposals.reviews

    async def offer() -> None:
        """pygls has no word for this in the capabilities, so it is registered by a request."""
        registration = {
            "id": "frog-review-content",
            "method": types.WORKSPACE_TEXT_DOCUMENT_CONTENT,
            "registerOptions": {"schemes": [SCHEME]},
        }
        try:
            await session.client.request("client/registerCapability", {"registrations": [registration]})
        except NoAnswerError as error:
            logger.info("reviews are shown as files: %s", error)
        else:
            reviews.shows_virtual = True

    async def content(params: Any) -> dict[str, str]:
        uri = dig(params, "uri")
        run_id = run_of_review(uri) if isinstance(uri, str) else None
        if run_id is None:
            raise invalid_params(f"{uri!r} is not the review of a run")
        try:
            return {"text": await reviews.text(run_id)}
        except RefusedError as refused:
            raise invalid_params(str(refused)) from None

    server.feature(types.WORKSPACE_TEXT_DOCUMENT_CONTENT)(content)
    if session.capabilities.text_document_content:
        application.on_initialized.append(lambda: application.spawn(offer()))
