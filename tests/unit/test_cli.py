"""The front door: every command answers, usage errors are one JSON object, exit codes are those of the interface."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli import exit_code, issue_of_diagnostic, model_of
from agent.defaults import defaults_from
from agent.errors import UsageError
from agent.result_json import result_json, result_schema
from agent.types import (
    ChangeKind,
    ChangeSet,
    ExitReason,
    FileChange,
    FileState,
    JailInfo,
    ModelInfo,
    ModelSpec,
    RunError,
    RunResult,
    Usage,
)
from lsp_server.cli import main
from tests.frog import FROG, Frog

RESULT_KEYS = [
    *("run_id", "exit_reason", "final_message", "n_steps", "usage", "elapsed_s", "model", "jail", "tests", "changes"),
    *("n_generated", "patch", "trajectory", "notes", "error"),
]
CHANGE = FileChange(path="a.py", kind=ChangeKind.MODIFIED, before=FileState(data=b"1\n"), after=FileState(data=b"2\n"))


@pytest.fixture
def frog(tmp_path: Path) -> Frog:
    home = tmp_path / "home"
    home.mkdir()
    return Frog(home)


def result(reason: ExitReason, *changes: FileChange, error: RunError | None = None) -> RunResult:
    return RunResult(
        run_id="r",
        exit_reason=reason,
        final_message="",
        n_steps=1,
        usage=Usage(evaluated_tokens=None),
        elapsed_s=1.0,
        model=ModelInfo(kind="endpoint", name="m"),
        jail=JailInfo(backend="namespaces"),
        changes=ChangeSet(changes=changes),
        patch="",
        error=error,
    )


@pytest.mark.parametrize("reason", [reason for reason in ExitReason if reason is not ExitReason.CANCELLED])
def test_a_proposal_is_exit_0_whatever_the_reason(reason: ExitReason) -> None:
    assert exit_code(result(reason, CHANGE)) == 0
    assert exit_code(result(reason)) == (3 if reason is ExitReason.AGENT else 1)


def test_the_other_exit_codes() -> None:
    assert exit_code(result(ExitReason.CANCELLED)) == 130
    for kind in ("usage", "workspace", "context_too_large"):
        assert exit_code(result(ExitReason.MODEL_UNAVAILABLE, error=RunError(kind=kind, message=""))) == 2
    assert exit_code(result(ExitReason.MODEL_UNAVAILABLE, error=RunError(kind="model_file", message=""))) == 1


def test_the_result_object_has_the_keys_of_the_interface() -> None:
    value = result_json(result(ExitReason.AGENT))
    assert list(value) == RESULT_KEYS
    assert value["usage"]["evaluated_tokens"] is None
    assert value["tests"] == {"command": None, "before": None, "after": None}
    json.dumps(value)
    assert list(result_schema()["properties"]) == RESULT_KEYS


def test_diagnostics() -> None:
    text = issue_of_diagnostic("a/b.py:12:undefined name 'x': y")
    assert text.startswith("undefined name 'x': y\n\n")
    assert "line 12 of a/b.py" in text
    for bad in ("", "a.py", "a.py:x:y", "a.py:0:y", "a.py:3:", "a.py:3:  "):
        with pytest.raises(UsageError):
            issue_of_diagnostic(bad)


def test_which_model() -> None:
    def chosen(default: ModelSpec | None = None, **given: str) -> ModelSpec:
        arguments = argparse.Namespace(model=None, endpoint=None, endpoint_model=None)
        for name, value in given.items():
            setattr(arguments, name, value)
        return model_of(arguments, default or ModelSpec())

    assert chosen() == ModelSpec()
    assert chosen(model="x.gguf") == ModelSpec(path="x.gguf")
    assert chosen(model="scripted:t.json") == ModelSpec(kind="scripted", path="t.json")
    assert chosen(endpoint="http://h/v1", endpoint_model="m") == ModelSpec(
        kind="endpoint", base_url="http://h/v1", name="m"
    )
    own = ModelSpec(kind="endpoint", base_url="http://h/v1", name="m", api_key_env="K")
    assert chosen(own, endpoint_model="n").name == "n"
    for bad in ({"model": "a", "endpoint": "b"}, {"endpoint_model": "m"}):
        with pytest.raises(UsageError):
            chosen(**bad)


def test_the_users_settings() -> None:
    read = defaults_from({"model": {"path": "m.gguf"}, "limits": {"maxSteps": 9}, "tests.command": "make test"})
    assert read.model.repairs_calls and not defaults_from({"model": {"repairCalls": False}}).model.repairs_calls
    tuned = defaults_from({"model": {"cacheType": "q8_0", "batchTokens": 128, "threads": 3, "gpuLayers": -1}}).model
    assert (tuned.cache_type, tuned.batch_tokens, tuned.n_threads, tuned.n_gpu_layers) == ("q8_0", 128, 3, -1)
    assert (read.model.path, read.limits.max_steps, read.test_command) == ("m.gguf", 9, "make test")
    for bad in (
        {"limits": {"maxSteps": "9"}},
        {"limits": {"maxSteps": 0}},
        {"limits": {"maxSteps": True}},
        {"model": {"repairCalls": "no"}},
        {"model": {"cacheType": "f8"}},
        {"model": {"batchTokens": 0}},
        {"model": {"threads": -1}},
        {"model": {"kind": "scripted"}},
        {"jail": {"backend": "none"}},
        {"jail": {"readOnlyPaths": [1]}},
    ):
        with pytest.raises(UsageError):
            defaults_from(bad)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["fix"],
        ["fix", "."],
        ["fix", ".", "--issue", ""],
        ["fix", ".", "--issue", " \n"],
        ["fix", ".", "--issue", "x", "--issue-file", "y"],
        ["fix", ".", "--issue-file", "/nowhere/at/all"],
        ["fix", ".", "--issue", "x", "--max-steps", "0"],
        ["fix", ".", "--issue", "x", "--context", "many"],
        ["fix", ".", "--issue", "x", "--endpoint", "http://127.0.0.1:1/v1", "--model", "m"],
        ["fix", ".", "--issue", "x", "--endpoint", "nope", "--endpoint-model", "m"],
        ["fix", ".", "--issue", "x", "--endpoint", "http://127.0.0.1:99999/v1", "--endpoint-model", "m"],
        ["fix", ".", "--issue", "x", "--model", ""],
        ["fix", ".", "--issue", "x", "--no-such-option"],
        ["fix", "/nowhere/at/all", "--issue", "x"],
        ["fix", "/", "--issue", "x"],
        ["fix", "~", "--issue", "x"],
        ["fix", ".", "--issue", "x", "--patch", "/nowhere/at/all.patch"],
        ["fix", ".", "--resume", "/nowhere/at/all"],
        ["demo", "--model", "scripted:x"],
        ["doctor", "extra"],
    ],
)
def test_usage_errors_are_exit_2_and_one_object(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    arguments = [str(home) if word == "~" else str(project) if word == "." else word for word in arguments]
    assert main([*arguments, "--json"]) == 2
    out, _ = capfdbinary.readouterr()
    value = json.loads(out)
    error = value["error"]
    assert set(error) == {"kind", "message", "hint"}
    assert error["message"]
    if arguments[0] == "fix":
        assert list(value) == RESULT_KEYS
    assert main(arguments) == 2
    out, err = capfdbinary.readouterr()
    assert out == b""
    assert error["message"].split("\n")[0][:40] in err.decode()


def test_a_usage_error_of_the_real_command(frog: Frog) -> None:
    answer = frog("fix", frog.home, "--issue", "x", "--json")
    assert (answer.code, answer.json["error"]["kind"]) == (2, "workspace")
    assert list(answer.json) == RESULT_KEYS


def test_an_empty_issue_on_stdin_is_a_usage_error(frog: Frog) -> None:
    (frog.home / "project").mkdir()
    answer = frog("fix", frog.home / "project", "--issue-file", "-", "--json", stdin="\n")
    assert (answer.code, answer.json["error"]["kind"]) == (2, "usage")


def test_help_and_version(frog: Frog) -> None:
    for arguments in (["--help"], ["help"], ["fix", "--help"], ["--version"]):
        answer = frog(*arguments)
        assert answer.code == 0
        assert "frog-lsp" in answer.out
        assert max(map(len, answer.out.split("\n"))) <= 100


@pytest.mark.parametrize("arguments", [[], ["serve"]])
def test_a_terminal_on_stdin_gets_the_help(frog: Frog, arguments: list[str]) -> None:
    master, slave = os.openpty()
    try:
        done = subprocess.run(
            [FROG, *arguments], stdin=slave, capture_output=True, env=frog.env, timeout=60, check=False
        )
    finally:
        os.close(slave)
        os.close(master)
    assert done.returncode == 0
    assert done.stdout.startswith(b"usage: frog-lsp")


def test_schema(frog: Frog) -> None:
    schemas = frog("schema").json
    assert schemas["settings"]["properties"]["limits"]
    assert list(frog("schema", "result").json["properties"]) == RESULT_KEYS


def test_setup_prints_a_snippet_for_each_editor_it_names(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["setup", "no-such-editor"]) == 2
    known = capfd.readouterr().err.partition("Known editors: ")[2].strip(" .\n").split(", ")
    assert {"nvim", "helix", "emacs", "vscode"} <= set(known)
    for editor in known:
        assert main(["setup", editor]) == 0
        assert "frog" in capfd.readouterr().out


def test_parse(frog: Frog) -> None:
    turn = (
        "Hm.</think>\n\n<tool_call>\n<function=Read>\n<parameter=file_path>\na\n</parameter>\n</function>\n</tool_call>"
    )
    value = frog("parse", stdin=turn).json
    assert value["calls"] == [{"name": "Read", "arguments": {"file_path": "a"}}]
    assert frog("parse", "--finish", "length", stdin=turn).json["calls"] == []


def test_a_run_that_failed_is_listed_as_failed(frog: Frog) -> None:
    folder = frog.home / "state/frog-lsp/trajectories"
    folder.mkdir(parents=True)
    header = {"trajectory_format": "leaf-function-calling", "issue": "x", "workspace": "/w"}
    for name, error in (("failed", {"kind": "llm_query_error", "message": "no", "hint": ""}), ("nothing", None)):
        lines = [header, {"n_steps": 0, "exit_reason": "llm_query_error", "error": error}]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = frog("runs", "--json").json["runs"]
    assert sorted((row["run_id"], row["state"]) for row in rows) == [("failed", "failed"), ("nothing", "nothing")]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_stdout_that_takes_nothing(frog: Frog) -> None:
    for words, code in (
        ("parse >/dev/full", 1),
        ("runs --json >/dev/full", 1),
        ("parse >&-", 0),
        ("parse >&- 2>&-", 0),
    ):
        done = subprocess.run(
            f"echo x | {FROG} {words}",
            shell=True,
            env=frog.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (code, ""), words
        assert "Traceback" not in done.stderr
        assert ("No space left" in done.stderr) == (code == 1)


def test_the_front_door_starts_without_what_it_does_not_need() -> None:
    code = (
        "import sys, lsp_server.cli as cli\n"
        "assert cli._is_serve([]) and cli._is_serve(['serve', '--stdio']) and not cli._is_serve(['fix'])\n"
        "print([name for name in ('rich', 'httpx', 'agent.model', 'llama_cpp', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
