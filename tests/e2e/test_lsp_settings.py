"""Settings through a real server: what they do to a run, from which layer they count, and what is said of bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Seal
from tests.e2e.lsp_client import LspClient, capabilities_of, to_uri
from tests.e2e.lsp_session import session
from tests.openai_server import Item, OpenAiServer, turn

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file outside the workspace."""
    file = tmp_path / "data" / "notes.txt"
    file.parent.mkdir()
    file.write_text("nothing secret\n")
    return file


def reading(file: Path) -> list[Item]:
    return [turn(calls=[("Read", {"file_path": str(file)})]), turn(content="Done.")]


def endless() -> list[Item]:
    return [turn(calls=[("Glob", {"pattern": f"*{number}"})]) for number in range(20)]


async def fix(client: LspClient, workspace: Path) -> dict[str, Any]:
    """A run to its end; its row."""
    run = await client.run("frog.fix", {"uri": to_uri(workspace), "issue": "it is wrong"})
    row: dict[str, Any] = await client.until_over(run["runId"])
    return row


def lines_of(path: str) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


async def last_observation(client: LspClient, row: dict[str, Any]) -> str:
    """What the model was told last, from the trajectory."""
    log = await client.run("frog.log", {"runId": row["runId"]})
    steps = lines_of(log["path"])
    return str(next(step["observations"][-1]["observation"] for step in reversed(steps) if step.get("observations")))


def said(client: LspClient) -> list[str]:
    """The log and the messages of the server."""
    return [p["message"] for m, p in client.notifications if m in ("window/logMessage", "window/showMessage")]


@pytest.mark.slow
async def test_read_only_paths_are_read_in_the_jail(
    tmp_path: Path, workspace: Path, outside: Path, sealed: Seal
) -> None:
    sealed(workspace)
    async with session(tmp_path, workspace, reading(outside)) as client:
        assert "nothing secret" not in await last_observation(client, await fix(client, workspace))
    options = {"jail.readOnlyPaths": [str(outside.parent)]}
    async with session(tmp_path, workspace, reading(outside), options=options) as client:
        assert "nothing secret" in await last_observation(client, await fix(client, workspace))


@pytest.mark.slow
async def test_a_protected_folder_is_refused_with_the_reason(tmp_path: Path, workspace: Path, sealed: Seal) -> None:
    keys = tmp_path / "home" / ".ssh"
    keys.mkdir(parents=True)
    sealed(workspace)
    async with session(tmp_path, workspace, endless(), options={"jail": {"readOnlyPaths": ["~/.ssh"]}}) as client:
        assert (await fix(client, workspace))["state"] == "failed"
        assert any(f"the read-only path ~/.ssh is refused: {keys} is protected" in text for text in said(client))


@pytest.mark.slow
async def test_a_folder_sets_its_limits_and_nothing_of_the_model_or_the_jail(
    tmp_path: Path, workspace: Path, outside: Path
) -> None:
    own = {
        "limits": {"maxSteps": 2, "timeS": "long"},
        "jail": {"readOnlyPaths": [str(outside.parent)]},
        "model": {"kind": "endpoint", "baseUrl": "http://127.0.0.1:1/v1"},
    }
    client = LspClient()
    client.handlers["workspace/configuration"] = lambda params: [None, own]
    capabilities = capabilities_of("vscode")
    script = [*reading(outside)[:1], *endless()]
    async with session(tmp_path, workspace, script, client=client, capabilities=capabilities) as client:
        await client.until(lambda: any("limits.timeS" in text for text in said(client)))
        problem = "limits.timeS must be number, not string; the default (10800) is used"
        assert [text for text in said(client) if "limits.timeS" in text] == [f"frog-lsp settings: {problem}"]
        row = await fix(client, workspace)
        assert row["exitReason"] == "max_turns"
        steps = [value["message"] for value in client.progress(f"frog-run-{row['runId']}") if "message" in value]
        assert any("step 2 of 2" in step for step in steps)
        assert not any("step 3" in step for step in steps)


@pytest.mark.slow
async def test_a_change_counts_for_the_next_run(tmp_path: Path, workspace: Path) -> None:
    async with session(tmp_path, workspace, endless(), options={"limits": {"maxSteps": 1}}) as client:
        first = await fix(client, workspace)
        client.notify("workspace/didChangeConfiguration", {"settings": {"frog": {"limits": {"maxSteps": 3}}}})
        second = await fix(client, workspace)
    taken = [
        [v["message"] for v in client.progress(f"frog-run-{row['runId']}") if "message" in v] for row in (first, second)
    ]
    assert any("step 1 of 1" in step for step in taken[0])
    assert any("step 3 of 3" in step for step in taken[1])


@pytest.mark.slow
async def test_the_doctor_asks_no_endpoint_where_nothing_may_run(tmp_path: Path, workspace: Path) -> None:
    with OpenAiServer([]) as model:
        for is_trusted in (False, True):
            told = {"trusted": is_trusted, "model": {"kind": "endpoint", "baseUrl": model.base_url, "name": "m"}}
            folder = tmp_path / str(is_trusted)
            folder.mkdir()
            async with session(folder, workspace, options=told) as client:
                lines = (await client.run("frog.doctor", {}))["lines"]
            assert bool(model.requests) == is_trusted, lines
            assert any("was not asked" in line for line in lines) != is_trusted, lines


@pytest.mark.slow
async def test_the_doctor_names_what_is_wrong(tmp_path: Path, workspace: Path) -> None:
    async with session(tmp_path, workspace, options={"limits": {"maxStep": 1}, "logLevel": "loud"}) as client:
        lines = (await client.run("frog.doctor", {}))["lines"]
    assert "settings: unknown setting limits.maxStep (did you mean limits.maxSteps?); it is ignored" in lines
    assert any(line.startswith("settings: logLevel must be one of 'error', 'warning'") for line in lines)
