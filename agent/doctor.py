"""`frog-lsp doctor`: whether a run is possible here, part by part, with what to do where it is not."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from agent.cli_parser import EXIT_ERROR, EXIT_OK, print_json, write_stdout
from agent.config import cache_dir, config_dir, data_dir, state_dir
from agent.defaults import Defaults, load_defaults
from agent.errors import FrogError
from agent.types import JsonObject
from agent.visible import visible

Status = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One part: how it is, in a sentence, and what to do. Only an "error" makes a run impossible."""

    name: str
    status: Status
    message: str
    hint: str = ""


def add_arguments_doctor(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp doctor`."""
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run_doctor(arguments: argparse.Namespace) -> int:
    """Look at every part; 0 when a run is possible, else 1."""
    findings = examine(load_defaults())
    is_possible = all(finding.status != "error" for finding in findings)
    if arguments.json:
        print_json(doctor_json(findings))
    else:
        write_stdout(describe(findings).encode())
    return EXIT_OK if is_possible else EXIT_ERROR


def doctor_json(findings: list[Finding]) -> JsonObject:
    """The object of `doctor --json`."""
    is_possible = all(finding.status != "error" for finding in findings)
    return {"ok": is_possible, "checks": [asdict(finding) for finding in findings], "error": None}


def describe(findings: list[Finding]) -> str:
    """The findings for a person, without colours, within 80 columns where words allow it."""
    import textwrap

    marks = {"ok": "ok", "warning": "note", "error": "FAIL"}
    lines = []
    for finding in findings:
        head = f"{marks[finding.status]:<5} {finding.name:<10} "
        text = visible(finding.message) + (f" {visible(finding.hint)}" if finding.hint else "")
        wrapped = textwrap.wrap(text, 80 - len(head), break_long_words=False, break_on_hyphens=False) or [""]
        lines += [head + wrapped[0], *(" " * len(head) + part for part in wrapped[1:])]
    possible = all(finding.status != "error" for finding in findings)
    lines.append("" if possible else "\nA run is not possible before what is marked FAIL is repaired.")
    lines += ["A run is possible: try `frog-lsp demo`."] if possible else []
    return "\n".join(lines) + "\n"


def examine(defaults: Defaults, *, asks_endpoint: bool = True) -> list[Finding]:
    """Look at every part. Never raises: a part that cannot be looked at is an error of that part.

    Without `asks_endpoint` nothing is sent anywhere.
    """
    parts: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("python", _python),
        ("engine", lambda: _engine(is_needed=defaults.model.kind == "worker")),
        ("model", lambda: _model(defaults)),
        ("jail", lambda: _jail(defaults)),
        ("limits", _limits),
        ("folders", _folders),
    ]
    if defaults.model.kind == "endpoint":
        parts.insert(3, ("endpoint", lambda: _endpoint(defaults, is_asked=asks_endpoint)))
    findings: list[Finding] = []
    for name, look in parts:
        try:
            findings += look()
        except FrogError as error:
            findings.append(Finding(name=name, status="error", message=error.message, hint=error.hint))
        except Exception as error:
            what = f"this part could not be looked at: {type(error).__name__}: {error}"
            findings.append(Finding(name=name, status="error", message=what, hint="Please report it."))
    return findings


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    is_new_enough = sys.version_info >= (3, 11)
    yield Finding(
        name="python",
        status="ok" if is_new_enough else "error",
        message=f"Python {version} at {sys.executable} on {platform.system()} {platform.machine()}.",
        hint="" if is_new_enough else "frog-lsp needs Python 3.11 or newer.",
    )


def _engine(*, is_needed: bool) -> Iterator[Finding]:
    if importlib.util.find_spec("llama_cpp") is not None:
        from importlib.metadata import version

        from agent.model.engine_report import report_engine

        name, report = f"llama-cpp-python {version('llama-cpp-python')}", report_engine()
        if report.problem is None:
            yield Finding(name="engine", status="ok", message=f"{name}. {report.message}", hint=report.hint)
        else:
            hint = "Compile it again on this machine: `make setup` in a fresh checkout, or pip."
            yield Finding(name="engine", status="error" if is_needed else "warning", message=report.problem, hint=hint)
        return
    yield Finding(
        name="engine",
        status="error" if is_needed else "warning",
        message="llama-cpp-python is not installed.",
        hint="Run `make setup`: it is compiled once, about 4 minutes on 2 cores."
        if is_needed
        else "An endpoint needs none.",
    )


def _model(defaults: Defaults) -> Iterator[Finding]:
    if defaults.model.kind != "worker":
        return
    from agent.model_report import report_drafts, report_model

    report = report_model(defaults.model.path, defaults.limits)
    yield Finding(name="model", status="ok", message=report.file, hint=report.hint)
    yield Finding(name="memory", status=report.memory_status, message=report.memory, hint=report.memory_hint)
    yield Finding(name="drafts", status="ok", message=report_drafts(report.path, defaults.model.speculation))


def _endpoint(defaults: Defaults, *, is_asked: bool) -> Iterator[Finding]:
    from agent.model.consent import has_consent
    from agent.model.endpoint_probe import probe_endpoint

    url = defaults.model.base_url
    if not url:
        yield Finding(
            name="endpoint",
            status="error",
            message="An endpoint is chosen, but `model.baseUrl` is not set.",
            hint="Set it to the server's address, ending in /v1.",
        )
        return
    if not has_consent(url):
        yield Finding(
            name="endpoint",
            status="error",
            message=f"{url} is not on this machine, and you have not agreed to it.",
            hint=f"If you want to send text there: `frog-lsp model consent {url}`.",
        )
        return
    if not is_asked:
        yield Finding(
            name="endpoint",
            status="warning",
            message=f"{url} was not asked: nothing is sent from a workspace where no run is allowed.",
        )
        return
    probe = asyncio.run(probe_endpoint(url, defaults.model.name, defaults.model.api_key_env))
    if not probe.reachable:
        why = "; ".join(probe.notes) or "it does not answer"
        yield Finding(name="endpoint", status="error", message=f"{url}: {why}", hint="Start the server.")
        return
    is_fine = probe.structured_tool_calls is not False and not probe.notes
    yield Finding(
        name="endpoint",
        status="ok" if is_fine else "warning",
        message=f"{url} serves {', '.join(probe.models[:3]) or 'a model'}.",
        hint="; ".join(probe.notes),
    )


def _jail(defaults: Defaults) -> Iterator[Finding]:
    """One finding for the backend that a run gets, one for each that is missed before it, one for those behind."""
    from agent.jail.backends import chosen

    candidates = chosen(defaults.jail.backend)
    outcomes = [(backend, backend.probe()) for backend in candidates]
    used = next((backend for backend, outcome in outcomes if outcome.usable), None)
    for at, (backend, outcome) in enumerate(outcomes):
        if backend is used:
            status: Status = "ok" if backend.run and not outcome.hint else "warning"
            message = f"{backend.guarantee} (backend `{backend.name}`)."
            yield Finding(name="jail", status=status, message=message, hint=outcome.hint)
            in_reserve = [f"`{other.name}`" for other, found in outcomes[at + 1 :] if found.usable]
            if in_reserve:
                yield Finding(name="in reserve", status="ok", message=f"Other backends: {', '.join(in_reserve)}.")
            return
        yield Finding(
            name="jail",
            status="error" if used is None else "warning",
            message=f"Backend `{backend.name}` cannot be had: {outcome.reason}.",
            hint=outcome.hint,
        )


def _limits() -> Iterator[Finding]:
    from agent.jail.groups import describe_groups
    from agent.jail.spec import JailLimits

    message = f"Each jail has at most: {JailLimits().described()}. Memory is bounded by {describe_groups()}."
    yield Finding(name="limits", status="ok", message=message)


def _folders() -> Iterator[Finding]:
    folders = {"settings": config_dir(), "state": state_dir(), "cache": cache_dir(), "models": data_dir()}
    bad = [f"{what} {path}" for what, path in folders.items() if not _is_writable(path)]
    if bad:
        yield Finding(
            name="folders", status="error", message=f"Not writable: {', '.join(bad)}.", hint="Check their owner."
        )
        return
    yield Finding(
        name="folders", status="ok", message=f"State in {folders['state']}, settings in {folders['settings']}."
    )


def _is_writable(path: Path) -> bool:
    """Whether the folder can be written, or made."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)
