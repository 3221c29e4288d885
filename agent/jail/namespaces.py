"""Backend A from the outside: start the launcher, follow its status channel, end it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile

from agent.config import cache_dir, make_private_dir
from agent.errors import JailUnavailable
from agent.jail.channel import StatusMessage
from agent.jail.child import reap
from agent.jail.host import gather_host_facts
from agent.jail.plan import plan_namespaces
from agent.jail.spec import JailSpec
from agent.jail.start import START_TIMEOUT_S, Launch, prepare_launch
from agent.types import JailInfo

_STREAM_BYTES = 1024 * 1024
_END_TIMEOUT_S = 5.0


class NamespaceJail:
    """A running jail of backend A."""

    def __init__(self, process: asyncio.subprocess.Process, launch: Launch, notes: tuple[str, ...]) -> None:
        self.process = process
        self.info = JailInfo(backend="namespaces")
        self.notes = notes
        self.limits = launch.limits
        self.disk_view: str | None = None
        self._launch = launch
        self._ended = False
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
        if self._ended:
            return
        self._launch.kill()
        if self._launch.init is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(_until_readable(self._launch.init), _END_TIMEOUT_S)
        await reap(self.process, _END_TIMEOUT_S)
        self._ended = True

    def view_fd(self) -> int:
        """The open upper layer."""
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
        if self.disk_view is not None:
            remove_tree(self.disk_view)


async def start_namespaces(
    spec: JailSpec, runner: bytes, argv: tuple[str, ...] | None = None, *, stdin_is_null: bool = False
) -> NamespaceJail:
    """Start backend A for a checked spec; returns when the jail has proven itself. Raises JailUnavailable."""
    disk_view = None if memory_view_works() else make_view_folder()
    facts, notes = gather_host_facts(spec, disk_view=disk_view)
    launch = prepare_launch(plan_namespaces(spec, facts, argv), runner)
    process: asyncio.subprocess.Process | None = None
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *launch.command,
                env=launch.environment,
                pass_fds=launch.pass_fds,
                cwd="/",
                stdin=asyncio.subprocess.DEVNULL if stdin_is_null else asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_STREAM_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            raise JailUnavailable(f"the jail's launcher cannot be started: {error}") from error
        launch.started()
        await asyncio.wait_for(_until_ready(launch), START_TIMEOUT_S)
    except BaseException as error:
        launch.kill()
        launch.close()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
        if disk_view is not None:
            remove_tree(disk_view)
        if isinstance(error, TimeoutError):
            raise JailUnavailable(
                f"the jail was not ready after {START_TIMEOUT_S:.0f} s", "The machine may be overloaded; try again."
            ) from error
        raise
    jail = NamespaceJail(process, launch, notes)
    jail.disk_view = disk_view
    jail.follow()
    return jail


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


def memory_view_works() -> bool:
    """True where the kernel takes user attributes on tmpfs (Linux 6.6), which the overlay needs."""
    major, minor = (int("".join(c for c in part if c.isdigit()) or 0) for part in os.uname().release.split(".")[:2])
    return (major, minor) >= (6, 6)


def make_view_folder() -> str:
    """A new private folder for a view on disk, in the user's cache folder."""
    parent = cache_dir() / "views"
    make_private_dir(parent)
    return tempfile.mkdtemp(prefix="view-", dir=parent)


def remove_tree(path: str) -> None:
    """Remove a folder of our own, also where the jail left folders without permissions in it."""
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)
