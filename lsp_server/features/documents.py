"""didOpen, didChange, didClose, didSave: the text of open documents, tracked by ourselves."""

from __future__ import annotations

import logging
from typing import Any

from lsprotocol import types

from lsp_server.application import Application
from lsp_server.protocol import FrogServer

logger = logging.getLogger(__name__)


def register(server: FrogServer, application: Application) -> None:
    """Register the features of this file."""
    session = application.session

    def did_open(params: Any) -> None:
        item = params["textDocument"]
        session.remember_spelling(item["uri"])
        session.buffers.open(
            str(item["uri"]), str(item.get("languageId", "")), int(item.get("version") or 0), str(item["text"])
        )

    def did_change(params: Any) -> None:
        item = params["textDocument"]
        version = item.get("version")
        known = session.buffers.change(
            str(item["uri"]),
            int(version) if isinstance(version, int) else 0,
            params["contentChanges"],
            session.capabilities.encoding,
        )
        if not known:
            logger.warning("a change of a document that is not open")

    def did_close(params: Any) -> None:
        session.buffers.close(str(params["textDocument"]["uri"]))

    def did_save(_params: Any) -> None:
        """The text is known already, and the disk is read when something is applied."""

    server.feature(types.TEXT_DOCUMENT_DID_OPEN)(did_open)
    server.feature(types.TEXT_DOCUMENT_DID_CHANGE)(did_change)
    server.feature(types.TEXT_DOCUMENT_DID_CLOSE)(did_close)
    server.feature(types.TEXT_DOCUMENT_DID_SAVE)(did_save)
