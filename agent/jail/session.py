"""One jail for one run: open, speak frames, stop and keep the view, close."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import Self

from agent.jail.backends import chosen, start_first
from agent.jail.child import Jailed, StderrTail
from agent.jail.spec import JailSpec
from agent.types import JailInfo, PrivateView


class JailSession:
    """A jailed runner. `reader` and `writer` are its stdout and stdin.

    The order is open_session, frames, stop (the changes can be collected), close. `close` alone is fine too.
    """

    def __init__(self, spec: JailSpec, jailed: Jailed, missed: tuple[str, ...] = ()) -> None:
        process = jailed.process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.info: JailInfo = jailed.info
        self.reader: asyncio.StreamReader = process.stdout
        self.writer: asyncio.StreamWriter = process.stdin
        self.workspace = spec.workspace
        self._jailed = jailed
        self._missed = missed
        self._stderr = StderrTail(process.stderr)
        self._closed = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know: a reduced jail, an interpreter left out, limits that were met."""
        met = dict.fromkeys(self._jailed.limits)
        return (*self._missed, *self._jailed.notes, *(f"A limit of the jail was met: {name}." for name in met))

    @property
    def moved(self) -> tuple[str, str] | None:
        """The workspace, and where it is in the jail; None where that is the same."""
        return (self.workspace, self.info.root) if self.info.root else None

    def stderr_tail(self) -> str:
        """The end of what the runner wrote to stderr."""
        return self._stderr.text()

    async def stop(self) -> PrivateView:
        """Kill every jailed process, wait until all are dead, and return the view; the caller closes its descriptor.

        May be called again. Raises JailUnavailable after `close`.
        """
        await self._end()
        jailed = self._jailed
        return PrivateView(upper_fd=os.dup(jailed.view_fd()), lower=self.workspace, copied=jailed.copied)

    async def _end(self) -> None:
        await asyncio.shield(self._jailed.end())
        await self._stderr.close()
        self.writer.close()

    async def close(self) -> None:
        """End everything and release it. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._end()
        finally:
            self._jailed.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def open_session(spec: JailSpec, runner: bytes, *, backend: str = "auto") -> JailSession:
    """Jail the runner (a zipapp) in a private view of `spec.workspace`.

    "auto" takes the first backend that proves itself; why the better ones did not is in the notes. Never anything
    unjailed. Raises WorkspaceError, UsageError, and JailUnavailable where no backend asked for can be had.
    """
    candidates = chosen(backend)
    spec = spec.checked()
    jailed, misses = await start_first(candidates, lambda candidate: candidate.start(spec, runner))
    return JailSession(spec, jailed, misses)
