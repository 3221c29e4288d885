"""A client gone mad, while a run goes on: the server stays and answers, or it ends and leaves no process.

Each seed gives the same bytes. `FROG_FUZZ_SEED=7 pytest tests/e2e/test_lsp_fuzz.py` tries another one.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.lsp_client import LspClient, edited, to_uri
from tests.e2e.lsp_session import own_env

pytestmark = [pytest.mark.slow, pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

SEEDS = [int(os.environ["FROG_FUZZ_SEED"])] if "FROG_FUZZ_SEED" in os.environ else [1, 2]
BUDGET_S = 8.0
"""A slow machine sends fewer messages, and no others."""
N_CHANGES = 10_000
SLEEP_S = 987
MIB = 1 << 20


@asynccontextmanager
async def running(tmp_path: Path, workspace: Path, *turns: Any) -> AsyncIterator[LspClient]:
    """A client of a server whose model plays `turns`, one file of them a run; without any, it sleeps in the jail."""
    (workspace / "a.py").write_text("x = 1\n")
    script = tmp_path / "turns.json"
    bash = [{"calls": [{"name": "Bash", "arguments": {"command": f"sleep {SLEEP_S}"}}]}]
    script.write_text(json.dumps([*(turns or bash), {"content": "Done."}]))
    client = LspClient(env=own_env(tmp_path / "home"))
    options = {"model": {"kind": "scripted", "path": str(script)}, "review": {"ask": False}}
    async with client.started():
        await client.initialize(workspace, options=options)
        await client.run("frog.fix", {"uri": to_uri(workspace / "a.py"), "issue": "x is wrong"})
        yield client


async def until(is_true: Callable[[], Any], timeout_s: float = 60) -> Any:
    end = time.monotonic() + timeout_s
    while not (value := is_true()):
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.02)
    return value


async def until_asleep(client: LspClient) -> list[psutil.Process]:
    """All processes below the server, once the jail sleeps."""

    def find() -> list[psutil.Process]:
        found = psutil.Process(client.process.pid).children(recursive=True)
        try:
            return found if any(str(SLEEP_S) in process.cmdline() for process in found) else []
        except psutil.Error:
            return []

    return list(await until(find))


async def leaves_nothing(client: LspClient, children: list[psutil.Process]) -> None:
    """The server has gone, or goes at once, with all its processes."""
    assert await asyncio.wait_for(client.process.wait(), 30) in (0, 1)
    await until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in children))


async def still_answers(client: LspClient, workspace: Path) -> None:
    assert len(await client.actions(to_uri(workspace / "a.py"))) == 1


def frame(message: Any) -> bytes:
    body = message if isinstance(message, bytes) else json.dumps(message).encode("utf-8", "surrogatepass")
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


# --- messages ---------------------------------------------------------------------------------------------------------


class Madness:
    """Messages of a client that gets everything wrong, in any order."""

    def __init__(self, rng: random.Random, uri: str) -> None:
        self.rng = rng
        self.uris = [uri, uri.replace("a.py", "%61.py"), "untitled:x", "file:///", "", "\ud800", None, 5]
        self.known = [
            *(f"textDocument/{name}" for name in ("didOpen", "didChange", "didClose", "didSave", "codeAction")),
            *(f"textDocument/{name}" for name in ("willSave", "codeLens", "hover", "executeCommand")),
            *(f"workspace/{name}" for name in ("executeCommand", "didChangeConfiguration", "didChangeWatchedFiles")),
            *(f"workspace/{name}" for name in ("didChangeWorkspaceFolders", "willRenameFiles", "didRenameFiles")),
            *("window/workDoneProgress/cancel", "initialized", "initialize", "$/cancelRequest", "$/setTrace"),
            *("workspace/textDocumentContent", "no/such", "", "shutdown/", 7, None),
        ]

    def value(self, depth: int = 0) -> Any:
        rng = self.rng
        plain = [None, True, -1, 2**70, 1e308, float("nan"), "text\r\n\u2028𝄞\0", rng.choice(self.uris)]
        if depth > 3 or rng.random() < 0.6:
            return rng.choice(plain)
        if rng.random() < 0.4:
            return [self.value(depth + 1) for _ in range(rng.randrange(4))]
        return {rng.choice(["uri", "text", "range", "version"]): self.value(depth + 1) for _ in range(rng.randrange(4))}

    def position(self) -> Any:
        rng = self.rng
        return {"line": rng.randrange(-1, 9), "character": rng.choice([0, 1, 7, -1, 2**40])}

    def params(self) -> Any:
        rng = self.rng
        if rng.random() < 0.3:
            return self.value()
        span = {"start": self.position(), "end": self.value() if rng.random() < 0.1 else self.position()}
        run_id = rng.choice(["x", "../x", "", self.value()])
        return {
            "textDocument": {"uri": rng.choice(self.uris), "version": rng.randrange(9), "text": "a\r\nb"},
            "contentChanges": [{"range": span, "text": rng.choice(["", "x\r", "\n", "𝄞"])}, self.value()],
            "range": span,
            "context": rng.choice([self.value(), {"diagnostics": [{"message": "m", "range": span}]}]),
            "command": rng.choice(["frog.runs", "frog.review", "frog.apply", "frog.log", "frog.doctor", "x", 5]),
            "arguments": rng.choice([self.value(), [{}], [{"runId": run_id, "files": self.value()}]]),
            "settings": self.value(),
            "event": {"added": [self.value()], "removed": []},
            "files": [{"oldUri": rng.choice(self.uris), "newUri": rng.choice(self.uris)}, self.value()],
            "token": self.value(),
            "id": rng.choice([10_001, "x", None, {}]),
        }

    def message(self) -> bytes:
        """A frame that is whole, whatever is in it."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.05:
            return frame(rng.choice([b"{", b"\xff\xfe", b"nul", b"[" * 20_000, b'"\\ud800"', b"{}", b"[]", b"0"]))
        message: dict[str, Any] = {"jsonrpc": rng.choice(["2.0", "1.0", None]), "params": self.params()}
        if kind < 0.95:
            message["method"] = rng.choice(self.known)
        if rng.random() < 0.5:  # ids are reused, and of any type
            message["id"] = rng.choice([10_001, 10_002, "x", None, [], 1.5, True, "frog-1"])
        if rng.random() < 0.05:
            message[rng.choice(["result", "error"])] = self.value()
        return frame([message] if kind > 0.99 else message)


