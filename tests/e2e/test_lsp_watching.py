"""A real server whose proposal waits, while files change and are renamed: what it says, and where it applies.

The proposals are kept by the store that a run keeps them with: no model and no jail is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.changes.proposal import Proposal
from agent.changes.proposals import ProposalStore
from agent.types import ChangeKind, ChangeSet, ExitReason, FileChange, FileState, JailInfo, ModelInfo
from tests.e2e.lsp_client import FULL, LspClient, LspError, capabilities_of, to_uri
from tests.e2e.lsp_session import own_env

BASE = "one\ntwo\nthree\nfour\nfive\n"
OURS = "one\ntwo\nTHREE\nfour\nfive\n"
OPERATIONS = dict.fromkeys(("didCreate", "didRename", "didDelete", "willRename"), True)
RENAMES = FULL | {"workspace": FULL["workspace"] | {"fileOperations": OPERATIONS}}
REGISTERS = FULL | {"workspace": FULL["workspace"] | {"didChangeWatchedFiles": {"dynamicRegistration": True}}}
RELATIVE = {"dynamicRegistration": True, "relativePatternSupport": True}
REGISTERS_RELATIVE = FULL | {"workspace": FULL["workspace"] | {"didChangeWatchedFiles": RELATIVE}}


def modified(path: str, before: str = BASE, after: str = OURS) -> FileChange:
    old, new = (FileState(data=text.encode()) for text in (before, after))
    return FileChange(path=path, kind=ChangeKind.MODIFIED, before=old, after=new)


def created(path: str, text: str) -> FileChange:
    return FileChange(path=path, kind=ChangeKind.CREATED, before=None, after=FileState(data=text.encode()))


def renamed(old: str, new: str, text: str = BASE) -> FileChange:
    state = FileState(data=text.encode())
    return FileChange(path=new, old_path=old, kind=ChangeKind.RENAMED, before=state, after=state)


def keep(home: Path, folder: Path, run_id: str, *changes: FileChange) -> None:
    """Leave a proposal as the run of an earlier server does."""
    own_env(home)
    proposal = Proposal(
        run_id=run_id,
        title="an issue",
        workspace=str(folder),
        folder=to_uri(folder),
        created_s=1e9,
        exit_reason=ExitReason.AGENT,
        final_message="",
        changes=ChangeSet(changes=changes),
        patch="",
        model=ModelInfo(kind="scripted", name="m"),
        jail=JailInfo(backend="none"),
    )
    ProposalStore(home / "state" / "frog-lsp").save(proposal)


@contextlib.asynccontextmanager
async def connected(home: Path, *folders: Path, capabilities: Any = None) -> AsyncIterator[LspClient]:
    client = LspClient(env=own_env(home))
    async with client.started():
        await client.initialize(*folders, capabilities=capabilities, options={"review": {"ask": False}})
        await client.run("frog.runs")
        yield client


def said(client: LspClient) -> list[str]:
    return [params["message"] for method, params in client.notifications if method == "window/logMessage"]


async def until_said(client: LspClient, text: str) -> None:
    await client.until(lambda: text in said(client), 30)


def rename(client: LspClient, old: Path, new: Path, *, on_disk: bool = True) -> None:
    """As an editor does: the file, then the notification."""
    if on_disk:
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)
    client.notify("workspace/didRenameFiles", {"files": [{"oldUri": to_uri(old), "newUri": to_uri(new)}]})


async def outcome(client: LspClient, run_id: str = "r1", **more: Any) -> dict[str, tuple[str, str]]:
    result = await client.run("frog.apply", {"runId": run_id, **more})
    return {row["path"]: (row["outcome"], row["detail"]) for row in result["files"]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def ws(workspace: Path) -> Path:
    (workspace / "pkg").mkdir()
    for name in ("a.py", "pkg/b.py"):
        (workspace / name).write_text(BASE)
    return workspace


# --- watching -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_without_the_clients_watching_the_system_is_asked(home: Path, ws: Path) -> None:
    keep(home, ws, "r1", modified("a.py"))
    async with connected(home, ws, capabilities=capabilities_of("neovim")) as client:
        assert not [method for method, _ in client.requests if method == "client/registerCapability"]
        await client.until(lambda: psutil.Process(client.process.pid).num_threads() > 4, 30)
        await asyncio.sleep(0.2)
        (ws / "a.py").write_text(BASE + "six\n")
        await until_said(client, "a.py changed on disk since the run began; applying merges")
        assert (await outcome(client))["a.py"][0] == "applied"
        assert (ws / "a.py").read_text() == OURS + "six\n"
        await asyncio.sleep(1)
        assert said(client).count("a.py changed on disk since the run began; applying merges") == 1


@pytest.mark.slow
@pytest.mark.parametrize("capabilities", [REGISTERS, REGISTERS_RELATIVE])
async def test_the_client_watches_what_waits_and_no_more(home: Path, ws: Path, capabilities: Any) -> None:
    odd = "pkg/[odd] {x,y}*.py"
    (ws / odd).write_text(BASE)
    keep(home, ws, "r1", modified("a.py"), modified(odd))
    async with connected(home, ws, capabilities=capabilities) as client:
        registrations = await client.until(
            lambda: [p["registrations"][0] for m, p in client.requests if m == "client/registerCapability"]
        )
        globs = [watcher["globPattern"] for watcher in registrations[-1]["registerOptions"]["watchers"]]
        if capabilities is REGISTERS:
            assert globs == [f"{ws}/pkg", f"{ws}/a.py", f"{ws}/pkg/?odd? ?x,y??.py"]
        else:
            assert globs[0] == {"baseUri": to_uri(ws), "pattern": "pkg"}
            assert globs[2] == {"baseUri": to_uri(ws / "pkg"), "pattern": "?odd? ?x,y??.py"}
        (ws / odd).write_text(BASE + "six\n")
        events = [{"uri": to_uri(ws / name), "type": 2} for name in (odd, "pkg/(odd) (x,y).py", "b.py")]
        client.notify("workspace/didChangeWatchedFiles", {"changes": events})
        await until_said(client, f"{odd} changed on disk since the run began; applying merges")
        assert {path: what for path, (what, _) in (await outcome(client)).items()} == {
            "a.py": "applied",
            odd: "applied",
        }
        gone = await client.until(
            lambda: [p["unregisterations"][0]["id"] for m, p in client.requests if m == "client/unregisterCapability"]
        )
        assert gone[-1] == registrations[-1]["id"]
        assert len([text for text in said(client) if "changed on disk" in text]) == 1, "our own edits are no news"


@pytest.mark.slow
async def test_an_open_review_shows_the_file_of_now(home: Path, ws: Path) -> None:
    keep(home, ws, "r1", modified("a.py"))
    async with connected(home, ws) as client:
        review = (await client.run("frog.review", {"runId": "r1"}))["path"]

        async def until_it_says(words: str) -> None:
            await client.until(lambda: words in Path(review).read_text(), 30)

        await until_it_says("applies cleanly")
        for five, three, words in [("FIVE", "three", "merges with your edits"), ("five", "mine", "CONFLICT")]:
            (ws / "a.py").write_text(BASE.replace("five", five).replace("three", three))
            await until_it_says(words)
        (ws / "a.py").write_text(BASE)
        await until_it_says("applies cleanly")
        client.change(client.open(ws / "a.py"), BASE.replace("three", "typed"))
        await until_it_says("CONFLICT")


@pytest.mark.slow
async def test_a_file_moved_in_a_terminal_is_named_and_not_followed(home: Path, ws: Path) -> None:
    keep(home, ws, "r1", modified("a.py"))
    (ws / "pkg" / "b.py").write_text("another\n")
    async with connected(home, ws) as client:
        await client.until(lambda: psutil.Process(client.process.pid).num_threads() > 4, 30)
        await asyncio.sleep(0.2)
        (ws / "a.py").rename(ws / "pkg" / "moved.py")
        await until_said(client, "a.py is gone; it seems to be pkg/moved.py now")
        detail = "the file was deleted meanwhile; it seems to be pkg/moved.py now"
        assert await outcome(client) == {"a.py": ("conflict", detail)}
        assert (ws / "pkg" / "moved.py").read_text() == BASE


# --- renames ------------------------------------------------------------------------------------------------------


async def test_the_server_offers_what_the_client_tells_of(home: Path, ws: Path) -> None:
    filters = {"filters": [{"scheme": "file", "pattern": {"glob": "**"}}]}
    for name, offered in [("vscode", set(OPERATIONS)), ("helix", {"didRename", "willRename"}), ("neovim", set())]:
        client = LspClient(env=own_env(home))
        async with client.started():
            result = await client.initialize(ws, capabilities=capabilities_of(name))
            operations = result["capabilities"]["workspace"].get("fileOperations", {})
            assert operations == dict.fromkeys(offered, filters), name


@pytest.mark.slow
@pytest.mark.parametrize("tells", ["close-open-rename", "rename-close-open", "rename"])
async def test_an_open_document_is_followed(home: Path, ws: Path, tells: str) -> None:
    keep(home, ws, "r1", modified("a.py"))
    async with connected(home, ws, capabilities=RENAMES) as client:
        old, new = ws / "a.py", ws / "lib" / "sp ace.py"
        client.change(client.open(old), BASE + "typed\n")
        document = client.documents.pop(to_uri(old))
        document.uri = to_uri(new)
        client.documents[document.uri] = document
        if tells == "rename-close-open":
            rename(client, old, new)
        if tells != "rename":
            client.notify("textDocument/didClose", {"textDocument": {"uri": to_uri(old)}})
            client.documents[document.uri] = document = client.open(new, document.text)
        if tells != "rename-close-open":
            rename(client, old, new)
        assert (await outcome(client))["a.py"][0] == "applied"
        assert document.text == OURS + "typed\n"
        assert not old.exists()
        assert new.read_text() == BASE, "the editor saves it, not the server"


@pytest.mark.slow
async def test_renames_are_followed_over_a_restart(home: Path, ws: Path) -> None:
    keep(home, ws, "r1", modified("a.py"), modified("pkg/b.py"), created("pkg/new.py", "new\n"))
    async with connected(home, ws, capabilities=RENAMES) as client:
        rename(client, ws / "a.py", ws / "b.py")
        rename(client, ws / "b.py", ws / "pkg" / "c.py")
        rename(client, ws / "pkg", ws / "package")
        store = ProposalStore(home / "state" / "frog-lsp")
        await client.until(lambda: len(store.load("r1").renames) == 3, 30)
    async with connected(home, ws, capabilities=RENAMES) as client:
        assert {what for what, _ in (await outcome(client)).values()} == {"applied"}
    assert (ws / "package" / "c.py").read_text() == OURS
    assert (ws / "package" / "b.py").read_text() == OURS
    assert (ws / "package" / "new.py").read_text() == "new\n"
    assert os.listdir(ws) == ["package"]


@pytest.mark.slow
async def test_a_folder_is_known_through_a_link(home: Path, ws: Path) -> None:
    keep(home, ws, "r1", modified("a.py"))
    link = ws.with_name("link")
    link.symlink_to(ws)
    async with connected(home, link, capabilities=RENAMES) as client:
        assert (await client.state_of("r1"))["folder"] == to_uri(link)
        rename(client, ws / "a.py", ws / "b.py")
        assert await outcome(client) == {"a.py": ("applied", "")}
        assert (ws / "b.py").read_text() == OURS


@pytest.mark.slow
async def test_cancelling_does_not_tear_an_edit_apart(home: Path, ws: Path) -> None:
    keep(home, ws, "r1", modified("a.py"), modified("pkg/b.py"))
    async with connected(home, ws) as client:
        is_asked, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(params: Any) -> Any:
            is_asked.set()
            await go_on.wait()
            return client.apply_edit(params)

        client.handlers["workspace/applyEdit"] = slowly
        request = {"command": "frog.apply", "arguments": [{"runId": "r1"}]}
        applying = asyncio.create_task(client.request("workspace/executeCommand", request))
        await asyncio.wait_for(is_asked.wait(), 30)
        assert await client.run("frog.cancel", {}) == {"cancelled": []}
        assert await client.run("frog.cancel", {"runId": "r1"}) == {"cancelled": []}
        client.notify("window/workDoneProgress/cancel", {"token": "frog-run-r1"})
        client.notify("$/cancelRequest", {"id": client._n_sent - 2})
        with pytest.raises(LspError) as error:
            await applying
        assert error.value.code == -32800
        go_on.set()
        await client.until(lambda: (ws / "pkg" / "b.py").read_text() == OURS)
        store = ProposalStore(home / "state" / "frog-lsp")
        await client.until(lambda: store.load("r1").state == "applied", 30)
        assert (await client.state_of("r1"))["state"] == "applied"
        assert (ws / "a.py").read_text() == OURS


@pytest.mark.slow
async def test_a_rename_back_is_as_if_nothing_had_been(home: Path, ws: Path) -> None:
    keep(home, ws, "r1", modified("pkg/b.py"))
    async with connected(home, ws, capabilities=RENAMES) as client:
        rename(client, ws / "pkg", ws / "lib")
        rename(client, ws / "lib" / "b.py", ws / "pkg" / "b.py")
        assert await outcome(client) == {"pkg/b.py": ("applied", "")}
        assert (ws / "pkg" / "b.py").read_text() == OURS


@pytest.mark.slow
async def test_nothing_is_written_outside_the_folder(home: Path, ws: Path, tmp_path: Path) -> None:
    keep(home, ws, "r1", modified("a.py"), modified("pkg/b.py"))
    outside = tmp_path / "elsewhere" / "a.py"
    async with connected(home, ws, capabilities=RENAMES) as client:
        rename(client, ws / "a.py", outside)
        assert await outcome(client) == {
            "a.py": ("conflict", f"it was moved to {outside}, outside the folder"),
            "pkg/b.py": ("applied", ""),
        }
        assert outside.read_text() == BASE
        rename(client, outside, ws / "back.py")
        assert (await outcome(client))["a.py"] == ("applied", "")
        assert (ws / "back.py").read_text() == OURS


@pytest.mark.slow
async def test_a_rename_onto_a_file_that_the_run_makes(home: Path, ws: Path) -> None:
    keep(home, ws, "r1", modified("a.py"), created("new.py", "new\n"))
    async with connected(home, ws, capabilities=RENAMES) as client:
        rename(client, ws / "a.py", ws / "new.py")
        result = await outcome(client)
        assert result["a.py"][0] == "applied"
        assert result["new.py"][0] == "conflict"
        assert (ws / "new.py").read_text() == OURS
        rename(client, ws / "new.py", ws / "c.py")
        assert (await outcome(client, files=["new.py"]))["new.py"] == ("applied", "")
        assert (ws / "new.py").read_text() == "new\n"
        assert (ws / "c.py").read_text() == OURS


@pytest.mark.slow
async def test_a_rename_onto_a_file_that_the_run_changes(home: Path, ws: Path) -> None:
    (ws / "mine.py").write_text("mine\n")
    keep(home, ws, "r1", modified("a.py"))
    async with connected(home, ws, capabilities=RENAMES) as client:
        rename(client, ws / "mine.py", ws / "a.py")
        assert await outcome(client) == {"a.py": ("conflict", "another file was renamed onto it")}
        assert (ws / "a.py").read_text() == "mine\n"


@pytest.mark.slow
async def test_a_whole_workspace_folder_is_renamed(home: Path, ws: Path) -> None:
    keep(home, ws, "r1", modified("a.py"), modified("pkg/b.py"))
    new = ws.with_name("renamed")
    async with connected(home, ws, capabilities=RENAMES) as client:
        rename(client, ws, new)
        assert (await client.state_of("r1"))["folder"] == to_uri(new)
        event = {"removed": [{"uri": to_uri(ws), "name": "w"}], "added": [{"uri": to_uri(new), "name": "w"}]}
        client.notify("workspace/didChangeWorkspaceFolders", {"event": event})
        assert await outcome(client, files=["a.py"]) == {"a.py": ("applied", "")}
        assert (new / "a.py").read_text() == OURS
    async with connected(home, new, capabilities=RENAMES) as client:
        assert (await outcome(client))["pkg/b.py"] == ("applied", "")
    assert (new / "pkg" / "b.py").read_text() == OURS
    assert ws.name not in os.listdir(ws.parent)


@pytest.mark.slow
async def test_will_rename_is_answered_in_the_middle_of_our_own_edit(home: Path, ws: Path) -> None:
    keep(home, ws, "r1", renamed("a.py", "pkg/a.py"))
    keep(home, ws, "r2", modified("a.py"))
    async with connected(home, ws, capabilities=RENAMES) as client:
        files = {"files": [{"oldUri": to_uri(ws / "a.py"), "newUri": to_uri(ws / "pkg" / "a.py")}]}
        answers: list[Any] = []

        async def as_vscode_does(params: Any) -> Any:
            answers.append(await client.request("workspace/willRenameFiles", files, 5))
            result = client.apply_edit(params)
            client.notify("workspace/didRenameFiles", files)
            return result

        client.handlers["workspace/applyEdit"] = as_vscode_does
        assert await outcome(client, files=["pkg/a.py"]) == {"pkg/a.py": ("applied", "")}
        assert answers == [None]
        client.handlers["workspace/applyEdit"] = client.apply_edit
        assert (await outcome(client, "r2"))["a.py"] == ("applied", "")
        assert (ws / "pkg" / "a.py").read_text() == OURS


@pytest.mark.slow
async def test_rubbish_is_heard_without_harm(home: Path, ws: Path) -> None:
    keep(home, ws, "r1", modified("a.py"))
    rubbish: list[Any] = [None, 5, {}, {"files": 5}, {"files": [None, {}, {"oldUri": 5, "newUri": None}, {"uri": 5}]}]
    rubbish += [{"changes": [None, {"uri": []}, {"uri": "x"}]}]
    rubbish += [{"files": [{"oldUri": to_uri(ws / "a.py"), "newUri": "untitled:x"}]}]
    async with connected(home, ws, capabilities=RENAMES) as client:
        for name in ("didRenameFiles", "didCreateFiles", "didDeleteFiles", "didChangeWatchedFiles"):
            for params in rubbish:
                client.notify(f"workspace/{name}", params)
        assert await client.request("workspace/willRenameFiles", 5) is None
        assert await outcome(client) == {"a.py": ("applied", "")}
