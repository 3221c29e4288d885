"""workspace/executeCommand: every step of the flow is a command, so that any client can do it.

No command waits for a run or for a person: Helix gives up after 20 s, lsp-mode and Eglot after 10 s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from lsprotocol import types

from lsp_server import messages
from lsp_server.application import Application
from lsp_server.capabilities import dig
from lsp_server.fixing import start_fix
from lsp_server.protocol import FrogServer, invalid_params
from lsp_server.session import RefusedError

logger = logging.getLogger(__name__)

CONFIGURED_WAIT_S = 2.0
ABOUT_A_RUN = frozenset({"frog.review", "frog.proposal", "frog.apply", "frog.discard", "frog.log"})


def register(server: FrogServer, application: Application) -> None:
    """Register the features of this file."""
    session, runs = application.session, application.runs
    proposals = application.proposals
    kept, decisions = proposals.kept, proposals.decisions

    async def fix(params: messages.FixParams) -> messages.FixResult:
        # Trust and model may still be on their way from the client.
        try:
            await asyncio.wait_for(session.configured.wait(), CONFIGURED_WAIT_S)
        except TimeoutError:
            logger.info("the client's settings have not come yet")
        started = start_fix(session, runs, params)
        if len(runs.records) == 1:
            application.spawn(kept.forget_old())
        return started

    async def cancel(params: messages.CancelParams) -> messages.CancelResult:
        run_id = params.get("runId")
        if run_id is not None:
            kept.record(run_id)
        return {"cancelled": runs.cancel(run_id)}

    async def list_runs(_params: messages.NoParams) -> list[messages.RunRow]:
        return [record.row() for record in await kept.records()]

    async def log(params: messages.LogParams) -> messages.LogResult:
        return await proposals.log(params["runId"], show=params.get("show") is not False)

    async def doctor(_params: messages.NoParams) -> messages.DoctorResult:
        from lsp_server.doctor import examine

        return await examine(session)

    async def apply(params: messages.ApplyParams) -> messages.ApplyResult:
        # An edit on its way cannot be called back: what becomes of it is found out, whoever still wants to know.
        return await asyncio.shield(decisions.apply(params["runId"], params.get("files"), params.get("hunks")))

    handlers: dict[str, Callable[[Any], Awaitable[Any]]] = {
        "frog.fix": fix,
        "frog.cancel": cancel,
        "frog.runs": list_runs,
        "frog.review": lambda params: proposals.reviews.show(params["runId"]),
        "frog.proposal": lambda params: proposals.reviews.describe(params["runId"]),
        "frog.apply": apply,
        "frog.discard": lambda params: decisions.discard(params["runId"], params.get("files"), params.get("hunks")),
        "frog.log": log,
        "frog.doctor": doctor,
    }

    async def arguments_of(name: str, arguments: Any) -> Any:
        # Helix cannot give arguments: there a command means the last proposal.
        if arguments or name not in ABOUT_A_RUN:
            return arguments
        found = [record.run_id for record in await kept.records() if record.proposal is not None]
        if not found:
            raise RefusedError("there is no proposal")
        return [{"runId": found[-1]}]

    async def execute(params: Any) -> Any:
        name = dig(params, "command")
        handler = handlers.get(name) if isinstance(name, str) else None
        if handler is None:
            raise invalid_params(f"no such command: {name!r}")
        try:
            arguments = await arguments_of(name, params.get("arguments"))
            checked = messages.parse(cast("type[Any]", messages.COMMANDS[name]), arguments)
            return await handler(checked)
        except (messages.BadParamsError, RefusedError) as error:
            raise invalid_params(f"{name}: {error}") from None

    server.feature(types.WORKSPACE_EXECUTE_COMMAND)(execute)
    application.on_finished.append(lambda record: application.spawn(proposals.announce(record)))
    application.on_files_changed.append(
        lambda record, _names: application.spawn(proposals.refresh_review(record.run_id))
    )
