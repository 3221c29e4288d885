"""A review in a real server: after a restart, with code lenses, and as a virtual document."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.changes.changeset import assemble
from agent.changes.diff import patch
from agent.changes.proposal import Proposal
from agent.changes.proposals import ProposalStore
from agent.jail.risk import flag
from agent.types import ExitReason, FileState, JailInfo, ModelInfo, PathDelta
from tests.e2e.lsp_client import FULL, LspClient, LspError, to_path, to_uri
from tests.e2e.lsp_session import own_env

RUN = "20260131-142501-3fa2c1"
LONG = "".join(f"line {n}\n" for n in range(40))
SHOUTED = LONG.replace("line 3\n", "LINE 3\n").replace("line 30\n", "LINE 30\n")
LENSES: dict[str, Any] = {
    **FULL,
    "workspace": {**FULL["workspace"], "codeLens": {"refreshSupport": True}},
    "textDocument": {**FULL["textDocument"], "codeLens": {"dynamicRegistration": True}},
}
VIRTUAL: dict[str, Any] = {
    **LENSES,
    "workspace": {**LENSES["workspace"], "textDocumentContent": {"dynamicRegistration": True}},
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A workspace with a proposal that an earlier server left."""
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "long.txt").write_text(LONG)
    delta = PathDelta(path="long.txt", before=FileState(data=LONG.encode()), after=FileState(data=SHOUTED.encode()))
    changes = flag(assemble([delta]), str(folder), lambda path: False)
    ProposalStore(tmp_path / "home" / "state" / "frog-lsp").save(
        Proposal(
            run_id=RUN, title="Shout", workspace=str(folder), folder=to_uri(folder), created_s=time.time(),
            exit_reason=ExitReason.AGENT, final_message="", changes=changes, patch=patch(changes),
            model=ModelInfo(kind="scripted", name="s"), jail=JailInfo(backend="files"),
        )
    )  # fmt: skip
    return folder


@contextlib.asynccontextmanager
async def server(tmp_path: Path, project: Path, capabilities: dict[str, Any]) -> AsyncIterator[LspClient]:
    client = LspClient(env=own_env(tmp_path / "home"))
    client.handlers["workspace/codeLens/refresh"] = lambda params: None
    client.handlers["workspace/textDocumentContent/refresh"] = lambda params: None
    async with client.started():
        client.answer = await client.initialize(project, capabilities=capabilities)  # type: ignore[attr-defined]
        yield client


async def lenses(client: LspClient, uri: str) -> list[dict[str, Any]]:
    return await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})


def text_of(path: str) -> str:
    return Path(path).read_text()


def titles(found: list[dict[str, Any]]) -> list[str]:
    return [lens["command"]["title"] for lens in found]


ALL = ["Apply all", "Discard", "Apply hunk 1", "Discard hunk 1", "Apply hunk 2", "Discard hunk 2"]


@pytest.mark.slow
async def test_a_review_that_is_open_when_the_server_starts(tmp_path: Path, project: Path) -> None:
    async with server(tmp_path, project, LENSES) as client:
        review = await client.run("frog.review", {"runId": RUN})
        assert review["nHunks"] == 2
    async with server(tmp_path, project, LENSES) as client:
        assert client.answer["capabilities"]["codeLensProvider"] == {"resolveProvider": False}
        document = client.open(review["path"], uri=review["uri"].replace("-", "%2d"))
        found = await lenses(client, document.uri)
        assert titles(found) == ALL
        assert await lenses(client, to_uri(project / "long.txt")) == []
        began = time.monotonic()
        for _ in range(20):
            await lenses(client, document.uri)
        assert (time.monotonic() - began) / 20 < 0.05
        command = found[4]["command"]
        result = await client.request("workspace/executeCommand", command)
        assert result["state"] == "partly-applied"
        assert (project / "long.txt").read_text() == LONG.replace("line 30\n", "LINE 30\n")
        await client.until(lambda: "workspace/codeLens/refresh" in [m for m, _ in client.requests])
        assert titles(await lenses(client, document.uri)) == ALL[:4], "also where the editor shows the old text"
        client.change(document, text_of(review["path"]))
        assert "hunk 2 of long.txt is in place already" in document.text
        assert titles(await lenses(client, document.uri)) == ALL[:4]
        with pytest.raises(LspError, match="no hunk 7") as caught:
            await client.run("frog.discard", {"runId": RUN, "hunks": [7]})
        assert caught.value.code == -32602
        with pytest.raises(LspError, match="hunks\\[0\\] must be a whole number") as caught:
            await client.run("frog.discard", {"runId": RUN, "hunks": ["1"]})
        assert caught.value.code == -32602
        assert (await client.run("frog.discard", {"runId": RUN, "hunks": [1]}))["state"] == "applied"
        assert await lenses(client, document.uri) == []


@pytest.mark.slow
async def test_a_client_without_lenses_is_offered_none(tmp_path: Path, project: Path) -> None:
    async with server(tmp_path, project, FULL) as client:
        assert "codeLensProvider" not in client.answer["capabilities"]
        review = await client.run("frog.review", {"runId": RUN})
        assert review["uri"] == to_uri(review["path"])
        assert not [m for m, _ in client.requests if m in ("client/registerCapability", "workspace/codeLens/refresh")]


@pytest.mark.slow
async def test_a_virtual_document(tmp_path: Path, project: Path) -> None:
    async with server(tmp_path, project, VIRTUAL) as client:
        (asked,) = await client.until(lambda: [p for m, p in client.requests if m == "client/registerCapability"])
        (registration,) = asked["registrations"]
        assert (registration["method"], registration["registerOptions"]) == (
            "workspace/textDocumentContent",
            {"schemes": ["frog-review"]},
        )
        await client.run("frog.runs", {})
        review = await client.run("frog.review", {"runId": RUN})
        uri = f"frog-review:/{RUN}.diff"
        assert (review["uri"], review["shown"]) == (uri, True)
        assert [p["uri"] for m, p in client.requests if m == "window/showDocument"] == [uri]
        text = (await client.request("workspace/textDocumentContent", {"uri": uri}))["text"]
        assert text == text_of(review["path"])
        assert titles(await lenses(client, uri)) == ALL
        (project / "long.txt").write_text(LONG.replace("line 3\n", "mine\n"))
        refreshed = await client.until(
            lambda: [p for m, p in client.requests if m == "workspace/textDocumentContent/refresh"][1:]
        )
        assert refreshed == [{"uri": uri}], "the file is watched"
        text = (await client.request("workspace/textDocumentContent", {"uri": uri}))["text"]
        assert "#   <<<<<<< yours, the file now, line 4\n#   mine\n" in text
        for bad in ("frog-review:/../x.diff", "frog-review:/20250101-000000-000000.diff", to_uri(project / "long.txt")):
            with pytest.raises(LspError) as caught:
                await client.request("workspace/textDocumentContent", {"uri": bad})
            assert caught.value.code == -32602


@pytest.mark.slow
async def test_a_client_that_refuses_the_registration_gets_the_file(tmp_path: Path, project: Path) -> None:
    async with server(tmp_path, project, VIRTUAL) as client:
        del client.handlers["client/registerCapability"]
        await client.until(lambda: [p for m, p in client.requests if m == "client/registerCapability"])
        await client.run("frog.runs", {})
        review = await client.run("frog.review", {"runId": RUN})
        assert to_path(review["uri"]) == review["path"]
