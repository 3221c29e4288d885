"""The tools through the real runner in the real jail: what they are asked to reach outside they do not."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.jail.session import open_session
from agent.jail.spec import JailSpec
from agent.tools.bundle import runner_bundle
from agent.tools.host import ToolHost
from agent.types import ToolCall
from tests.conftest import Seal

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

SECRET = "the-secret-of-the-host"


class Host:
    """A workspace with bait, a host file beside it, and the tools in a jail."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.outside = root / "outside"
        for folder in (self.workspace, self.outside):
            folder.mkdir()
        self.file = self.outside / "file"
        self.file.write_text(SECRET)
        (self.workspace / "link").symlink_to(self.file)
        (self.workspace / "folder").symlink_to(self.outside)
        (self.workspace / "own").write_text("own\n")
        self.tools: ToolHost | None = None

    def ways(self) -> list[str]:
        """Every way to say the host file in a path."""
        up = "../" * 20
        return [
            str(self.file),
            "../outside/file",
            f"{up}{self.file}",
            "link",
            "folder/file",
            f"/proc/self/root{self.file}",
        ]

    async def call(self, name: str, **arguments: object) -> str:
        assert self.tools is not None
        return (await self.tools.execute(ToolCall(name=name, arguments=arguments))).text


@pytest.fixture
async def host(sealed: Seal) -> AsyncIterator[Host]:
    root = Path(
        tempfile.mkdtemp(prefix="frog-tools-", dir="/var/tmp")
    )  # the jail has a /tmp of its own, for the tools, too
    made = Host(root)
    sealed(root)
    session = await open_session(JailSpec(workspace=str(made.workspace)), runner_bundle(), backend="namespaces")
    made.tools = ToolHost(session.reader, session.writer)
    await made.tools.start()
    yield made
    await made.tools.close()
    await session.close()
    sealed.check()
    shutil.rmtree(root)


async def test_reading(host: Host) -> None:
    for way in host.ways():
        assert (host.workspace / way).resolve().read_text() == SECRET or way.startswith("/proc"), "the way leads there"
        text = await host.call("Read", file_path=way)
        assert SECRET not in text
        assert "Error" in text.partition("\n")[0]
        assert SECRET not in await host.call("Bash", command=f"cat '{way}'")
    assert str(host.file) not in await host.call("Glob", pattern=f"{host.outside}/*")
    assert "file" not in await host.call("Glob", pattern="folder/*")
    assert "own" in await host.call("Read", file_path="own"), "the tools do work"


async def test_writing(host: Host) -> None:
    """The seal over the host folder is the judge; the tools work on what is theirs."""
    for way in [*host.ways(), "folder/new", str(host.outside / "new")]:
        for answer in (
            await host.call("Write", file_path=way, content="owned"),
            await host.call("Edit", file_path=way, old_string=SECRET, new_string="owned"),
        ):
            assert "Error" in answer.partition("\n")[0], (way, answer)
        await host.call("Bash", command=f"echo owned >'{way}'; chmod 777 '{way}'; touch -d 2001-01-01 '{way}'")
    assert host.file.read_text() == SECRET
    assert not (await host.call("Write", file_path="own", content="changed\n")).startswith("PermissionError")
    assert "changed" in await host.call("Read", file_path="own")
