"""One run, reviewed and applied, with the capabilities that real clients sent (shortened, in `tests/clients`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as t
from pygls.protocol import default_converter
from pytest_lsp import LanguageClient
from pytest_lsp.client import register_lsp_features

from tests.e2e.lsp_client import CLIENTS, SERVER, Document, Editor, to_path, to_uri
from tests.e2e.lsp_session import own_env

pytestmark = [pytest.mark.slow, pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

SOURCE = "def add(a, b):\n    # 𝄞 adds\n    return a - b\n"
FIXED = SOURCE.replace("a - b", "a + b")
TURN = {
    "calls": [
        {"name": "Edit", "arguments": {"file_path": "sum.py", "old_string": "a - b", "new_string": "a + b"}},
        {"name": "Edit", "arguments": {"file_path": "closed.py", "old_string": "1", "new_string": "2"}},
        {"name": "Write", "arguments": {"file_path": "pkg/new.py", "content": "new = True\n"}},
        {"name": "Bash", "arguments": {"command": "rm gone.py"}},
    ]
}
NAMES = sorted(path.stem for path in CLIENTS.glob("*.json"))
BY_EDIT = {"vscode", "neovim", "neovim-0.7", "helix", "lsp-mode"}


def converter() -> Any:
    """lsprotocol 2025.0.0 takes every code action that has a command for a Command: put right, on this side."""
    made = default_converter()

    def hook(value: Any, _: Any) -> Any:
        return made.structure(value, t.Command if isinstance(value.get("command"), str) else t.CodeAction)

    for union in (t.Command | t.CodeAction, t.CodeAction | t.Command):
        made.register_structure_hook(union, hook)
    return made


class TypedEditor(Editor):
    """The editor's model behind a typed client."""

    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self.client = LanguageClient(converter_factory=converter)
        register_lsp_features(self.client)
        self.converter = default_converter()
        self.edits: list[Any] = []

        @self.client.feature(t.WORKSPACE_APPLY_EDIT)
        def apply(params: t.ApplyWorkspaceEditParams) -> t.ApplyWorkspaceEditResult:
            plain = self.converter.unstructure(params)
            self.edits.append(plain["edit"])
            return t.ApplyWorkspaceEditResult(applied=self.apply_edit(plain)["applied"])

    def tell_change(self, document: Document) -> None:
        self.client.text_document_did_change(
            t.DidChangeTextDocumentParams(
                t.VersionedTextDocumentIdentifier(document.version, document.uri),
                [t.TextDocumentContentChangeWholeDocument(document.text)],
            )
        )

    def open(self, path: Path) -> Document:
        document = Document(to_uri(path), path.read_text())
        self.documents[document.uri] = document
        item = t.TextDocumentItem(document.uri, "python", document.version, document.text)
        self.client.text_document_did_open(t.DidOpenTextDocumentParams(item))
        return document

    async def run(self, command: str, argument: Any) -> Any:
        return await self.client.workspace_execute_command_async(t.ExecuteCommandParams(command, [argument]))


@contextlib.asynccontextmanager
async def connected(name: str, tmp_path: Path, workspace: Path) -> AsyncIterator[TypedEditor]:
    """An editor with a client's capabilities, whose server is initialized."""
    script = tmp_path / "turns.json"
    script.write_text(json.dumps([TURN, {"content": "Done."}]))
    editor = TypedEditor()
    await editor.client.start_io(*SERVER, env={**os.environ, **own_env(tmp_path / "home")}, cwd=tmp_path)
    sent = json.loads((CLIENTS / f"{name}.json").read_text())
    params = t.InitializeParams(
        process_id=os.getpid(),
        capabilities=editor.converter.structure(sent["capabilities"], t.ClientCapabilities),
        root_uri=to_uri(workspace),
        workspace_folders=[t.WorkspaceFolder(to_uri(workspace), "ws")],
        initialization_options={"model": {"kind": "scripted", "path": str(script)}, "review": {"ask": False}},
    )
    try:
        answer = await asyncio.wait_for(editor.client.initialize_session(params), 60)
        editor.encoding = answer.capabilities.position_encoding or "utf-16"
        yield editor
        await asyncio.wait_for(editor.client.shutdown_session(), 60)
    finally:
        if (server := editor.client._server) is not None and server.returncode is None:
            server.kill()
        await editor.client.stop()


