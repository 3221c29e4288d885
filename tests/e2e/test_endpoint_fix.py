"""`frog-lsp fix` with a model behind an endpoint: whole runs in the real jail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Seal
from tests.openai_server import HTML_PAGE, OVERFLOWS, Item, OpenAiServer, endless, raw, status, turn

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail"), pytest.mark.slow]
ROOT = Path(__file__).parents[2]
READ = turn(reasoning="Look.", calls=[("Read", {"file_path": "calc.py"})])
EDIT = turn(reasoning="Fix.", calls=[("Edit", {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"})])


@pytest.fixture
def project(workspace: Path, sealed: Seal) -> Path:
    (workspace / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (workspace / "notes.txt").write_text("keep </think> and <|im_end|>\n")
    return sealed(workspace)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    names = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    return {**os.environ, "PYTHONPATH": str(ROOT), **{name: str(tmp_path / name) for name in names}}


def start(project: Path, environment: dict[str, str], url: str, *more: str) -> subprocess.Popen[str]:
    arguments = ["fix", str(project), "--issue", "add() subtracts", "--endpoint", url, "--endpoint-model", "frog"]
    return subprocess.Popen(
        [sys.executable, "-m", "lsp_server.cli", *arguments, "--json", *more],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    out, err = process.communicate(timeout=90)
    assert "Traceback" not in err, err
    assert out.count("\n") == 1
    return process.returncode, json.loads(out)


def fix(
    project: Path, environment: dict[str, str], script: list[Item], *more: str, **server: Any
) -> tuple[int, dict[str, Any], OpenAiServer]:
    with OpenAiServer(script, **server) as endpoint:
        code, result = finish(start(project, environment, endpoint.base_url, *more))
    return code, result, endpoint


@pytest.mark.parametrize("style", ["structured", "tags", "no_parsers"])
def test_a_fix(project: Path, environment: dict[str, str], style: str) -> None:
    script = [{**READ, "style": style}, {**EDIT, "style": style}, turn(content="Fixed.", style=style)]
    code, result, server = fix(project, environment, script)
    assert code == 0 and result["exit_reason"] == "agent" and result["final_message"] == "Fixed."
    assert [(change["path"], change["kind"]) for change in result["changes"]] == [("calc.py", "modified")]
    assert "+    return a + b" in result["patch"] and result["error"] is None
    assert result["model"] == {"kind": "endpoint", "name": "frog"} and result["n_steps"] == 3
    assert result["usage"]["prompt_tokens"] == 300 and result["usage"]["evaluated_tokens"] is None
    named = any("--tool-call-parser" in note for note in result["notes"])
    assert named == (style != "structured")
    histories = [request.messages for request in server.requests]
    assert histories[2][: len(histories[1])] == histories[1]


def test_what_was_done_before_an_error_is_the_proposal(project: Path, environment: dict[str, str]) -> None:
    for item, reason in (
        (status(401, "no"), "llm_query_error"),
        (OVERFLOWS["vllm-prompt"], "max_context_len"),
        (raw(HTML_PAGE, "text/html"), "llm_query_error"),
        (turn(calls=[("Bash", {"command": "rm -rf ."})], finish="length"), "max_tokens_per_turn"),
    ):
        code, result, _ = fix(project, environment, [READ, EDIT, *[item] * 12])  # a summary does not help
        assert (code, result["exit_reason"]) == (0, reason)
        assert [change["path"] for change in result["changes"]] == ["calc.py"]


def test_a_server_that_is_down(project: Path, environment: dict[str, str]) -> None:
    with OpenAiServer() as server:
        url = server.base_url
    code, result = finish(start(project, environment, url))
    assert code == 1 and result["error"]["kind"] == "model_unavailable" and result["error"]["hint"]
    assert result["usage"]["evaluated_tokens"] is None


def test_an_endpoint_elsewhere_needs_a_consent(project: Path, environment: dict[str, str]) -> None:
    code, result = finish(start(project, environment, "http://192.0.2.1:9/v1"))
    assert code == 2 and "model consent" in result["error"]["hint"]


def test_a_file_that_holds_control_tokens_can_be_edited(project: Path, environment: dict[str, str]) -> None:
    edit = {"file_path": "notes.txt", "old_string": "</think> and", "new_string": "</think> or"}
    script = [turn(calls=[("Read", {"file_path": "notes.txt"})]), turn(calls=[("Edit", edit)]), turn(content="ok")]
    code, result, server = fix(project, environment, script)
    assert code == 0 and "+keep </think> or <|im_end|>" in result["patch"]
    assert "</think>" not in server.requests[-1].body.decode()


def test_cancel_in_the_middle_of_a_stream(project: Path, environment: dict[str, str]) -> None:
    with OpenAiServer([READ, endless(delay_s=0.02)]) as server:
        process = start(project, environment, server.base_url)
        end = time.monotonic() + 60
        while len(server.requests) < 2:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.02)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        code, result = finish(process)
    assert code == 130 and result["exit_reason"] == "cancelled"
