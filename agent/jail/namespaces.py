"""Backend A: namespaces and an overlay, made by our own launcher."""

from __future__ import annotations

import os
from dataclasses import replace

from agent.jail.channel import OverlayRefused
from agent.jail.explain import kernel_version
from agent.jail.ground import Ground, can_have_overlay, hold_copy, hold_layers, with_group
from agent.jail.groups import group_for
from agent.jail.host import gather_host_facts
from agent.jail.launched import LaunchedJail, start_launched
from agent.jail.plan import plan_namespaces
from agent.jail.spec import JailSpec
from agent.jail.start import prepare_launch


async def start_namespaces(
    spec: JailSpec, runner: bytes, argv: tuple[str, ...] | None = None, *, outputs: tuple[int, int] | None = None
) -> LaunchedJail:
    """Start backend A for a checked spec; returns when the jail has proven itself. Raises JailUnavailable.

    A workspace that no overlay can be made over (see `can_have_overlay`; an overlay on overlays) is copied instead.
    `outputs` are those of `start_launched`.
    """
    facts, notes = gather_host_facts(spec)

    async def start(ground: Ground) -> LaunchedJail:
        plan = plan_namespaces(spec, replace(facts, layers=ground.layers, copy=ground.copy), argv)
        held_together = group_for(spec.limits)
        ground = with_group(ground, held_together)
        group = ground.group
        return await start_launched(
            lambda: (prepare_launch(plan, runner, group, held_together), notes), ground, outputs
        )

    if can_have_overlay(spec, facts):
        try:
            return await start(Ground() if memory_view_works() else hold_layers())
        except OverlayRefused:
            pass  # the copy is the answer; where that fails too, its own reason is the better one
    owner = (facts.owner_uid, facts.owner_gid) if facts.uid == 0 else None
    return await start(await hold_copy(spec, facts.project.shown, owner))


def memory_view_works() -> bool:
    """True where the kernel takes user attributes on tmpfs (Linux 6.6), which the overlay needs."""
    return kernel_version(os.uname().release) >= (6, 6)