@pytest.fixture
def project(workspace: Path) -> Path:
    for name, text in {"sum.py": SOURCE, "closed.py": "x = 1\n", "gone.py": "gone\n"}.items():
        (workspace / name).write_text(text)
    return workspace


@pytest.mark.parametrize("name", NAMES)
async def test_from_the_code_action_to_the_files(name: str, tmp_path: Path, project: Path) -> None:
    async with connected(name, tmp_path, project) as editor:
        document = editor.open(project / "sum.py")
        spot = t.Range(t.Position(2, 4), t.Position(2, 16))
        (action,) = await editor.client.text_document_code_action_async(
            t.CodeActionParams(
                t.TextDocumentIdentifier(document.uri),
                spot,
                t.CodeActionContext([t.Diagnostic(spot, "add subtracts")]),
            )
        )
        command = action if isinstance(action, t.Command) else action.command
        assert isinstance(action, t.Command) == (name == "unknown") or action.title.startswith("Fix with FrogNano")
        assert command is not None
        assert command.arguments is not None
        run = await editor.run(command.command, command.arguments[0])
        while (rows := await editor.run("frog.runs", {}))[-1]["state"] in ("queued", "running"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert rows[-1]["files"] == ["closed.py", "gone.py", "pkg/new.py", "sum.py"]
        review = await editor.run("frog.review", {"runId": run["runId"]})
        shows = name in ("vscode", "neovim", "eglot")
        assert review["shown"] is shows
        assert [to_path(params.uri) for params in editor.client.shown_documents] == ([review["path"]] if shows else [])
        assert shows or any(review["path"] in message.message for message in editor.client.messages)
        result = await editor.run("frog.apply", {"runId": run["runId"]})
    outcomes = {row["path"]: row["outcome"] for row in result["files"]}
    check(name, outcomes, result, editor, document, project)


def check(
    name: str, outcomes: dict[str, str], result: Any, editor: TypedEditor, document: Document, project: Path
) -> None:
    if name == "ale":  # it says that it cannot apply edits
        assert set(outcomes.values()) == {"by-hand"}
        assert editor.edits == []
    elif name in BY_EDIT:
        assert set(outcomes.values()) == {"applied"}
        assert result["state"] == "applied"
        kinds = [part.get("kind", "edit") for edit in editor.edits for part in edit["documentChanges"]]
        assert kinds == ["create", "edit", "edit", "edit", "delete"]
    else:  # Eglot lists no file operation
        assert outcomes == {
            "closed.py": "applied",
            "gone.py": "by-hand",
            "pkg/new.py": "by-hand",
            "sum.py": "applied",
        }
        assert result["state"] == "partly-applied"
    for edit in editor.edits:
        for part in edit["documentChanges"]:
            if "kind" not in part:
                expected = 1 if part["textDocument"]["uri"] == document.uri else None
                assert part["textDocument"]["version"] == expected
    if name not in BY_EDIT:  # what an edit cannot do is a patch that git applies
        assert result["patch"] is not None
        if name == "ale":
            assert document.text == SOURCE
        subprocess.run(["git", "apply", result["patch"]], cwd=project, check=True, capture_output=True)
    if name != "ale":
        assert document.text == FIXED
        (project / "sum.py").write_text(document.text)
    found = {str(p.relative_to(project)): p.read_text() for p in sorted(project.rglob("*")) if p.is_file()}
    assert found == {"closed.py": "x = 2\n", "pkg/new.py": "new = True\n", "sum.py": FIXED}
