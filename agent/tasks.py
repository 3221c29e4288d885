"""Two ways to wait: for several things at the same time, and for one thing come what may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


async def together(first: Coroutine[Any, Any, Any], *others: Coroutine[Any, Any, Any]) -> list[Any]:
    """Await all at the same time; the first trouble cancels the rest and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in (first, *others)]
    except BaseExceptionGroup as troubles:
        raise troubles.exceptions[0] from None
    return [task.result() for task in tasks]


async def settle(task: asyncio.Task[Any], on_cancel: Callable[[], None]) -> bool:
    """Wait for a task to end, come what may; True where the caller was cancelled meanwhile."""
    was_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            was_cancelled = True
            on_cancel()
    return was_cancelled
