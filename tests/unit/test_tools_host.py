"""The host against runners that lie, stop, flood and die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import pytest

from agent.errors import FrogError, ToolRunnerDied
from agent.tools import host as module
from agent.tools.host import ToolHost
from agent.types import FileState, ToolCall
from tests.runner_process import end, fill, running

LIAR = """
import json, os, sys
def send(message):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\\r\\n\\r\\n%s" % (len(body), body)); sys.stdout.flush()
def receive():
    header = sys.stdin.buffer.readline(); sys.stdin.buffer.readline()
    if not header: sys.exit(0)
    return json.loads(sys.stdin.buffer.read(int(header.split(b":")[1])))
message = receive()
send({"id": message["id"], "result": {"protocol": 1, "bash": True}})
message = receive()
"""

READ = ToolCall(name="Read", arguments={"file_path": "a"}, id="c1")


@contextlib.asynccontextmanager
async def lying(code):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", LIAR + code), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    host = ToolHost(process.stdout, process.stdin)
    try:
        await host.start()
        yield host, process
    finally:
        await host.close()
        await end(process)


@pytest.mark.parametrize(
    "code",
    [
        "send({'id': message['id'], 'result': {'observation': 5}})",
        "send({'id': message['id'], 'result': None})",
        "send({'id': message['id'], 'result': {'observation': 'x' * 6_000_000}})",
        "send({'id': 99, 'result': {'observation': ''}})",
        "send(b'no json')",
        "os.write(1, b'garbage')",
        "os.write(1, b'Content-Length: 99999999999\\r\\n\\r\\n')",
        "os.write(1, b'x' * 10_000_000)",
        "os._exit(9)",
        "os.kill(os.getpid(), 9)",
    ],
)
async def test_lies_and_death_are_told(code):
    async with lying(code + "\nreceive()") as (host, _):
        with pytest.raises(ToolRunnerDied) as caught:
            await host.execute(READ)
        assert caught.value.message
        with pytest.raises(ToolRunnerDied):
            await host.execute(READ)


async def test_an_error_of_the_runner_is_an_observation():
    async with lying("send({'id': message['id'], 'error': {'kind': 'KeyError', 'message': 'm'}})\nreceive()") as (
        host,
        _,
    ):
        assert (await host.execute(READ)).text == "ValueError: KeyError: m"


async def test_a_stopped_runner_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "_FILE_TIMEOUT_S", 0.3)
    async with lying("receive()") as (host, process):
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(ToolRunnerDied, match="did not answer within"):
            await host.execute(READ)


async def test_another_protocol_is_refused():
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", LIAR.replace('"protocol": 1', '"protocol": 2')),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    host = ToolHost(process.stdout, process.stdin)
    with pytest.raises(ToolRunnerDied, match="does not speak protocol 1"):
        await host.start()
    await host.close()
    await end(process)


async def test_observations_carry_the_call(tmp_path):
    fill(tmp_path, {"a": b"x\n"})
    async with running(tmp_path) as run:
        observation = await run.host.execute(READ)
        assert (observation.tool, observation.call_id, observation.text) == ("Read", "c1", "a\n1. x")
        assert observation.duration_s > 0
        unknown = await run.host.execute(ToolCall(name="Grep", arguments={}))
        assert unknown.text == "Unknown tool: Grep"


async def test_files_are_announced_before_they_are_touched(tmp_path):
    fill(tmp_path, {"a": b"x\n"})
    touched = []
    async with running(tmp_path, on_touch=lambda path: touched.append((path, (tmp_path / "a").read_bytes()))) as run:
        await run("Read", file_path="a")
        await run("Write", path="a", content="y")
        await run("Edit", file_path="./a", old_string="y", new_string="z")
        await run("Glob", pattern="*")
        await run("Edit", old_string="y")
        await run("Bash", command="true")
    assert touched == [("a", b"x\n"), ("a", b"x\n"), ("./a", b"y")]


async def test_a_call_that_is_too_large_is_an_observation_and_the_runner_lives(tmp_path):
    async with running(tmp_path) as run:
        assert (await run("Write", file_path="a", content="x" * (65 << 20))).startswith(
            "ValueError: the message cannot"
        )
        assert await run("Write", file_path="a", content="x") == "Wrote a (1 bytes)."


async def test_names_with_odd_characters_travel(tmp_path):
    async with running(tmp_path) as run:
        assert (
            await run("Write", file_path="a\nb/\x1b[31m\u202e😀", content="x")
            == "Wrote a\nb/\x1b[31m\u202e😀 (1 bytes)."
        )
        assert await run("Write", file_path=os.fsdecode(b"\xff"), content="x") == "Wrote \ufffd (1 bytes)."
        assert (tmp_path / os.fsdecode(b"\xff")).exists()


@pytest.mark.parametrize("is_copy", [False, True])
async def test_seed(tmp_path, is_copy, sealed, monkeypatch):
    monkeypatch.setattr(module, "_SEED_BATCH_BYTES", 1 << 20)
    root, upper = tmp_path / "root", tmp_path / "upper"
    upper.mkdir()
    root.mkdir()
    fill(root, {"a": b"1", "gone": b"2", "folder/x": b"3", "folder/y/z": b"4", "link": "a", "keep.sh": b"5"})
    if is_copy:
        sealed(root)
    states = {
        "a": FileState(data=b"changed", mode=0o755),
        "gone": None,
        "never": None,
        "folder/x": None,
        "folder/y/z": None,
        "folder": FileState(data=b"now a file"),
        "new/deep/file": FileState(data=b"\x00\xff"),
        "link": FileState(data=None, link="new/deep/file"),
        "special": FileState(data=None),
        "big": FileState(data=b"x" * (3 << 20)),
    }
    async with running(root, *(("--upper", str(upper)) if is_copy else ())) as run:
        await run.host.seed(states)
        assert await run("Read", file_path="a") == "a\n1. changed"
        assert await run("Read", file_path="folder") == "folder\n1. now a file"
        assert (await run("Read", file_path="gone")).startswith("FileNotFoundError: ")
        assert (await run("Read", file_path="link")) == "ValueError: binary file"
        assert await run("Glob", pattern="**") == "a\nbig\nfolder\nkeep.sh\nlink\nnew/deep/file"
        assert await run("Write", file_path="gone", content="again") == "Wrote gone (5 bytes)."
        assert await run("Read", file_path="gone") == "gone\n1. again"
        await run.host.seed({"gone": None, "new/deep/file": None})
        assert (await run("Read", file_path="gone")).startswith("FileNotFoundError: ")
        for wrong in ("../x", "/x", "a//b", "", "a/../b"):
            with pytest.raises(FrogError, match="plain relative path"):
                await run.host.seed({wrong: FileState(data=b"")})
    assert os.stat((upper if is_copy else root) / "a").st_mode & 0o777 == 0o755
