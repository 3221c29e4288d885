"""JSON-RPC as clients get it wrong: the server answers every request, and goes on. More of it: test_lsp_fuzz.py."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lsp_client import LspClient, LspError, to_uri
from tests.e2e.lsp_session import own_env


@pytest.fixture
async def client(tmp_path: Path, workspace: Path) -> AsyncIterator[LspClient]:
    (workspace / "a.py").write_text("x = 1\n")
    client = LspClient(env=own_env(tmp_path / "home"))
    async with client.started():
        await client.initialize(workspace)
        yield client


async def answers(client: LspClient, message: Any, msg_id: Any) -> Any:
    """Send a raw message; the response with that id."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    client._waiting[msg_id] = future
    client.send(message)
    return await asyncio.wait_for(future, 60)


async def code_of(client: LspClient, message: Any, msg_id: Any) -> int:
    with pytest.raises(LspError) as error:
        await answers(client, message, msg_id)
    assert isinstance(error.value.code, int)
    return error.value.code


@pytest.mark.slow
async def test_every_request_is_answered(client: LspClient) -> None:
    def request(msg_id: Any, method: Any, params: Any = None) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": msg_id, "method": method, "params": params}

    execute = "workspace/executeCommand"
    assert await code_of(client, request("a", "no/such"), "a") == -32601
    assert await code_of(client, request("b", 5), "b") == -32600
    assert await code_of(client, [request(1, "shutdown")], None) == -32600
    assert await code_of(client, request([1], "shutdown"), None) == -32600
    assert await code_of(client, request("c", "initialize", {}), "c") == -32600
    assert await code_of(client, request("d", execute), "d") == -32602
    assert await code_of(client, request("e", execute, {"command": "rm"}), "e") == -32602
    assert await code_of(client, request("f", execute, {"command": ["frog.fix"]}), "f") == -32602
    for at, arguments in enumerate([None, [], [5], {}, [{"uri": None}], [{"uri": "x"}], [{"uri": "untitled:1"}]]):
        params = {"command": "frog.fix", "arguments": arguments}
        assert await code_of(client, request(f"g{at}", execute, params), f"g{at}") == -32602
    for command in ("frog.review", "frog.apply", "frog.discard", "frog.log", "frog.cancel"):
        params = {"command": command, "arguments": [{"runId": "none"}]}
        assert await code_of(client, request(command, execute, params), command) == -32602
    assert await code_of(client, request("h", "textDocument/codeAction", {"textDocument": 1}), "h") == -32602
    client.send_bytes(b"Content-Length: 3\r\n\r\n{{{")
    client.send_bytes(b"content-length:2\r\nContent-Type: x; charset=utf-8\r\n\r\n[]")
    client.send({"jsonrpc": "2.0", "id": "frog-99", "result": None})
    client.send({"jsonrpc": "2.0", "id": 7.5, "error": "what"})
    client.send({"jsonrpc": "2.0", "method": "no/such"})
    client.send({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": {}}})
    client.send({"jsonrpc": "2.0", "method": "window/workDoneProgress/cancel", "params": {"token": 5}})
    for method in ("didOpen", "didChange", "didClose", "didSave"):
        client.notify(f"textDocument/{method}", {"textDocument": {}, "contentChanges": [{"range": 1}]})
        client.notify(f"textDocument/{method}", None)
    client.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [{"uri": 5}, None], "removed": "x"}})
    client.notify("workspace/didChangeConfiguration", {"settings": [[]]})
    assert await client.run("frog.runs") == []
    assert len(await client.run("frog.doctor", {})) == 2


async def test_an_id_in_use_is_refused(client: LspClient) -> None:
    client.handlers["window/showDocument"] = lambda params: None
    for _ in range(2):
        client.send({"jsonrpc": "2.0", "id": "twice", "method": "workspace/executeCommand", "params": {}})
    assert await client.run("frog.runs") == []


