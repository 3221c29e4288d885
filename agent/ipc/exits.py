"""Waiting for a child to end, whatever it still has to say."""

from __future__ import annotations

import asyncio
import contextlib

_READ_BYTES = 65_536


async def wait_for_exit(process: asyncio.subprocess.Process) -> int:
    """The exit code of a child whose output nobody needs any more.

    asyncio sees the end of a child only after the end of its pipes, and a pipe that is full of what nobody reads is
    not read to its end: a child that floods its stdout and is killed would be waited for, for ever.
    """
    discarding = asyncio.create_task(_discard(process.stdout))
    try:
        return await process.wait()
    finally:
        discarding.cancel()
        await asyncio.wait([discarding])


async def _discard(stream: asyncio.StreamReader | None) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: somebody else reads, so nothing is in the way
        while stream is not None and await stream.read(_READ_BYTES):
            pass
