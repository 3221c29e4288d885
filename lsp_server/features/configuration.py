"""Settings from the client: asked for where it can be asked, taken where it sends them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from lsprotocol import types

from lsp_server import log
from lsp_server.application import Application
from lsp_server.capabilities import dig
from lsp_server.client import NoAnswerError
from lsp_server.doctor import find_problem
from lsp_server.protocol import FrogServer
from lsp_server.settings import SECTION

logger = logging.getLogger(__name__)


def register(server: FrogServer, application: Application) -> None:
    """Register the features of this file."""
    session = application.session

    async def ask() -> None:
        """`workspace/configuration`: once for the user's own settings, once per folder."""
        items: list[dict[str, Any]] = [{"section": SECTION}]
        folders = list(session.folders)
        items += [{"scopeUri": folder.uri, "section": SECTION} for folder in folders]
        try:
            answer = await session.client.request("workspace/configuration", {"items": items})
        except NoAnswerError as error:
            logger.warning("%s: the settings of the start count", error)
            application.spawn(look())
            return
        finally:
            session.configured.set()
        if not isinstance(answer, list) or not answer:
            return
        per_folder = {folder.path: value for folder, value in zip(folders, answer[1:], strict=False)}
        session.resolve_settings(answer[0], per_folder)
        say_problems()
        application.spawn(look())

    async def look() -> None:
        """Know before a code action is asked for whether a run could succeed."""
        settings = session.settings
        problem = await asyncio.to_thread(find_problem, settings)
        if settings is session.settings:
            session.problem = problem

    def say_problems() -> None:
        log.set_level(session.settings.log_level)
        for problem in session.settings_problems:
            logger.warning("settings: %s", problem)
            session.client.log(f"frog-lsp settings: {problem}", "warning")

    def initialized(_params: Any) -> None:
        say_problems()
        if session.capabilities.configuration:
            application.spawn(ask())
        else:
            session.configured.set()
            application.spawn(look())
        if session.capabilities.configuration_registration:
            application.spawn(listen())
        for listener in application.on_initialized:
            listener()

    async def listen() -> None:
        registration = {"id": "frog-configuration", "method": types.WORKSPACE_DID_CHANGE_CONFIGURATION}
        registration["registerOptions"] = {"section": SECTION}  # type: ignore[assignment]
        try:
            await session.client.request("client/registerCapability", {"registrations": [registration]})
        except NoAnswerError as error:
            logger.info("%s", error)

    def did_change(params: Any) -> None:
        if session.capabilities.configuration:
            application.spawn(ask())
            return
        pushed = dig(params, "settings")
        own = dig(pushed, SECTION)
        session.resolve_settings(own if own is not None else pushed)
        say_problems()
        application.spawn(look())

    server.feature(types.INITIALIZED)(initialized)
    if session.capabilities.configuration:  # a folder that comes may have settings of its own
        application.on_folders_added.append(lambda: application.spawn(ask()))
    server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)(did_change)
