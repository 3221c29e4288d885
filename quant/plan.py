"""What each build of a model needs on a machine: memory, room beside an editor, and speed; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent.errors import ModelUnavailable
from agent.model.gguf_header import GgufHeader
from agent.model.memory import GIB, MIB, CacheType, ContextPlan, Setup, estimate, plan_context
from quant.plan_rates import Rates, Speed, expected_speed

CACHE_TYPES: tuple[CacheType, ...] = ("f16", "q8_0")
RESERVED_BYTES = 3 * GIB
"""Left to the rest of a small machine: 1.5 GiB for an editor with its servers, 0.5 for tests, 1 for the system."""

ALONE_BYTES = 3 * GIB // 2
"""Left to the system and a plain editor where a model shall run alone."""

Room = Literal["yes", "slower", "less", "alone", "no"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a build has to fit into."""

    total_bytes: int
    available_bytes: int
    n_threads: int

    @property
    def room_bytes(self) -> int:
        """What a model may have beside an editor and the tests."""
        return max(0, self.total_bytes - RESERVED_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A file that is here, or an entry of the catalog. `header` is None where its shape is not known.

    `refusal` says why it cannot serve. `source_model` groups the builds of one model; `serves`: it is for running,
    not for making other builds.
    """

    name: str
    header: GgufHeader | None
    size_bytes: int
    is_here: bool
    source_model: str = ""
    is_default: bool = False
    serves: bool = True
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One build with one type of cache at one length of context.

    `room` beside an editor and tests: "yes"; "slower", since the copies that speed up reading are left out; "less",
    with no more than `most_tokens` of context; "alone", with little else open and `most_tokens`; "no". `fits_now`: in
    the memory that is free at this moment.
    """

    build: Build
    cache_type: CacheType
    n_ctx: int
    need_bytes: int | None = None
    room: Room = "no"
    most_tokens: int = 0
    fits_now: bool = False
    speed: Speed | None = None


def plan_rows(builds: Sequence[Build], n_ctx: int, machine: Machine, rates: Rates | None) -> list[Row]:
    """A row for each build and type of cache, in the order of `builds`."""
    return [_row(build, kind, n_ctx, machine, rates) for build in builds for kind in CACHE_TYPES]


def _row(build: Build, cache_type: CacheType, n_ctx: int, machine: Machine, rates: Rates | None) -> Row:
    header = build.header
    if header is None or build.refusal is not None:
        return Row(build=build, cache_type=cache_type, n_ctx=n_ctx)
    n_ctx = min(n_ctx, header.number("context_length") or n_ctx)
    roomy = _plan(header, cache_type, n_ctx, machine.room_bytes)
    now = _plan(header, cache_type, n_ctx, machine.available_bytes)
    alone = _plan(header, cache_type, n_ctx, max(0, machine.total_bytes - ALONE_BYTES)) if roomy is None else None
    if roomy is None:
        room: Room = "no" if alone is None else "alone"
    elif roomy.n_ctx < n_ctx:
        room = "less"
    else:
        has_copies = estimate(header).repacked_bytes > 0
        room = "yes" if roomy.setup.repack or not has_copies else "slower"
    return Row(
        build=build,
        cache_type=cache_type,
        n_ctx=n_ctx,
        need_bytes=estimate(header, Setup(cache_type=cache_type)).total_bytes(n_ctx),
        room=room,
        most_tokens=max((plan.n_ctx for plan in (roomy, alone) if plan is not None), default=0),
        fits_now=now is not None and now.n_ctx >= n_ctx,
        speed=expected_speed(header, cache_type, n_ctx, rates) if rates is not None else None,
    )


def _plan(header: GgufHeader, cache_type: CacheType, n_ctx: int, bytes_: int) -> ContextPlan | None:
    try:
        return plan_context(header, n_ctx, bytes_, cache_types=(cache_type,))
    except ModelUnavailable:
        return None


def describe_size(n_bytes: int) -> str:
    """Bytes in GiB, or in MiB where there are few."""
    return f"{n_bytes / GIB:.1f} GiB" if n_bytes >= GIB else f"{n_bytes / MIB:.0f} MiB"
