"""Backend D: the four file tools on a private view, as a plain child without a shell.

It runs no code of the workspace: the runner is ours, Bash is refused by it, and its changes go to a folder
in the overlay's format. What it cannot promise is said in every result.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping

from agent.errors import JailUnavailable
from agent.jail.child import reap
from agent.jail.explain import explain_platform
from agent.jail.interpreter import runner_executable
from agent.jail.leftovers import Held, hold_folder
from agent.jail.spec import JailSpec
from agent.types import JailInfo

REDUCED = "Bash is not available: no command can be jailed here, so no test was run by the model"

_STREAM_BYTES = 1024 * 1024
_END_TIMEOUT_S = 1.0


class FilesJail:
    """A running runner of backend D."""

    copied: Mapping[str, tuple[int, int]] | None = None

    def __init__(self, process: asyncio.subprocess.Process, folder: Held, view: int) -> None:
        self.process = process
        self.info = JailInfo(backend="files", reduced=REDUCED)
        why = explain_platform(sys.platform)
        self.notes: tuple[str, ...] = (f"The jail is reduced: {REDUCED}.", *((why,) if why else ()))
        self.limits: list[str] = []
        self._folder = folder
        self._view: int | None = view

    async def end(self) -> None:
        """Kill the runner; it has no children."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await reap(self.process, _END_TIMEOUT_S)

    def view_fd(self) -> int:
        """The open upper layer."""
        if self._view is None:
            raise JailUnavailable("the private view is closed")
        return self._view

    def close(self) -> None:
        """Remove the view. Idempotent."""
        if self._view is not None:
            os.close(self._view)
            self._view = None
            self._folder.remove()


def _lay_out(folder: str, runner: bytes) -> tuple[str, str]:
    """Make the upper layer and the runner's file; their paths."""
    upper, bundle = os.path.join(folder, "upper"), os.path.join(folder, "runner.pyz")
    os.mkdir(upper, 0o700)
    with open(bundle, "wb") as file:
        file.write(runner)
    return upper, bundle


async def start_files(spec: JailSpec, runner: bytes) -> FilesJail:
    """Start backend D for a checked spec. Raises JailUnavailable."""
    try:
        held = hold_folder("view")
        folder = held.path
    except OSError as error:
        raise JailUnavailable(f"no private view can be made: {error}", "Free space in the cache folder.") from error
    try:
        upper, bundle = _lay_out(folder, runner)
        process = await asyncio.create_subprocess_exec(
            *(runner_executable(), "-I", "-S", bundle, "--root", spec.workspace, "--upper", upper, "--no-bash"),
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": folder, "TMPDIR": folder},
            cwd=folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_STREAM_BYTES,
            start_new_session=True,
        )
        view = os.open(upper, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        held.remove()
        raise JailUnavailable(
            f"the file tools cannot be started: {error}", "Free space in the cache folder."
        ) from error
    return FilesJail(process, held, view)
