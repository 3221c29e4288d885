"""A raw LSP client over a real server process, with an editor's model of documents that shares no code with ours.

What it does with an edit can be changed by a test, to behave as real editors were seen to.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

SERVER = [sys.executable, "-m", "lsp_server.cli"]
CLIENTS = Path(__file__).parents[1] / "clients"


class LspError(Exception):
    """The server answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.code = error.get("code")
        self.message = error.get("message")


class RespondError(Exception):
    """Raised by a handler of a test to answer a request of the server with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


NEVER = object()
"""Returned by a handler of a test that never answers."""


@dataclass
class Document:
    """An open document of the editor."""

    uri: str
    text: str
    version: int = 1


def to_uri(path: str | os.PathLike[str]) -> str:
    return "file://" + quote(os.fspath(path))


def to_path(uri: str) -> str:
    return unquote(urlsplit(uri).path)


def capabilities_of(name: str) -> dict[str, Any]:
    """The capabilities that a real client sent, from `tests/clients`."""
    return json.loads((CLIENTS / f"{name}.json").read_text())["capabilities"]


FULL = {
    "general": {"positionEncodings": ["utf-16"]},
    "workspace": {
        "applyEdit": True,
        "workspaceEdit": {"documentChanges": True, "resourceOperations": ["create", "rename", "delete"]},
        "configuration": False,
    },
    "textDocument": {
        "codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": [""]}}, "disabledSupport": True}
    },
    "window": {"workDoneProgress": True, "showDocument": {"support": True}},
}


class Editor:
    """An editor's documents and what it does with edits: here as a well-behaved editor does."""

    encoding = "utf-16"

    def __init__(self) -> None:
        self.documents: dict[str, Document] = {}

    def tell_change(self, document: Document) -> None:
        """Tell the server that a document changed."""

    def change(self, document: Document, text: str) -> None:
        """Replace the whole text and tell the server."""
        document.text = text
        document.version += 1
        self.tell_change(document)

    def apply_edit(self, params: Any) -> dict[str, Any]:
        """Apply as a well-behaved editor does: versions checked, files on disk, edits of closed files written."""
        edit = params["edit"]
        parts = edit.get("documentChanges")
        if parts is None:
            parts = [{"textDocument": {"uri": uri}, "edits": edits} for uri, edits in edit["changes"].items()]
        for part in parts:
            if "kind" not in part:
                document = self.documents.get(part["textDocument"]["uri"])
                version = part["textDocument"].get("version")
                if document is not None and version is not None and version != document.version:
                    return {"applied": False}
        for part in parts:
            self.apply_part(part)
        return {"applied": True}

    def apply_part(self, part: dict[str, Any]) -> None:
        kind = part.get("kind")
        if kind == "create":
            path = Path(to_path(part["uri"]))
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_bytes(b"")
        elif kind == "delete":
            os.remove(to_path(part["uri"]))
        elif kind == "rename":
            new = Path(to_path(part["newUri"]))
            assert not new.exists()
            new.parent.mkdir(parents=True, exist_ok=True)
            os.rename(to_path(part["oldUri"]), new)
        else:
            uri = part["textDocument"]["uri"]
            document = self.documents.get(uri)
            if document is not None:
                self.change(document, edited(document.text, part["edits"], self.encoding))
            else:
                path = Path(to_path(uri))
                text = path.read_bytes().decode("utf-8")
                mark = "\ufeff" if text.startswith("\ufeff") else ""
                made = mark + edited(text.removeprefix("\ufeff"), part["edits"], self.encoding)
                path.write_bytes(made.encode("utf-8"))