@pytest.mark.parametrize("seed", SEEDS)
async def test_any_messages_in_any_order(tmp_path: Path, workspace: Path, seed: int) -> None:
    print(f"seed {seed}")
    async with running(tmp_path, workspace) as client:
        children = await until_asleep(client)
        mad = Madness(random.Random(seed), to_uri(workspace / "a.py"))
        begun = time.monotonic()
        for _ in range(2_000):
            client.send_bytes(mad.message())
            if time.monotonic() - begun > BUDGET_S:
                break
        assert client.process.stdin is not None
        await client.process.stdin.drain()
        # what it did to the folders and the settings may be anything: it answers, and in time
        assert isinstance(await client.actions(to_uri(workspace / "a.py")), list)
        assert client.process.returncode is None
        assert "never retrieved" not in client.stderr.decode(), client.stderr.decode()[-2000:]
        await client.run("frog.cancel", {})
        await client.request("shutdown")
        client.notify("exit")
        await leaves_nothing(client, children)


# --- bytes ------------------------------------------------------------------------------------------------------------

HARMLESS = {
    "blank lines": b"\r\n\n\r\n",
    "other headers": b"X: y\r\n" + frame(b'{"jsonrpc":"2.0","method":"no/such"}'),
    "lower case, no space": b"content-length:2\r\nContent-Type: text/x; charset=utf8\r\n\r\n{}",
    "line feeds alone": b"Content-Length: 2\n\n{}",
    "the length twice": b"Content-Length: 9\r\nContent-Length: 2\r\n\r\n{}",
    "no length": b"Content-Type: x\r\n\r\n",
    "an empty body": b"Content-Length: 0\r\n\r\n",
    "rubbish, then a blank line": b"\0\xff\xfe\r\nGET / HTTP/1.1\r\n\r\n",
    "a length that is none": b"Content-Length: -5\r\nContent-Length: x\r\n\r\n",
}
DEADLY = {
    "a length over the limit": b"Content-Length: 99999999999\r\n\r\n{}",
    "a header without end": b"x" * 200_000,
}


