"""One command in a jail of its own: `frog-lsp jail`. Its changes are dropped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from agent.errors import FrogError, JailUnavailable
from agent.jail.channel import CommandNotStarted
from agent.jail.namespaces import NamespaceJail, start_namespaces
from agent.jail.spec import JailSpec

EXIT_LIMIT = 124
EXIT_NOT_JAILED = 125
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127

_PIECE_BYTES = 65_536
_DRAIN_TIMEOUT_S = 5.0
_BY_LIMIT = (signal.SIGXCPU, signal.SIGXFSZ)


async def run_command(spec: JailSpec, argv: Sequence[str], backend: str = "auto") -> int:
    """Run `argv` (no shell) in the jail with an empty stdin; returns the exit code for our own process.

    stdout and stderr are the command's alone. 128+n where signal n ended it, 124 where a limit did, 126 and
    127 where the program cannot be executed or found, 125 with a line on stderr where it could not be jailed:
    then nothing ran.
    """
    try:
        if backend not in ("auto", "namespaces"):
            raise JailUnavailable(f"backend {backend!r} cannot run a command", "Only `namespaces` can.")
        jail = await start_namespaces(spec.checked(), b"", tuple(argv), stdin_is_null=True)
    except CommandNotStarted as error:
        _say(f"{argv[0]}: {error.message}")
        return EXIT_NOT_FOUND if error.is_missing else EXIT_NOT_EXECUTABLE
    except FrogError as error:
        _say(f"frog-lsp: jail: {error.message}" + (f". {error.hint}" if error.hint else ""))
        return EXIT_NOT_JAILED
    try:
        return await _finish(jail)
    finally:
        await asyncio.shield(jail.end())
        jail.close()


async def _finish(jail: NamespaceJail) -> int:
    process = jail.process
    assert process.stdout is not None
    assert process.stderr is not None
    pumps = [asyncio.create_task(_pump(process.stdout, 1)), asyncio.create_task(_pump(process.stderr, 2))]
    try:
        await jail.finished()
        # everything in the jail is dead: what it wrote is in the pipes, and their ends are near
        await asyncio.wait(pumps, timeout=_DRAIN_TIMEOUT_S)
    finally:
        for pump in pumps:
            pump.cancel()
    if jail.limits:
        return EXIT_LIMIT
    status = jail.wait_status
    if status is None:  # PID 1 was killed from outside
        return 128 + signal.SIGKILL
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    return EXIT_LIMIT if -code in _BY_LIMIT else 128 - code


async def _pump(stream: asyncio.StreamReader, number: int) -> None:
    """Copy to our own stdout or stderr. The command never gets our descriptors: a terminal can be read back."""
    is_open = True
    while piece := await stream.read(_PIECE_BYTES):
        if is_open:
            is_open = await asyncio.to_thread(_write_all, number, piece)


def _write_all(number: int, piece: bytes) -> bool:
    """Write all of it; False once nobody reads any more (the command still runs to its end)."""
    left = memoryview(piece)
    with contextlib.suppress(BrokenPipeError):
        while left:
            left = left[os.write(number, left) :]
        return True
    return False


def _say(line: str) -> None:
    shown = "".join(c if c.isprintable() else "?" for c in line)
    sys.stderr.write(shown + "\n")
    sys.stderr.flush()
