"""Long work on the event loop in slices: between two of them the editor has its turn."""

from __future__ import annotations

import asyncio
import time

SLICE_S = 0.02


class Slices:
    """`await rest()` between two pieces of work; it waits only where a slice is over."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    async def rest(self) -> bool:
        """Let others run, where this slice has lasted long enough; whether they did."""
        if time.monotonic() - self._began_s < SLICE_S:
            return False
        await asyncio.sleep(0)
        self._began_s = time.monotonic()
        return True