@pytest.mark.slow
async def test_settings_are_asked_for_and_trust_is_heeded(tmp_path: Path, workspace: Path) -> None:
    client = LspClient(env=own_env(tmp_path / "home"))
    client.handlers["workspace/configuration"] = lambda params: [{"trusted": False, "limits": {"maxStep": 1}}, None]
    async with client.started():
        capabilities = {"workspace": {"configuration": True}}
        await client.initialize(workspace, capabilities=capabilities)
        with pytest.raises(LspError, match="not trusted"):
            await client.run("frog.fix", {"uri": to_uri(workspace / "a.py"), "issue": "x"})
        (params,) = [p for m, p in client.requests if m == "workspace/configuration"]
        assert params == {"items": [{"section": "frog"}, {"scopeUri": to_uri(workspace), "section": "frog"}]}
        told = await client.until(lambda: [p["message"] for m, p in client.notifications if m == "window/logMessage"])
        assert "did you mean limits.maxSteps?" in told[0]


@pytest.mark.slow
@pytest.mark.parametrize("value", [False, "yes", None])
async def test_a_folder_may_take_trust_away(tmp_path: Path, workspace: Path, value: Any) -> None:
    client = LspClient(env=own_env(tmp_path / "home"))
    client.handlers["workspace/configuration"] = lambda params: [{"trusted": True}, {"trusted": value}]
    async with client.started():
        await client.initialize(workspace, capabilities={"workspace": {"configuration": True}})
        with pytest.raises(LspError, match="trusted"):
            await client.run("frog.fix", {"uri": to_uri(workspace / "a.py"), "issue": "x"})


@pytest.mark.slow
async def test_before_initialize_and_after_shutdown(tmp_path: Path, workspace: Path) -> None:
    client = LspClient(env=own_env(tmp_path / "home"))
    async with client.started():
        client.notify("textDocument/didOpen", {})
        with pytest.raises(LspError) as error:
            await client.request("textDocument/codeAction", {})
        assert error.value.code == -32002
        with pytest.raises(LspError) as error:
            await client.request("initialize", 5)
        assert error.value.code == -32602
        result = await client.initialize(workspace)
        assert result["capabilities"]["executeCommandProvider"]["commands"][0] == "frog.fix"
        assert await client.request("shutdown") is None
        with pytest.raises(LspError) as error:
            await client.request("shutdown")
        assert error.value.code == -32600
        client.notify("exit")
        assert await client.process.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("tail", [b"", b"Content-Le", b"Content-Length: 100\r\n\r\n{", b"\0\xff\r\n\r\n"])
async def test_end_of_file_anywhere_ends_the_server(tmp_path: Path, workspace: Path, tail: bytes) -> None:
    client = LspClient(env=own_env(tmp_path / "home"))
    async with client.started():
        await client.initialize(workspace)
        client.send_bytes(tail)
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert await asyncio.wait_for(client.process.wait(), 60) == 1


async def test_exit_at_once(tmp_path: Path) -> None:
    client = LspClient(env=own_env(tmp_path / "home"))
    async with client.started():
        client.notify("exit")
        assert await asyncio.wait_for(client.process.wait(), 60) == 1


@pytest.mark.slow
async def test_the_server_loads_no_model_library(client: LspClient) -> None:
    await client.run("frog.doctor", {})
    maps = Path(f"/proc/{client.process.pid}/maps")
    assert "llama" not in maps.read_text()  # noqa: ASYNC240


@pytest.mark.slow
def test_no_part_of_the_server_imports_llama_cpp() -> None:
    code = (
        "import json, sys, lsp_server.server, lsp_server.features.commands, lsp_server.launcher, agent.run;"
        "print(json.dumps([name for name in sys.modules if name.startswith('llama_cpp')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=100)
    assert json.loads(done.stdout) == []


def test_initialize_is_answered_before_the_types_of_lsp_are_loaded() -> None:
    code = "import sys, lsp_server.server; sys.exit(any(m in sys.modules for m in ('pygls', 'lsprotocol', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=100).returncode == 0


async def test_a_fifo_or_a_device_keeps_nobody_waiting(client: LspClient, workspace: Path) -> None:
    os.mkfifo(workspace / "fifo.py")
    (workspace / "endless.py").symlink_to("/dev/zero")
    place = {"range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}, "issue": "look"}
    for name in ("fifo.py", "endless.py"):
        run = await client.run("frog.fix", {"uri": to_uri(workspace / name), **place})
        await client.run("frog.cancel", {"runId": run["runId"]})