@dataclass
class LspClient(Editor):
    """One connection. Use `async with LspClient(...).started():`."""

    env: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=lambda: list(SERVER))
    cwd: str | None = None
    encoding: str = "utf-16"
    documents: dict[str, Document] = field(default_factory=dict)
    notifications: list[tuple[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, Any]] = field(default_factory=list)
    handlers: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    tells_changes: bool = True
    process: asyncio.subprocess.Process = field(init=False)

    def __post_init__(self) -> None:
        self._n_sent = 0
        self._waiting: dict[Any, asyncio.Future[Any]] = {}
        self._news = asyncio.Event()
        self.stderr = b""
        self.handlers.setdefault("workspace/applyEdit", self.apply_edit)
        self.handlers.setdefault("window/workDoneProgress/create", lambda params: None)
        self.handlers.setdefault("window/showDocument", lambda params: {"success": True})
        self.handlers.setdefault("window/showMessageRequest", lambda params: None)
        self.handlers.setdefault("client/registerCapability", lambda params: None)
        self.handlers.setdefault("workspace/configuration", lambda params: [None] * len(params["items"]))

    # --- the process --------------------------------------------------------------------------------------

    async def start(self) -> LspClient:
        self.process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self.env},
            cwd=self.cwd or str(Path(__file__).parents[2]),
            limit=1 << 26,
        )
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._read_stderr())]
        return self

    async def stop(self) -> None:
        """End the process whatever state it is in."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.process._transport.close()  # type: ignore[attr-defined]

    @contextlib.asynccontextmanager
    async def started(self) -> Any:
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(65536):
            self.stderr += chunk

    async def _read(self) -> None:
        assert self.process.stdout is not None
        stream = self.process.stdout
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await stream.readuntil(b"\r\n\r\n")
                found = re.search(rb"Content-Length: (\d+)", head)
                assert found is not None, head
                self._take(json.loads(await stream.readexactly(int(found[1]))))
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EOFError("the server left"))
        self._news.set()

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            future = self._waiting.pop(message["id"], None)
            if future is not None and not future.done():
                if "error" in message:
                    future.set_exception(LspError(message["error"]))
                else:
                    future.set_result(message["result"])
        elif "id" in message:
            self.requests.append((message["method"], message.get("params")))
            self._tasks.append(asyncio.create_task(self._answer(message)))
        else:
            self.notifications.append((message["method"], message.get("params")))
        self._news.set()

    async def _answer(self, message: dict[str, Any]) -> None:
        handler = self.handlers.get(message["method"])
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            if handler is None:
                raise RespondError(-32601, "method not found")
            result = handler(message.get("params"))
            if asyncio.iscoroutine(result):
                result = await result
            if result is NEVER:
                return
            reply["result"] = result
        except RespondError as error:
            reply["error"] = {"code": error.code, "message": str(error)}
        self.send(reply)

    # --- messages -----------------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def send(self, message: Any) -> None:
        body = json.dumps(message).encode()
        self.send_bytes(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Any = None, timeout_s: float = 60) -> Any:
        self._n_sent += 1
        msg_id = self._n_sent
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[msg_id] = future
        self.send({"jsonrpc": "2.0", "id": msg_id, "method": method, "params": params})
        return await asyncio.wait_for(future, timeout_s)

    async def run(self, command: str, argument: Any = None, timeout_s: float = 60) -> Any:
        """`workspace/executeCommand`."""
        arguments = [] if argument is None else [argument]
        return await self.request("workspace/executeCommand", {"command": command, "arguments": arguments}, timeout_s)

    async def until(self, is_true: Callable[[], Any], timeout_s: float = 60) -> Any:
        """Wait for messages until something is true; its value."""
        async with asyncio.timeout(timeout_s):
            while not (value := is_true()):
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.2)
        return value

    async def state_of(self, run_id: str) -> dict[str, Any]:
        return next(row for row in await self.run("frog.runs", {}) if row["runId"] == run_id)

    async def until_over(self, run_id: str, timeout_s: float = 60) -> dict[str, Any]:
        """Wait until a run has ended; its row."""
        end = asyncio.get_running_loop().time() + timeout_s
        while True:
            row = await self.state_of(run_id)
            if row["state"] not in ("queued", "running"):
                return row
            assert asyncio.get_running_loop().time() < end, row
            await asyncio.sleep(0.05)

    def progress(self, token: str | None = None) -> list[dict[str, Any]]:
        return [p["value"] for m, p in self.notifications if m == "$/progress" and token in (None, p["token"])]

    # --- the life of a session ----------------------------------------------------------------------------

    async def initialize(
        self,
        *folders: str | os.PathLike[str],
        capabilities: dict[str, Any] | None = None,
        options: Any = None,
        **more: Any,
    ) -> dict[str, Any]:
        params = {
            "processId": os.getpid(),
            "rootUri": to_uri(folders[0]) if folders else None,
            "workspaceFolders": [{"uri": to_uri(f), "name": Path(f).name} for f in folders] or None,
            "capabilities": FULL if capabilities is None else capabilities,
            "initializationOptions": options,
            **more,
        }
        result = await self.request("initialize", params)
        self.encoding = result["capabilities"]["positionEncoding"]
        self.notify("initialized", {})
        return result

    def open(self, path: str | os.PathLike[str], text: str | None = None, uri: str | None = None) -> Document:
        """Open a file as an editor does: its text, without a byte order mark."""
        uri = uri or to_uri(path)
        if text is None:
            text = Path(path).read_bytes().decode("utf-8-sig")
        document = Document(uri, text)
        self.documents[uri] = document
        item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})
        return document

    def tell_change(self, document: Document) -> None:
        if self.tells_changes:
            params = {"uri": document.uri, "version": document.version}
            changes = [{"text": document.text}]
            self.notify("textDocument/didChange", {"textDocument": params, "contentChanges": changes})

    async def actions(self, uri: str, line: int = 0, diagnostics: Any = (), **context: Any) -> list[dict[str, Any]]:
        span = {"start": {"line": line, "character": 0}, "end": {"line": line, "character": 0}}
        params = {
            "textDocument": {"uri": uri},
            "range": span,
            "context": {"diagnostics": list(diagnostics), **context},
        }
        return await self.request("textDocument/codeAction", params)


def edited(text: str, edits: list[dict[str, Any]], encoding: str) -> str:
    """Apply TextEdits as the specification says, on encoded bytes: an independent way to the same text."""
    codec = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}[encoding]
    width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    starts = [0, *(m.end() for m in re.finditer(r"\r\n|\n|\r", text))]

    def offset(position: dict[str, int]) -> int:
        line = position["line"]
        if line >= len(starts):
            return len(text)
        end = starts[line + 1] if line + 1 < len(starts) else len(text)
        content = text[starts[line] : end].rstrip("\r\n")
        units = content.encode(codec, "surrogatepass")[: position["character"] * width]
        return starts[line] + len(units.decode(codec, "ignore"))  # inside a character: its start

    spans = sorted((offset(e["range"]["start"]), offset(e["range"]["end"]), e["newText"]) for e in edits)
    for (_, end, _), (start, _, _) in itertools.pairwise(spans):
        assert end <= start, "edits overlap"
    for start, end, new in reversed(spans):
        assert start <= end
        text = text[:start] + new + text[end:]
    return text
