"""Calls through `frog-lsp tool`'s own code, in each backend: observations, changes, and the patch applied by git."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.jail.spec import JailSpec
from agent.tool_lines import serve_tool_lines
from tests.jail.reduced import SCENARIOS_THAT_FAIL

CASES = json.loads((Path(__file__).parent / "tools.json").read_text())
FILE_CASES = [case for case in CASES if not any(name == "Bash" for name, _ in case["calls"])]


def make(root, files):
    for name, file in files.items():
        path = root / name
        if file is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if "link" in file:
            path.symlink_to(file["link"])
            continue
        path.write_bytes(bytes.fromhex(file["hex"]) if "hex" in file else file["text"].encode())
        path.chmod(int(file.get("mode", "644"), 8))


def tree(root):
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            content = os.readlink(path) if path.is_symlink() else (path.read_bytes(), path.stat().st_mode & 0o777)
            found[str(path.relative_to(root))] = content
    return found


REMARK = re.compile(r"\n\[Commands run in a copy of .*\]$")
"""What backend C says once, after the first command."""


def check(observation, expected):
    for how, text in expected.items():
        if how == "equals":
            assert observation == text
        else:
            assert observation.startswith(text) if how == "startswith" else text in observation, observation


async def serve(root, lines, backend):
    stdin, stdout = io.BytesIO(b"".join(line + b"\n" for line in lines)), io.BytesIO()
    assert await serve_tool_lines(JailSpec(workspace=str(root)), stdin, stdout, backend=backend) == 0
    *answers, last = [json.loads(line) for line in stdout.getvalue().splitlines()]
    return [answer["observation"] for answer in answers], last


async def run_case(case, backend, tmp_path, sealed):
    before, after, expected = (tmp_path / name for name in ("before", "after", "expected"))
    for folder in (before, expected):
        folder.mkdir()
        make(folder, case["files"])
    make(expected, case.get("after", {}))
    shutil.copytree(before, after, symlinks=True)
    sealed(before)
    lines = [json.dumps({"name": name, "arguments": arguments}).encode() for name, arguments in case["calls"]]
    observations, last = await serve(before, lines, backend)
    if backend == "landlock":
        observations = [REMARK.sub("", observation) for observation in observations]
    for observation, wanted in zip(observations, case["observations"], strict=True):
        check(observation, wanted)
    assert [change["path"] for change in last["changes"]] == sorted(case.get("after", {}))
    if last["patch"]:
        apply(after, last["patch"])
    assert tree(after) == tree(expected)


def apply(folder, patch):
    data = patch.encode("utf-8", "surrogateescape")
    subprocess.run(["git", "apply", "-"], cwd=folder, input=data, check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.jail
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
async def test_in_the_jail(case, tmp_path, sealed, backend):
    if backend == "landlock" and case["name"] in SCENARIOS_THAT_FAIL:
        pytest.skip(f"not promised by `landlock`: {SCENARIOS_THAT_FAIL[case['name']]}")
    await run_case(case, backend, tmp_path, sealed)


@pytest.mark.parametrize("case", FILE_CASES, ids=lambda case: case["name"])
async def test_without_a_jail(case, tmp_path, sealed):
    await run_case(case, "files", tmp_path, sealed)


async def test_lines_that_are_no_call(tmp_path):
    (tmp_path / "a").write_bytes(b"x\n")
    calls = {
        b"no json": "ValueError: the line is not JSON",
        b"": "ValueError: the line is not JSON",
        b"\xff\xfe": "ValueError: the line is not JSON",
        b"[" * 100_000: "ValueError: the line is not JSON",
        b"[1]": "ValueError: the line is not a JSON object",
        b"{}": "ValueError: name is required",
        b'{"name": "Read", "arguments": {"file_path": "a"}}': "a\n1. x",
        b'{"tool": "Read", "args": {"path": "a"}}': "a\n1. x",
        b'{"type": "function", "function": {"name": "Read", "arguments": "{\\"file_path\\": \\"a\\"}"}}': "a\n1. x",
        b'{"name": "Read", "arguments": "nonsense"}': "ValueError: file_path is required",
        b'{"name": "Read", "arguments": [1]}': "ValueError: file_path is required",
        b'{"name": "Read"}': "ValueError: file_path is required",
        b'{"name": "\\ud800"}': "Unknown tool: ",
        b'{"name": "Bash", "arguments": {"command": "true"}}': "PermissionError: Bash is not available",
    }
    observations, last = await serve(tmp_path, list(calls), "files")
    for observation, expected in zip(observations, calls.values(), strict=True):
        assert observation.startswith(expected)
    assert last == {"changes": [], "patch": ""}


@pytest.mark.jail
async def test_a_killed_runner_loses_nothing(tmp_path, sealed, backend):
    (tmp_path / "a").write_bytes(b"x\n")
    sealed(tmp_path)
    calls = (
        ("Write", {"file_path": "new", "content": "x"}),
        ("Bash", {"command": "kill -9 $PPID; sleep 5"}),
        ("Read", {}),
        ("Read", {"file_path": "a"}),
    )
    lines = [json.dumps({"name": name, "arguments": arguments}).encode() for name, arguments in calls]
    observations, last = await serve(tmp_path, lines, backend)
    assert observations[0] == "Wrote new (1 bytes)."
    assert observations[2] == "ValueError: file_path is required"
    for observation in (observations[1], observations[3]):
        assert observation.startswith("ToolRunnerDied: ")
    assert [change["path"] for change in last["changes"]] == ["new"]
