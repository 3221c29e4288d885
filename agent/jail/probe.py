"""Whether a backend can be had here, found out by doing it."""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

from agent.errors import FrogError
from agent.jail.backend import ProbeOutcome
from agent.jail.bwrap import start_bwrap
from agent.jail.child import JailedCommand
from agent.jail.landlock import AGREE, start_landlock
from agent.jail.landlock_consent import has_consent
from agent.jail.leftovers import hold_folder
from agent.jail.namespaces import start_namespaces
from agent.jail.spec import JailSpec

# Without user attributes an overlay mounts and then fails at exactly this.
_TRIAL = ("/bin/sh", "-c", "rm -rf d && mkdir d && : > d/new && test ! -e d/old && mv d e")
_TRIAL_TIMEOUT_S = 20.0

RunCommand = Callable[[JailSpec, tuple[str, ...], tuple[int, int]], Awaitable[JailedCommand]]


@functools.cache
def probe_namespaces() -> ProbeOutcome:
    """Start a whole jail, canaries included, on a workspace of our own. Remembered for this process."""
    return probe_namespaces_now()


def probe_namespaces_now() -> ProbeOutcome:
    """The same, anew."""
    return probe_by_running(lambda spec, argv, outputs: start_namespaces(spec, b"", argv, outputs=outputs))


@functools.cache
def probe_bwrap() -> ProbeOutcome:
    """The same for backend B, anew for each process."""
    return probe_by_running(lambda spec, argv, outputs: start_bwrap(spec, b"", argv, outputs=outputs))


def probe_landlock() -> ProbeOutcome:
    """The same for backend C, with what a user who did not agree to it should know."""
    outcome = _probe_landlock()
    return replace(outcome, hint=AGREE) if outcome.usable and not has_consent() else outcome


@functools.cache
def _probe_landlock() -> ProbeOutcome:
    return probe_by_running(lambda spec, argv, outputs: start_landlock(spec, b"", argv, outputs=outputs))


def probe_files() -> ProbeOutcome:
    """Backend D needs a folder to write in and nothing else."""
    try:
        hold_folder("view").remove()
    except OSError as error:
        return ProbeOutcome(
            usable=False, reason=f"no private view can be made: {error}", hint="Free space in the cache folder."
        )
    return ProbeOutcome(usable=True)


def probe_by_running(run: RunCommand) -> ProbeOutcome:
    """Run a command in a whole jail on a workspace of our own, and look whether its folders can be replaced.

    In a thread and an event loop of its own, so that it may be called from anywhere.
    """
    outcomes: list[ProbeOutcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(_probe(run)), name="probe of the jail")
    thread.start()
    thread.join()
    return outcomes[0] if outcomes else ProbeOutcome(usable=False, reason="the probe failed", hint="Please report it.")


def _probe(run: RunCommand) -> ProbeOutcome:
    try:
        with tempfile.TemporaryDirectory(prefix="frog-lsp-probe-") as folder:
            os.mkdir(os.path.join(folder, "d"))
            with open(os.path.join(folder, "d", "old"), "wb"):
                pass
            status = asyncio.run(_try(run, JailSpec(workspace=os.path.realpath(folder))))
    except FrogError as error:
        return ProbeOutcome(usable=False, reason=error.message, hint=error.hint)
    except OSError as error:
        return ProbeOutcome(usable=False, reason=f"the probe could not be made: {error}")
    if status != 0:
        return ProbeOutcome(
            usable=False,
            reason="folders cannot be replaced in the private view (overlay without user attributes)",
            hint="Linux 5.11 or later with overlay `userxattr` is needed.",
        )
    return ProbeOutcome(usable=True)


async def _try(run: RunCommand, spec: JailSpec) -> int | None:
    """The wait status of the trial, None where it did not end in time. Raises JailUnavailable."""
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        jail = await run(spec, _TRIAL, (null, null))
    finally:
        os.close(null)
    try:
        await asyncio.wait_for(jail.finished(), _TRIAL_TIMEOUT_S)
    except TimeoutError:
        return None
    finally:
        await jail.end()
        jail.close()
    return jail.wait_status
