"""File events of the client. Closed files are read again when something is applied, so nothing is kept here:
clients that send events anyway are heard without a complaint."""

from __future__ import annotations

from typing import Any

from lsprotocol import types

from lsp_server.application import Application
from lsp_server.protocol import FrogServer


def register(server: FrogServer, _application: Application) -> None:
    """Register the features of this file."""

    def did_change(_params: Any) -> None:
        """Nothing depends on the time of a change: what counts is the file at the time of applying."""

    server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)(did_change)
