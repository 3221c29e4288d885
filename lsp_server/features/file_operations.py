"""Files that the user renames in the editor: open documents, runs and proposals follow."""

from __future__ import annotations

from typing import Any

from lsprotocol import types

from lsp_server.application import Application
from lsp_server.capabilities import dig
from lsp_server.protocol import FrogServer
from lsp_server.runs import RunRecord


def register(server: FrogServer, application: Application) -> None:
    """Register the features of this file."""
    session, runs = application.session, application.runs

    def will_rename(_params: Any) -> None:
        """Nothing is to be edited along. VS Code and Helix ask in the middle of our own edit, too."""

    def did_rename(params: Any) -> None:
        files = dig(params, "files")
        for file in files if isinstance(files, list) else []:
            old_uri, new_uri = dig(file, "oldUri"), dig(file, "newUri")
            if isinstance(old_uri, str) and isinstance(new_uri, str):
                paths = session.follow_rename(old_uri, new_uri)
                if paths is not None:
                    application.spawn(keep(runs.follow_rename(*paths)))

    async def keep(records: list[RunRecord]) -> None:
        """So that the proposals know after a restart, too."""
        for record in records:
            if record.proposal is not None:
                await application.proposals.kept.step(record, lambda kept: kept)

    server.feature(types.WORKSPACE_WILL_RENAME_FILES)(will_rename)
    server.feature(types.WORKSPACE_DID_RENAME_FILES)(did_rename)
