"""What every backend of the jail is: a name, a probe that does the real thing, a start, and what it gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agent.jail.child import Jailed, JailedCommand
from agent.jail.spec import JailSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOutcome:
    """Whether a backend works here; if not, the reason and what a user can do, each a sentence without its dot.

    A hint for one that works says what has to be agreed to first.
    """

    usable: bool
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One way to jail. Its plan is a pure function beside it, tested on whole values.

    `start` jails the runner (a zipapp), `run` a command whose stdout and stderr are the writing ends of pipes (None:
    this backend runs no commands). Both get a checked spec, return once the jail has proven itself, and raise
    JailUnavailable where it cannot be had: then nothing ran. `probe` tries all of it and is remembered.
    `guarantee` says in a sentence what holds when it works.
    """

    name: str
    guarantee: str
    probe: Callable[[], ProbeOutcome]
    start: Callable[[JailSpec, bytes], Awaitable[Jailed]]
    run: Callable[[JailSpec, tuple[str, ...], tuple[int, int]], Awaitable[JailedCommand]] | None
