"""A jail whose PID 1 is our launcher, from the outside: start it, follow its status channel, end it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from agent.errors import JailUnavailable
from agent.jail.channel import StatusMessage
from agent.jail.child import reap
from agent.jail.ground import Ground
from agent.jail.start import START_TIMEOUT_S, Launch, LauncherDiedError
from agent.types import JailInfo

_STREAM_BYTES = 1024 * 1024
_END_TIMEOUT_S = 5.0


class LaunchedJail:
    """A running jail whose PID 1 is our launcher."""

    def __init__(
        self, process: asyncio.subprocess.Process, launch: Launch, ground: Ground, notes: tuple[str, ...]
    ) -> None:
        self.process = process
        self.info = JailInfo(backend=launch.backend, reduced=launch.reduced, root=launch.root)
        self.notes = (*notes, *ground.notes)
        self.limits = launch.limits
        self.copied: Mapping[str, tuple[int, int]] | None = ground.copied
        self._ground = ground
        self._launch = launch
        self._ending: asyncio.Task[None] | None = None
        self._outlived = False
        self._closed = False
        self._finished = asyncio.get_running_loop().create_future()

    @property
    def wait_status(self) -> int | None:
        """The wait status of the jailed command once it ended by itself."""
        return self._launch.wait_status

    def follow(self) -> None:
        """From READY on: take what the launcher says (limits, the end) as it comes."""
        self._launch.channel.socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._launch.channel.socket, self._on_message)

    def _on_message(self) -> None:
        try:
            message = self._launch.channel.receive()
            self._launch.take(message)
        except BlockingIOError:
            return
        except JailUnavailable:
            message = None
        if message is None:
            self._unfollow()

    def _unfollow(self) -> None:
        asyncio.get_running_loop().remove_reader(self._launch.channel.socket)
        if not self._finished.done():
            self._finished.set_result(None)

    async def finished(self) -> None:
        """Wait until PID 1 of the jail is gone."""
        await self._finished

    async def end(self) -> None:
        """Kill PID 1: the kernel kills all its processes, and it counts as ended only after them."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="end of a jail")
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self._launch.kill()
        if self._launch.init is not None:
            try:
                await asyncio.wait_for(_until_readable(self._launch.init), _END_TIMEOUT_S)
            except TimeoutError:  # a process hangs in the kernel
                self._outlived = True
        await reap(self.process, _END_TIMEOUT_S)
        if self._launch.is_asked_to_end and self.process.returncode != 0:
            self._outlived = True  # nobody was left who would have ended the others

    def view_fd(self) -> int:
        """The open upper layer."""
        if self._outlived:
            raise JailUnavailable(
                f"a process of the jail did not end within {_END_TIMEOUT_S:.0f} s, so its changes cannot be trusted",
                "Start the run again; a hanging network file system is the usual reason.",
            )
        if self._launch.view is None:
            raise JailUnavailable("the private view is closed")
        return self._launch.view

    def close(self) -> None:
        """Release the view and everything else. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._unfollow()
        self._launch.close()
        self._ground.remove()


async def start_launched(
    prepare: Callable[[], tuple[Launch, tuple[str, ...]]], ground: Ground, outputs: tuple[int, int] | None
) -> LaunchedJail:
    """Start what `prepare` lays out (a launch and its notes) on `ground`, which is removed where that fails.

    With `outputs` (stdout, stderr: the writing ends of pipes, never our own) stdin is empty; else all three
    are pipes of the process. Call it from a thread that lives as long as the jail: it dies with that thread.
    Raises JailUnavailable.
    """
    launch: Launch | None = None
    process: asyncio.subprocess.Process | None = None
    try:
        launch, notes = prepare()
        process = await _spawn(launch, outputs)
        launch.started()
        await asyncio.wait_for(_until_ready(launch), START_TIMEOUT_S)
    except BaseException as error:
        last_words = await asyncio.shield(_abandon(launch, process))
        ground.remove()
        if isinstance(error, TimeoutError):
            raise JailUnavailable(
                f"the jail was not ready after {START_TIMEOUT_S:.0f} s", "The machine may be overloaded; try again."
            ) from error
        if isinstance(error, LauncherDiedError) and last_words:
            raise LauncherDiedError(f"{error.message}: {last_words}", error.hint) from error
        raise
    jail = LaunchedJail(process, launch, ground, notes)
    jail.follow()
    return jail


async def _spawn(launch: Launch, outputs: tuple[int, int] | None) -> asyncio.subprocess.Process:
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    stdout, stderr = outputs or (pipe, pipe)
    try:
        return await asyncio.create_subprocess_exec(
            *launch.command,
            env=launch.environment,
            pass_fds=launch.pass_fds,
            cwd="/",
            stdin=null if outputs else pipe,
            stdout=stdout,
            stderr=stderr,
            limit=_STREAM_BYTES,
            start_new_session=True,
        )
    except OSError as error:
        raise JailUnavailable(f"the jail's launcher cannot be started: {error}", "Close programs.") from error


async def _abandon(launch: Launch | None, process: asyncio.subprocess.Process | None) -> str:
    """End a start that failed; the last line that the launcher wrote to stderr."""
    if launch is not None:
        launch.kill()
        launch.close()
    if process is None:
        return ""
    if launch is None or not launch.is_asked_to_end:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    await reap(process, _END_TIMEOUT_S)
    if process.stderr is None:
        return ""
    with contextlib.suppress(TimeoutError):
        lines = (await asyncio.wait_for(process.stderr.read(_STREAM_BYTES), 1.0)).decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
    return ""


async def _until_ready(launch: Launch) -> None:
    launch.channel.socket.setblocking(False)
    while not launch.ready:
        await _until_readable(launch.channel.socket.fileno())
        message: StatusMessage | None
        try:
            message = launch.channel.receive()
        except BlockingIOError:
            continue
        launch.take(message)


async def _until_readable(number: int) -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.add_reader(number, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        loop.remove_reader(number)