async def test_rubbish_between_messages_is_passed_over(tmp_path: Path, workspace: Path) -> None:
    async with running(tmp_path, workspace) as client:
        for data in HARMLESS.values():
            client.send_bytes(data)
            await still_answers(client, workspace)


@pytest.mark.parametrize("what", DEADLY)
async def test_what_is_no_stream_of_messages_ends_it(tmp_path: Path, workspace: Path, what: str) -> None:
    async with running(tmp_path, workspace) as client:
        children = await until_asleep(client)
        client.send_bytes(DEADLY[what])
        await leaves_nothing(client, children)


WHOLE = frame({"jsonrpc": "2.0", "id": 1, "method": "workspace/executeCommand", "params": {"command": "frog.runs"}})


ENDS = {
    "in a name": WHOLE[:5],
    "in the blank line": WHOLE[: WHOLE.index(b"\r\n\r\n") + 3],
    "in the body": WHOLE[:-1],
    "between messages": WHOLE,
    "in 64 MiB that were promised": WHOLE + b"Content-Length: %d\r\n\r\n{" % (64 * MIB),
}


async def test_end_of_file_at_any_byte(tmp_path: Path, workspace: Path) -> None:
    async def end(where: str, data: bytes) -> None:
        folder = tmp_path / where
        (folder / "workspace").mkdir(parents=True)
        async with running(folder, folder / "workspace") as client:
            children = await until_asleep(client)
            client.send_bytes(data)
            assert client.process.stdin is not None
            client.process.stdin.close()
            await leaves_nothing(client, children)
            assert client.process.returncode == 1, where

    await asyncio.gather(*(end(where, data) for where, data in ENDS.items()))


async def test_huge_messages(tmp_path: Path, workspace: Path) -> None:
    async with running(tmp_path, workspace) as client:
        client.send_bytes(frame(b'{"jsonrpc":"2.0","method":"no/such","params":"%s"}' % (b"x" * (64 * MIB))))
        await still_answers(client, workspace)
        document = client.open(workspace / "a.py")
        client.change(document, "é = 1\n" * (20 * MIB // 7) + "# TODO the last line\n")
        n_lines = document.text.count("\n")
        (action,) = await client.actions(document.uri, n_lines - 1)
        assert "the last line" in action["title"]


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS[:1])
async def test_ten_thousand_changes_during_a_run(tmp_path: Path, workspace: Path, seed: int) -> None:
    """The next run copies the document: the copy is what the client has."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    nap = [{"calls": [{"name": "Bash", "arguments": {"command": f"sleep {SLEEP_S}"}}]}]
    copy = [{"calls": [{"name": "Bash", "arguments": {"command": "cp a.py copy.py"}}]}]
    async with running(tmp_path, workspace, *nap) as client:
        await until_asleep(client)
        document = client.open(workspace / "a.py", "one\r\ntwo é\rthree 𝄞\n" * 20)
        pieces = ["a", "é", "𝄞", "\n", "\r\n", "\r", "", "", "word ", "two\nlines"]
        for _ in range(N_CHANGES):
            document.version += 1
            changes = [change_of(rng, rng.choice(pieces)) for _ in range(rng.choice([1, 1, 1, 2]))]
            for change in changes:
                edit = {"range": change["range"], "newText": change["text"]}
                document.text = edited(document.text, [edit], client.encoding)
            identifier = {"uri": document.uri, "version": document.version}
            client.notify("textDocument/didChange", {"textDocument": identifier, "contentChanges": changes})
        await still_answers(client, workspace)
        await client.run("frog.cancel", {})
        (tmp_path / "turns.json").write_text(json.dumps([*copy, {"content": "Done."}]))
        run = await client.run("frog.fix", {"uri": document.uri, "issue": "copy it"})
        assert (await client.until_over(run["runId"]))["state"] == "proposed"
        await client.run("frog.apply", {"runId": run["runId"], "files": ["copy.py"]})
        assert (workspace / "copy.py").read_bytes().decode() == document.text


def change_of(rng: random.Random, text: str) -> dict[str, Any]:
    """A change of some lines; what is added and what is taken away are about as much."""
    line, character = rng.randrange(30), rng.randrange(8)
    end = {"line": line + rng.choice([0, 0, 1]), "character": rng.randrange(8)}
    if end["line"] == line:
        end["character"] = max(character, end["character"])
    return {"range": {"start": {"line": line, "character": character}, "end": end}, "text": text}
