"""Several folders in a real server: runs wait for the one model, and folders come and go while they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Seal
from tests.e2e.lsp_client import LspClient, LspError, to_uri
from tests.e2e.lsp_session import own_env, session
from tests.openai_server import hang, turn

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

EDIT = ("Edit", {"file_path": "sum.py", "old_string": "a - b", "new_string": "a + b"})


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    made = [tmp_path / name for name in ("repo", "repo-2", "repo-2/nested")]
    for folder in made:
        folder.mkdir()
        (folder / "sum.py").write_text("def add(a, b):\n    return a - b\n")
    return made


def change_folders(client: LspClient, *, added: Any = (), removed: Any = ()) -> None:
    parts = {
        name: [{"uri": to_uri(f), "name": f.name} for f in items]
        for name, items in (("added", added), ("removed", removed))
    }
    client.notify("workspace/didChangeWorkspaceFolders", {"event": parts})


async def fix(client: LspClient, folder: Path) -> dict[str, Any]:
    return await client.run("frog.fix", {"uri": to_uri(folder / "sum.py"), "issue": "add is wrong"})


@pytest.mark.slow
async def test_folders_come_and_go_with_their_runs(tmp_path: Path, folders: list[Path], sealed: Seal) -> None:
    repo, twin, nested = folders
    for folder in folders:
        sealed(folder)
    script = [turn(calls=[EDIT]), turn(content="Fixed."), hang(600), hang(600)]
    async with session(tmp_path, repo, script) as client:
        with pytest.raises(LspError, match="outside the folders"):
            await fix(client, twin)
        done = (await fix(client, repo))["runId"]
        assert (await client.until_over(done))["state"] == "proposed"
        change_folders(client, added=[twin, nested])
        first, second, third = [await fix(client, folder) for folder in (twin, twin, nested)]
        assert [run["place"] for run in (first, second, third)] == [0, 1, 0], "an endpoint serves several folders"
        rows = {row["runId"]: row for row in await client.run("frog.runs")}
        assert rows[second["runId"]]["place"] == 1
        assert rows[third["runId"]]["folder"] == to_uri(nested)
        for run in (first, third):
            await client.until(lambda run=run: is_thinking(client, run["runId"]))
        change_folders(client, removed=[twin])
        for run in (first, second):
            assert (await client.until_over(run["runId"]))["state"] == "cancelled"
        assert [p["message"] for m, p in client.notifications if m == "window/showMessage"] == [
            "The folder repo-2 was removed: its 2 runs are cancelled."
        ]
        last = client.progress(f"frog-run-{first['runId']}")[-1]
        assert last == {"kind": "end", "message": "cancelled: its folder was removed from the workspace"}
        assert (await client.state_of(third["runId"]))["state"] == "running", "a nested folder is one of its own"
        with pytest.raises(LspError, match="outside the folders"):
            await fix(client, twin)
        change_folders(client, removed=[repo])
        assert done not in [row["runId"] for row in await client.run("frog.runs")]
        with pytest.raises(LspError, match="no run"):
            await client.run("frog.apply", {"runId": done})
        change_folders(client, added=[repo])
        assert (await client.state_of(done))["state"] == "proposed", "kept on disk"
        assert (await client.run("frog.cancel", {}))["cancelled"] == [third["runId"]]
        assert (await client.until_over(third["runId"]))["state"] == "cancelled"
        for run in (done, *(run["runId"] for run in (first, second, third))):
            kinds = [value["kind"] for value in client.progress(f"frog-run-{run}")]
            assert (kinds[0], kinds[-1], kinds.count("begin"), kinds.count("end")) == ("begin", "end", 1, 1)


@pytest.mark.slow
async def test_two_servers_of_one_folder_say_the_same(tmp_path: Path, folders: list[Path]) -> None:
    repo = folders[0]
    async with (
        session(tmp_path, repo, [turn(calls=[EDIT]), turn(content="Fixed.")]) as one,
        session(tmp_path, repo, edits_workspace=True) as other,
    ):
        run = await fix(one, repo)
        argument = {"runId": run["runId"]}
        assert (await one.until_over(run["runId"]))["state"] == "proposed"
        assert (await other.until_over(run["runId"]))["state"] == "proposed"
        await one.run("frog.apply", argument)
        assert [(await client.state_of(run["runId"]))["state"] for client in (one, other)] == ["applied", "applied"]
        await other.run("frog.discard", argument)
        assert [(await client.state_of(run["runId"]))["state"] for client in (one, other)] == ["discarded"] * 2


def is_thinking(client: LspClient, run_id: str) -> bool:
    return any("thinking" in value["message"] for value in client.progress(f"frog-run-{run_id}"))


@pytest.mark.slow
async def test_a_folder_that_comes_is_asked_for_its_settings(tmp_path: Path, folders: list[Path]) -> None:
    repo, twin, _ = folders
    client = LspClient(env=own_env(tmp_path / "home"))
    client.handlers["workspace/configuration"] = lambda params: [None] * len(params["items"])
    async with client.started():
        await client.initialize(repo, capabilities={"workspace": {"configuration": True}})

        def scopes() -> list[list[str]]:
            asked = [params for method, params in client.requests if method == "workspace/configuration"]
            return [[item["scopeUri"] for item in params["items"] if "scopeUri" in item] for params in asked]

        await client.until(scopes, 30)
        change_folders(client, added=[twin])
        await client.until(lambda: scopes() == [[to_uri(repo)], [to_uri(repo), to_uri(twin)]], 30)
        change_folders(client, removed=[twin])
        await client.run("frog.runs")
        assert len(scopes()) == 2
