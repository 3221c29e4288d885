"""initialized, shutdown, exit, progress cancel, trace, workspace folders."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from lsprotocol import types

from lsp_server.application import Application
from lsp_server.capabilities import dig
from lsp_server.protocol import FrogServer


def register(server: FrogServer, application: Application) -> None:
    """Register the features of this file."""

    async def shutdown(_params: Any) -> None:
        # pygls' own shutdown changes a table while it walks it; ours first ends every run, then answers.
        server.protocol.stop_answering()
        await application.stop()

    def exit_(_params: Any) -> None:
        server.protocol.has_exited.set()

    def cancel_progress(params: Any) -> None:
        application.tokens.cancel(dig(params, "token"))

    def change_folders(params: Any) -> None:
        session = application.session
        before = {folder.path for folder in session.folders}
        for folder in session.change_folders(dig(params, "event", "added"), dig(params, "event", "removed")):
            if n_cancelled := len(application.runs.leave(folder)):
                runs = "its run is" if n_cancelled == 1 else f"its {n_cancelled} runs are"
                session.client.show(f"The folder {folder.name} was removed: {runs} cancelled.", "warning")
        if any(folder.path not in before for folder in session.folders):
            for listener in application.on_folders_added:
                listener()

    def set_trace(_params: Any) -> None:
        """Nothing of ours is traced: messages hold the user's text."""

    server.feature(types.SHUTDOWN)(shutdown)
    server.feature(types.EXIT)(exit_)
    server.feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)(cancel_progress)
    server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)(change_folders)
    server.feature(types.SET_TRACE)(set_trace)


async def watch_process(pid: int) -> None:
    """Return when the client's process is gone; never for a pid that means nothing here (another pid namespace)."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError, OverflowError):
        await gone.wait()
        return
    loop.add_reader(descriptor, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
