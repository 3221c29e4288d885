"""One command in a jail of its own: `frog-lsp jail`. Its changes are dropped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Sequence
from io import FileIO

from agent.errors import FrogError
from agent.jail.backend import Backend
from agent.jail.backends import chosen_for_commands, start_first
from agent.jail.channel import CommandNotStarted
from agent.jail.child import JailedCommand
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
    with contextlib.ExitStack() as ends:
        sources: list[FileIO] = []
        try:
            with contextlib.ExitStack() as writing_ends:
                outputs = []
                for _ in range(2):
                    reading, writing = os.pipe2(os.O_CLOEXEC)
                    sources.append(ends.enter_context(FileIO(reading, "rb")))
                    outputs.append(writing_ends.enter_context(FileIO(writing, "wb")).fileno())
                jail = await _start(chosen_for_commands(backend), spec.checked(), tuple(argv), (outputs[0], outputs[1]))
        except CommandNotStarted as error:
            _say(f"{argv[0]}: {error.message}")
            return EXIT_NOT_FOUND if error.is_missing else EXIT_NOT_EXECUTABLE
        except FrogError as error:
            _say(f"frog-lsp: jail: {error.in_one_line}")
            return EXIT_NOT_JAILED
        except OSError as error:
            _say(f"frog-lsp: jail: it cannot be prepared: {error}. Close programs, or raise their limits.")
            return EXIT_NOT_JAILED
        try:
            return await _finish(jail, sources, spec.limits.output_bytes)
        finally:
            await asyncio.shield(jail.end())
            jail.close()


async def _start(
    candidates: tuple[Backend, ...], spec: JailSpec, argv: tuple[str, ...], outputs: tuple[int, int]
) -> JailedCommand:
    """The command in the first backend that proves itself; those before it are named on stderr."""

    def run(backend: Backend) -> Awaitable[JailedCommand]:
        assert backend.run is not None
        return backend.run(spec, argv, outputs)

    jail, misses = await start_first(candidates, run)
    for miss in misses:
        _say(f"frog-lsp: jail: {miss}")
    return jail


class _Output:
    """What the command printed so far, on both streams together; more than `max_bytes` ends it."""

    def __init__(self, jail: JailedCommand, max_bytes: int) -> None:
        self._jail = jail
        self._left_bytes = max_bytes

    async def take(self, piece: bytes) -> bytes:
        """The part of a piece that may still be shown."""
        shown = piece[: max(0, self._left_bytes)]
        self._left_bytes -= len(piece)
        if self._left_bytes < 0 and "output_bytes" not in self._jail.limits:
            self._jail.limits.append("output_bytes")
            await self._jail.end()
        return shown


async def _finish(jail: JailedCommand, sources: list[FileIO], max_bytes: int) -> int:
    output = _Output(jail, max_bytes)
    pumps = [asyncio.create_task(_pump(source, number, output)) for number, source in enumerate(sources, start=1)]
    try:
        await jail.finished()
        # everything in the jail is dead: what it wrote is in the pipes, and their ends are near
        await asyncio.wait(pumps, timeout=_DRAIN_TIMEOUT_S)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
    if jail.limits:
        return EXIT_LIMIT
    status = jail.wait_status
    if status is None:  # PID 1 was killed from outside
        return 128 + signal.SIGKILL
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    return EXIT_LIMIT if -code in _BY_LIMIT else 128 - code


async def _pump(source: FileIO, number: int, output: _Output) -> None:
    """Copy a pipe to our own stdout or stderr; once nobody reads that, close it, so that the command hears of it.

    The command never gets our own descriptors: a terminal can be read back, a file opened anew.
    """
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), source)
    try:
        while piece := await stream.read(_PIECE_BYTES):
            if not await asyncio.to_thread(_write_all, number, await output.take(piece)):
                return
    finally:
        transport.close()


def _write_all(number: int, piece: bytes) -> bool:
    """Write all of it; False once nobody reads any more, or what it goes to takes no more."""
    left = memoryview(piece)
    try:
        while left:
            left = left[os.write(number, left) :]
    except BrokenPipeError:
        return False
    except OSError as error:
        with contextlib.suppress(OSError):  # it may be stderr itself
            _say(f"frog-lsp: jail: not all of the output could be written: {error.strerror}")
        return False
    return True


def open_standard_streams() -> None:
    """Where our own 0, 1 or 2 is closed, the next descriptor would take its number, and get the command's output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _say(line: str) -> None:
    shown = "".join(c if c.isprintable() else "?" for c in line)
    sys.stderr.write(shown + "\n")
    sys.stderr.flush()
