"""The same run of 30 turns through others that embed or serve llama.cpp: how often each reads the same tokens again.

Counted, not timed, on a model of under 1 MB: what is read again does not depend on the weights. `llama-server` takes
part where FROG_BENCH_LLAMA_SERVER names one that was built from the same source archive:

    cmake -S vendor/llama.cpp -B build -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF
    cmake --build build --target llama-server
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import httpx

from agent.tools.schemas import TOOLS
from quant.synth import write_model
from quant.synth_shape import find_shape
from tests.bench import engine_processes
from tests.bench.engine import Size
from tests.bench.table import Row, left_out, reported

SERVER = "FROG_BENCH_LLAMA_SERVER"
SIZE = Size(n_ctx=24_576, n_turns=30, tokens_per_turn=40)
START_S, ANSWER_S = 60.0, 120.0
_SERVED = ("evaluated-over-least-llama-server", "llama-server-read-after-restart")


def rows() -> list[Row]:
    """Tokens decoded over the tokens of the conversation: ours, and theirs."""
    with tempfile.TemporaryDirectory(prefix="frog-bench-") as name:
        shape = replace(find_shape("tiny"), context=SIZE.n_ctx)
        path = write_model(Path(name) / "tiny.gguf", shape)
        with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(Path(name) / "cache")}):
            ours, _ = asyncio.run(engine_processes.evaluated("rivals", path, SIZE))
        ours = replace(ours, row="rivals/evaluated-over-least-ours", target="", ok=None)
        return [ours, high_level(path), *served(path, os.environ.get(SERVER))]


def high_level(path: Path) -> Row:
    """`Llama.create_chat_completion`, in a process of its own: it takes the standard descriptors for itself."""
    command = [sys.executable, "-m", "tests.bench.high_level", str(path), str(SIZE.n_ctx), str(SIZE.n_turns)]
    done = subprocess.run([*command, str(SIZE.tokens_per_turn)], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    return _row("create-chat-completion", said["evaluated"], said["least"])


def served(path: Path, server: str | None) -> list[Row]:
    """llama-server over HTTP, and what it reads again after a restart."""
    if not server or not os.access(server, os.X_OK):
        why = f"{SERVER} names no llama-server of the same source archive"
        return [left_out(f"rivals/{name}", why) for name in _SERVED]
    messages, asked, evaluated, least = conversation(0), conversation(0), 0, 0
    with running(path, server) as ask:
        for number in range(SIZE.n_turns):
            reply = ask(messages)
            timings = reply["timings"]
            evaluated += timings["prompt_n"] + timings["predicted_n"] - 1
            least = reply["usage"]["prompt_tokens"] + timings["predicted_n"] - 1
            asked = list(messages)
            messages += [reply["choices"][0]["message"], *conversation(number + 1)]
    with running(path, server) as ask:
        again = ask(asked)
    share = again["timings"]["prompt_n"] / again["usage"]["prompt_tokens"]
    return [
        _row("llama-server", evaluated, least),
        reported(f"rivals/{_SERVED[1]}", share, "x", "of the conversation's tokens; ours 0 of a prefix"),
    ]


def conversation(number: int) -> list[dict[str, Any]]:
    """What is said before turn `number`: the beginning, or the observation of the turn before."""
    if number:
        return [{"role": "tool", "content": f"source_{number}.py\n{engine_processes.SOURCE}", "tool_call_id": "call_0"}]
    system = {"role": "system", "content": engine_processes.SYSTEM}
    return [system, {"role": "user", "content": "The tests fail."}]


@contextlib.contextmanager
def running(path: Path, server: str) -> Iterator[Any]:
    """A llama-server; gives what asks it for one turn."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [server, "-m", str(path), "-c", str(SIZE.n_ctx), "--host", "127.0.0.1", "--port", str(port)]
    command += ["-t", "1", "-np", "1", "--jinja"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=ANSWER_S) as client:
            _wait(client, process)

            def ask(messages: list[dict[str, Any]]) -> Any:
                body = {"messages": messages, "tools": TOOLS, "max_tokens": SIZE.tokens_per_turn, "seed": 1}
                answer = client.post("/v1/chat/completions", json=body)
                answer.raise_for_status()
                return answer.json()

            yield ask
    finally:
        process.kill()
        process.wait()


def _wait(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if client.get("/health").status_code == httpx.codes.OK:
                return
        time.sleep(0.1)
    raise RuntimeError(f"llama-server did not start (exit code {process.poll()})")


def _row(name: str, evaluated: int, least: int) -> Row:
    baseline = f"{SIZE.n_turns} turns, {evaluated:,} tokens decoded for {least:,}"
    return reported(f"rivals/evaluated-over-least-{name}", evaluated / least, "x", baseline)
