"""`frog.doctor`, and the part of it that code actions need to know at once: whether there is a model and a jail."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

from agent.errors import FrogError, sentences
from lsp_server.messages import DoctorResult
from lsp_server.session import Session
from lsp_server.settings import Settings

EXAMINE_TIMEOUT_S = 8.0


async def examine(session: Session) -> DoctorResult:
    """Look at trust, folders, settings, model, engine and jail; within the patience of every client."""
    lines: list[str] = []
    is_ok = bool(session.folders)
    for folder in session.folders:
        reason = session.refusal(folder)
        is_ok = is_ok and reason is None
        lines.append(f"folder {folder.path}: " + (f"no runs, {reason}" if reason else "runs are allowed"))
    if not session.folders:
        lines.append("folder: none is open; open the project's folder in the editor")
    lines += [f"settings: {problem}" for problem in session.settings_problems]
    may_ask = session.distrust is None and (
        not session.folders or any(session.refusal(folder) is None for folder in session.folders)
    )
    try:
        findings = await asyncio.wait_for(asyncio.to_thread(_findings, session.settings, may_ask), EXAMINE_TIMEOUT_S)
    except TimeoutError:
        lines.append("the rest takes long to look at: run `frog-lsp doctor` in a terminal")
        return {"ok": is_ok, "lines": lines}
    for finding in findings:
        is_ok = is_ok and finding.status != "error"
        lines.append(f"{finding.name}: {finding.status}: {sentences(finding.message, finding.hint)}")
    return {"ok": is_ok, "lines": lines}


def _findings(settings: Settings, asks_endpoint: bool) -> Any:
    from agent.defaults import Defaults
    from agent.doctor import examine as examine_parts

    return examine_parts(
        Defaults(
            model=settings.model.to_spec(),
            limits=settings.limits.to_limits(),
            jail=settings.jail.to_jail_settings(),
            prompt_file=settings.agent.prompt_file,
            test_command=settings.tests.command,
            keep_days=settings.state.keep_days,
        ),
        asks_endpoint=asks_endpoint,
    )


def find_problem(settings: Settings) -> str | None:
    """Why no run can succeed with these settings, None where nothing speaks against it. Reads from disk."""
    model = settings.model
    if model.kind == "endpoint":
        return None if model.base_url else "no address of an endpoint is set (model.baseUrl)"
    if model.kind == "worker":
        if importlib.util.find_spec("llama_cpp") is None:
            return "llama-cpp-python is not installed: run `make setup`"
        from agent.model.locate import locate

        try:
            locate(model.path)
        except FrogError as error:
            return error.in_one_line
    if settings.jail.backend != "auto":  # else there always is one
        from agent.jail.backends import chosen

        try:
            (backend,) = chosen(settings.jail.backend)
        except FrogError as error:
            return f"{error.message}: {error.hint}"
        outcome = backend.probe()
        if not outcome.usable:
            return f"the jail cannot be had: {outcome.reason}"
    return None
