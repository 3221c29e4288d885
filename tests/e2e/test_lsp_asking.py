"""`frog.fix` that says nothing of what is wrong: the person is asked, the command answers at once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lsp_client import NEVER, LspClient, LspError, RespondError, to_uri
from tests.e2e.lsp_session import session
from tests.openai_server import hang, turn

LOOK = "Look at this file"


@pytest.fixture
def project(workspace: Path) -> Path:
    (workspace / "sum.py").write_text("def add(a, b):\n    return a - b\n")
    return workspace


async def question(client: LspClient, n: int = 1) -> dict[str, Any]:
    """The parameters of the n-th question."""

    def asked() -> list[Any]:
        return [params for method, params in client.requests if method == "window/showMessageRequest"]

    return (await client.until(lambda: len(asked()) >= n and asked()))[n - 1]


def shown(client: LspClient) -> list[str]:
    return [params["message"] for method, params in client.notifications if method == "window/showMessage"]


def text_of(path: str) -> str:
    return Path(path).read_text()


def refuse(_params: Any) -> None:
    raise RespondError(-32601, "method not found")


@pytest.mark.slow
@pytest.mark.jail
@pytest.mark.usefixtures("require_jail")
async def test_what_is_chosen_is_worked_on(tmp_path: Path, project: Path) -> None:
    answer = {"title": LOOK}
    async with session(tmp_path, project, [turn(content="Seen.")] * 3) as client:
        client.handlers["window/showMessageRequest"] = lambda params: answer
        uri = to_uri(project / "sum.py")
        run = await client.run("frog.fix", {"uri": uri})
        assert run["place"] == 0
        asked = await question(client)
        assert asked["message"] == "What should FrogNano fix in sum.py?"
        assert asked["actions"] == [{"title": LOOK}]
        row = await client.until_over(run["runId"])
        assert (row["state"], row["title"]) == ("nothing", "Find and fix the problem in sum.py.")
        for words in ("add is wrong\nsince it subtracts", "add is wrong\nagain", "second\x1b[1m\nmore"):
            run = await client.run("frog.fix", {"uri": uri, "issue": words})
            await client.until_over(run["runId"])
    async with session(tmp_path, project, [turn(content="Seen.")]) as client:  # what earlier servers did is known
        client.handlers["window/showMessageRequest"] = lambda params: {"title": "add is wrong"}
        run = await client.run("frog.fix", {"uri": to_uri(project), "issue": None})
        asked = await question(client)
        assert asked["message"] == "What should FrogNano fix in workspace?"
        titles = [action["title"] for action in asked["actions"]]
        assert titles == ["second\\x1b[1m", "add is wrong", "Find and fix the problem in sum.py."]
        await client.until_over(run["runId"])
        log = await client.run("frog.log", {"runId": run["runId"]})
        assert '"issue":"add is wrong\\nagain"' in text_of(log["path"]).replace('": "', '":"')


@pytest.mark.slow
@pytest.mark.parametrize("answer", [None, {"title": "what else"}, "error", []])
async def test_without_an_answer_it_ends_with_a_word(tmp_path: Path, project: Path, answer: Any) -> None:
    async with session(tmp_path, project) as client:
        client.handlers["window/showMessageRequest"] = refuse if answer == "error" else lambda params: answer
        run = await client.run("frog.fix", {"uri": to_uri(project / "sum.py")})
        row = await client.until_over(run["runId"])
        assert (row["state"], row["exitReason"]) == ("cancelled", "cancelled")
        (said,) = await client.until(lambda: shown(client))
        assert "was not told what to fix in sum.py" in said
        assert '"issue"' in said
        run = await client.run("frog.fix", {"uri": to_uri(project)})  # nothing to choose from, so no question
        assert (await client.until_over(run["runId"]))["state"] == "cancelled"
        assert "was not told what to fix in workspace" in shown(client)[-1]


@pytest.mark.slow
@pytest.mark.jail
@pytest.mark.usefixtures("require_jail")
async def test_a_client_that_never_answers(tmp_path: Path, project: Path) -> None:
    """The run waits, can be cancelled, and holds up neither another run nor the end of the server."""
    async with session(tmp_path, project, [hang(600)]) as client:
        client.handlers["window/showMessageRequest"] = lambda params: NEVER
        uri = to_uri(project / "sum.py")
        first = await client.run("frog.fix", {"uri": uri})
        second = await client.run("frog.fix", {"uri": to_uri(project), "diagnostics": [], "range": None})
        await question(client)
        assert (await client.state_of(first["runId"]))["state"] == "queued"
        assert "asking what to fix" in [value.get("message") for value in client.progress()]
        assert (await client.run("frog.cancel", {"runId": first["runId"]}))["cancelled"] == [first["runId"]]
        assert (await client.until_over(first["runId"]))["state"] == "cancelled"
        assert (await client.until_over(second["runId"]))["state"] == "cancelled"
        third = await client.run("frog.fix", {"uri": uri})
        await question(client, 2)
        told = await client.run("frog.fix", {"uri": uri, "issue": "words"})
        assert told["place"] == 0
        token = f"frog-run-{told['runId']}"
        await client.until(lambda: [v for v in client.progress(token) if "thinking" in v.get("message", "")])
        assert (await client.state_of(third["runId"]))["state"] == "queued"
        begun = time.monotonic()
        assert await client.request("shutdown") is None
        client.notify("exit")
        assert await asyncio.wait_for(client.process.wait(), 10) == 0
        assert time.monotonic() - begun < 1.5


@pytest.mark.slow
async def test_an_empty_issue_is_an_error_and_no_question(tmp_path: Path, project: Path) -> None:
    (project / "EMPTY.md").write_text("---\na: b\n---\n")
    async with session(tmp_path, project) as client:
        for argument in (
            {"uri": to_uri(project / "sum.py"), "issue": " \n"},
            {"uri": to_uri(project), "issue": ""},
            {"uri": to_uri(project / "EMPTY.md")},
        ):
            with pytest.raises(LspError) as error:
                await client.run("frog.fix", argument)
            assert error.value.code == -32602
        assert await client.run("frog.runs") == []
        assert not [method for method, _ in client.requests if method == "window/showMessageRequest"]


@pytest.mark.slow
@pytest.mark.jail
@pytest.mark.usefixtures("require_jail")
async def test_notes_reach_the_editor(tmp_path: Path, project: Path) -> None:
    """The words are not English, the file is not Python: the review says so."""
    (project / "a.js").write_text("x = 1\n")
    call = ("Edit", {"file_path": "a.js", "old_string": "1", "new_string": "2"})
    words = "Die Funktion ist falsch, weil sie nicht das liefert, was der Name und die Beschreibung sagen."
    async with session(tmp_path, project, [turn(calls=[call]), turn(content="Fixed.")]) as client:
        run = await client.run("frog.fix", {"uri": to_uri(project / "a.js"), "issue": words})
        assert (await client.until_over(run["runId"]))["state"] == "proposed"
        review = text_of((await client.run("frog.review", {"runId": run["runId"]}))["path"])
        assert "does not seem to be English" in review
        assert "Files that are not Python: a.js" in review


@pytest.mark.slow
@pytest.mark.jail
@pytest.mark.usefixtures("require_jail")
async def test_what_an_action_names_is_what_the_model_is_told(tmp_path: Path, project: Path) -> None:
    output = f'Traceback (most recent call last):\n  File "{project}/sum.py", line 2, in add\nValueError: no\n'
    (project / "out.log").write_text(output)
    (project / "ISSUE.md").write_text("---\nid: 1\n---\n# add subtracts\n\nSee [it](sum.py).\n")
    async with session(tmp_path, project, [turn(content="Seen.")] * 2) as client:
        for name, title, told in (
            ("out.log", "Fix this failing test with FrogNano", "- sum.py, line 2, in add\\n"),
            ("ISSUE.md", "Fix the issue in this file with FrogNano", '"# add subtracts\\n\\nSee [it](sum.py)."'),
        ):
            document = client.open(project / name)
            end = {"line": 3 if name == "out.log" else 0, "character": 0}
            params = {"range": {"start": {"line": 0, "character": 0}, "end": end}, "context": {"diagnostics": []}}
            (action,) = await client.request(
                "textDocument/codeAction", {"textDocument": {"uri": document.uri}, **params}
            )
            assert action["title"] == title
            run = await client.run(action["command"]["command"], action["command"]["arguments"][0])
            assert (await client.until_over(run["runId"]))["state"] == "nothing"
            log = text_of((await client.run("frog.log", {"runId": run["runId"]}))["path"])
            assert told in log
            assert f"{project}/sum.py" not in log
