"""What a client with its own review and transcript needs, from a real server and a real run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.lsp_client import LspError, to_uri
from tests.e2e.lsp_session import session
from tests.openai_server import turn

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

SOURCE = "def add(a, b):\n    return a - b\n"
EDIT = ("Edit", {"file_path": "sum.py", "old_string": "a - b", "new_string": "a + b"})
SLEEP = ("Bash", {"command": "sleep 985"})


@pytest.fixture
def project(workspace: Path) -> Path:
    (workspace / "sum.py").write_text(SOURCE)
    return workspace


def text_of(path: str) -> str:
    return Path(path).read_text()


@pytest.mark.slow
async def test_the_trajectory_of_a_run_can_be_read_while_it_grows(tmp_path: Path, project: Path) -> None:
    async with session(tmp_path, project, [turn(calls=[EDIT]), turn(calls=[SLEEP])]) as client:
        run = await client.run("frog.fix", {"uri": to_uri(project / "sum.py"), "issue": "add is wrong"})
        await client.until(lambda: any(v.get("message", "").endswith("sleep 985") for v in client.progress()))
        log = await client.run("frog.log", {"runId": run["runId"], "show": False})
        lines = [json.loads(line) for line in text_of(log["path"]).splitlines()]
        assert [line["step"] for line in lines if "step" in line] == [1]
        with pytest.raises(LspError, match="it is running"):
            await client.run("frog.proposal", {"runId": run["runId"]})
        await client.run("frog.cancel", {"runId": run["runId"]})
        await client.until_over(run["runId"])
        assert "window/showDocument" not in [method for method, _ in client.requests]


@pytest.mark.slow
async def test_a_proposal_as_data(tmp_path: Path, project: Path) -> None:
    script = [turn(calls=[EDIT]), turn(content="Fixed.")]
    async with session(tmp_path, project, script, options={"tests": {"command": "exit 3"}}) as client:
        run = await client.run("frog.fix", {"uri": to_uri(project / "sum.py"), "issue": "add is wrong"})
        await client.until_over(run["runId"])
        made = await client.run("frog.proposal", {"runId": run["runId"]})
        (file,) = made["files"]
        assert (file["path"], file["uri"], file["prospect"]) == ("sum.py", to_uri(project / "sum.py"), "clean")
        assert (file["before"], file["after"]) == (SOURCE, SOURCE.replace("a - b", "a + b"))
        assert (made["model"]["kind"], made["model"]["name"]) == ("endpoint", "scripted")
        assert (made["finalMessage"], made["tests"]["after"]["exitCode"]) == ("Fixed.", 3)
        with pytest.raises(LspError, match="no proposal of a run") as caught:
            await client.run("frog.proposal", {"runId": "20250101-000000-000000"})
        assert caught.value.code == -32602
