"""How fast the language server starts, against two other Python servers, and what it holds in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil

from tests.bench.table import Row, at_most, paired_medians, reported

ROUNDS = 7
BIN = Path(sys.executable).parent
BASELINES = {"jedi-language-server": "jedi-language-server", "python-lsp-server": "pylsp"}


def write_message(pipe: IO[bytes], message: dict[str, Any]) -> None:
    """Write one JSON-RPC message in LSP's framing."""
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    pipe.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    pipe.flush()


def read_message(pipe: IO[bytes]) -> dict[str, Any]:
    """Read one JSON-RPC message. Raises EOFError when the server ended."""
    length = 0
    while (line := pipe.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    if not length:
        raise EOFError("the server ended before it answered")
    message: dict[str, Any] = json.loads(pipe.read(length))
    return message


def start(command: list[str], root: str) -> Iterator[Any]:
    """Start a server; yield the seconds to the answer of `initialize`, then the process; end it."""
    begun = time.perf_counter()
    # each server may keep its compiled modules, as it would where it is installed
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command, cwd=root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        capabilities = {"general": {"positionEncodings": ["utf-16"]}, "window": {"workDoneProgress": True}}
        params = {"processId": None, "rootUri": Path(root).as_uri(), "capabilities": capabilities}
        write_message(process.stdin, {"id": 1, "method": "initialize", "params": params})
        while read_message(process.stdout).get("id") != 1:
            pass
        yield time.perf_counter() - begun
        write_message(process.stdin, {"method": "initialized", "params": {}})
        yield process
        write_message(process.stdin, {"id": 2, "method": "shutdown"})
        while read_message(process.stdout).get("id") != 2:
            pass
        write_message(process.stdin, {"method": "exit"})
        process.wait(10)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def initialize_s(command: list[str], root: str) -> float:
    """Seconds from the start of the process to its answer to `initialize`."""
    steps = start(command, root)
    seconds = float(next(steps))
    for _ in steps:
        pass
    return seconds


def resident_mb(command: list[str], root: str) -> float:
    """Resident memory, in MB, one second after `initialize`, children included."""
    steps = start(command, root)
    next(steps)
    process = next(steps)
    time.sleep(1.0)
    owner = psutil.Process(process.pid)
    total = sum(p.memory_info().rss for p in (owner, *owner.children(recursive=True)))
    for _ in steps:
        pass
    return total / 1e6


def rows() -> list[Row]:
    """Measure all servers in turn."""
    with tempfile.TemporaryDirectory() as root:
        ours = [str(BIN / "frog-lsp"), "serve"]
        others = {name: [str(BIN / program)] for name, program in BASELINES.items()}
        commands = [ours, *others.values()]
        medians = paired_medians([lambda c=c: initialize_s(c, root) for c in commands], ROUNDS)  # type: ignore[misc]
        found = [at_most("server/initialize", medians[0] / medians[1], "x", 0.7, "jedi-language-server")]
        found.append(reported("server/initialize-pylsp", medians[0] / medians[2], "x", "python-lsp-server"))
        found.append(reported("server/initialize-ms", medians[0] * 1e3, "ms"))
        found += [reported(f"server/{name}-ms", s * 1e3, "ms") for name, s in zip(others, medians[1:], strict=True)]
        found.append(at_most("server/resident", resident_mb(ours, root), "MB", 70))
        return found
