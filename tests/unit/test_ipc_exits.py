"""Waiting for children that say more than anybody reads."""

from __future__ import annotations

import asyncio
import sys

import pytest

from agent.ipc.exits import wait_for_exit

FLOOD = "import os; [os.write(1, b'x' * 1_000_000) for _ in range(100)]"


async def start(code: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", code, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )


async def test_a_flood_that_nobody_reads_does_not_hide_the_end() -> None:
    process = await start(FLOOD)
    await asyncio.sleep(0.3)  # the reader is full and has paused
    process.kill()
    assert await asyncio.wait_for(wait_for_exit(process), 10) == -9


async def test_a_reader_of_its_own_goes_on_reading() -> None:
    process = await start("import time; time.sleep(0.2); print('said')")
    assert process.stdout is not None
    reading = asyncio.create_task(process.stdout.read())
    await asyncio.sleep(0)
    assert await asyncio.wait_for(wait_for_exit(process), 10) == 0
    assert await reading == b"said\n"


async def test_waiting_may_be_given_up() -> None:
    process = await start("import time; time.sleep(60)")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wait_for_exit(process), 0.1)
    process.kill()
    assert await wait_for_exit(process) == -9
