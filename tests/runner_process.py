"""A real tool runner in a process of its own, on a folder of the test, with a real host on the other end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import cast

from agent.ipc.exits import wait_for_exit
from agent.tools.bundle import runner_bundle
from agent.tools.host import OnTouch, ToolHost
from agent.tools.inputs import read_arguments
from agent.tools.runner.events import Events
from agent.tools.runner.files import Tree
from agent.tools.runner.places import Places
from agent.tools.runner.service import Service
from agent.tools.runner.view import CopyView, View
from agent.types import ToolCall


@functools.cache
def bundle_path() -> str:
    """The archive as a file, removed when the tests end."""
    folder = tempfile.TemporaryDirectory(prefix="frog-runner-")
    _KEPT.append(folder)
    path = os.path.join(folder.name, "runner.pyz")
    Path(path).write_bytes(runner_bundle())
    return path


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


class Runner:
    """A started runner: `host` speaks to it, `process` is it."""

    def __init__(self, host: ToolHost, process: asyncio.subprocess.Process) -> None:
        self.host = host
        self.process = process

    async def __call__(self, name: str, **arguments: object) -> str:
        """The observation of one call."""
        return (await self.host.execute(ToolCall(name=name, arguments=arguments))).text


@contextlib.asynccontextmanager
async def running(root: Path, *arguments: str, on_touch: OnTouch | None = None) -> AsyncIterator[Runner]:
    """Start `runner.pyz --root ROOT ARGUMENTS`, and see it end by itself when the connection closes."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", bundle_path(), "--root", str(root), *arguments),
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(root)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd="/",
    )
    assert process.stdin is not None
    assert process.stdout is not None
    host = ToolHost(process.stdout, process.stdin, on_touch=on_touch)
    try:
        await host.start()
        yield Runner(host, process)
    finally:
        await host.close()
        try:
            await asyncio.wait_for(wait_for_exit(process), 20)
        except TimeoutError:
            await end(process)
            raise


KINDS = ("openat2", "components", "upper")
"""Ways to reach the files: in place, in place without openat2, and copied on write."""


class FileTools:
    """The file tools without a process: the same code, called directly."""

    def __init__(self, kind: str, root: Path, upper: Path, scratch: Path | None = None) -> None:
        self.root, self.upper, self.kind = root, upper, kind
        tree = Tree(str(root), use_openat2=kind != "components")
        self.view = CopyView(tree, Tree(str(upper))) if kind == "upper" else View(tree)
        scratch_view = View(Tree(str(scratch))) if scratch else None
        self.places = Places(str(root), self.view, str(scratch) if scratch else None, scratch_view)
        self._service = Service(cast("Events", None), self.places, self.view, has_bash=False)

    def __call__(self, name: str, **arguments: object) -> str:
        """The observation of one call."""
        return self._service.observe(name, read_arguments(name, arguments))

    def data(self, path: str) -> bytes:
        """The bytes of a file as the tools see them."""
        return self.view.read(tuple(path.split("/")), 1 << 30)

    def close(self) -> None:
        """Close the descriptors of the folders."""
        trees = [self.view.tree, *([self.view.lower] if isinstance(self.view, CopyView) else [])]
        for tree in trees:
            tree.close()


def fill(root: Path, files: Mapping[str, bytes | str]) -> None:
    """Make files: bytes, or the target of a link as text."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.symlink_to(content)


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill a child, and close its pipes although not all was read."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await wait_for_exit(process)
    process._transport.close()  # type: ignore[attr-defined]


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX"
