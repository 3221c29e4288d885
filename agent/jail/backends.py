"""All backends in the order of preference, and the choice among them. There is none without a jail."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agent.errors import JailUnavailable, UsageError
from agent.jail.backend import Backend
from agent.jail.bwrap import start_bwrap
from agent.jail.channel import CommandNotStarted
from agent.jail.files import start_files
from agent.jail.landlock import run_landlock, start_landlock
from agent.jail.namespaces import start_namespaces
from agent.jail.probe import probe_bwrap, probe_files, probe_landlock, probe_namespaces

T = TypeVar("T")

NAMESPACES = Backend(
    name="namespaces",
    guarantee="Namespaces, overlay and seccomp work: Bash runs in a jail",
    probe=probe_namespaces,
    start=start_namespaces,
    run=lambda spec, argv, outputs: start_namespaces(spec, b"", argv, outputs=outputs),
)
BWRAP = Backend(
    name="bwrap",
    guarantee="Bubblewrap and seccomp work: Bash runs in a jail",
    probe=probe_bwrap,
    start=start_bwrap,
    run=lambda spec, argv, outputs: start_bwrap(spec, b"", argv, outputs=outputs),
)
LANDLOCK = Backend(
    name="landlock",
    guarantee="Landlock and a supervised filter of system calls work: the tools run in a reduced jail",
    probe=probe_landlock,
    start=start_landlock,
    run=run_landlock,
)
FILES = Backend(
    name="files",
    guarantee="The four file tools work on a private view; Bash is refused",
    probe=probe_files,
    start=start_files,
    run=None,
)
ALL = (NAMESPACES, BWRAP, LANDLOCK, FILES)
"""From the most that is promised to the least; the last one can always be had."""


def chosen(name: str, platform: str = sys.platform) -> tuple[Backend, ...]:
    """The backends to try in turn for a setting: one, or for `auto` all of this system. Raises UsageError."""
    if name == "auto":
        return ALL if platform == "linux" else (FILES,)
    found = tuple(backend for backend in ALL if backend.name == name)
    if found:
        return found
    known = ", ".join(("auto", *(backend.name for backend in ALL)))
    raise UsageError(f"there is no jail backend {name!r}", f"Backends: {known}.")


def chosen_for_commands(name: str) -> tuple[Backend, ...]:
    """The same for a single command. Raises UsageError, and JailUnavailable where the backend runs none."""
    found = tuple(backend for backend in chosen(name) if backend.run)
    if not found:
        able = ", ".join(backend.name for backend in ALL if backend.run)
        raise JailUnavailable(f"backend {name!r} cannot run a command", f"These can: {able}.")
    return found


async def start_first(
    candidates: tuple[Backend, ...], start: Callable[[Backend], Awaitable[T]]
) -> tuple[T, tuple[str, ...]]:
    """What the first candidate that can be had starts, and a sentence for each before it.

    Raises JailUnavailable with all the reasons where none can be had; CommandNotStarted at once, since that jail works.
    """
    misses: list[tuple[str, JailUnavailable]] = []
    for candidate in candidates:
        try:
            return await start(candidate), tuple(_sentence(name, error) for name, error in misses)
        except CommandNotStarted:
            raise
        except JailUnavailable as error:
            misses.append((candidate.name, error))
    best = misses[0][1]
    if len(misses) == 1:
        raise best
    reasons = "; ".join(f"{name}: {error.message}" for name, error in misses)
    raise JailUnavailable(f"no jail can be had: {reasons}", best.hint) from best


def _sentence(name: str, error: JailUnavailable) -> str:
    return f"Jail backend `{name}` is not used: {error.in_one_line}"
