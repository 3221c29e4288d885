"""Outputs of tests, compilers and linters: recognised, told with relative paths, cut with a word."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lsp_server.failures import Failure, describe_failure, own_frames, recognise, without_ansi
from lsp_server.quotes import without_root

OUTPUTS = {
    "pytest": "E       assert 1 == 2\n",
    "pytest, summary": "FAILED tests/test_a.py::test_x - assert 1 == 2\n",
    "unittest": "FAIL: test_add (test_sum.T.test_add)\n-----\n",
    "Python": 'Traceback (most recent call last):\n  File "/w/a.py", line 3, in f\n    x\nNameError: x\n',
    "jest": "FAIL  src/sum.test.js\n  ● adds\n\n    expect(received).toBe(expected)\n",
    "node": "AssertionError [ERR_ASSERTION]: 1 == 2\n    at f (file:///w/src/sum.mjs:3:9)\n",
    "node, tap": "not ok 1 - adds\n",
    "go test": "--- FAIL: TestAdd (0.00s)\n    sum_test.go:7: got 1\nFAIL\n",
    "go test, panic": "panic: boom\n\ngoroutine 1 [running]:\nmain.f()\n\t/w/main.go:12 +0x1d\n",
    "cargo test": "thread 'tests::adds' panicked at src/lib.rs:12:9:\nassertion `left == right` failed\n",
    "rustc": "error[E0308]: mismatched types\n --> src/lib.rs:2:5\n",
    "eslint": "/w/src/a.js\n  3:7  error  'x' is assigned but never used  no-unused-vars\n",
    "Python, syntax": '  File "/w/a.py", line 1\n    x =\n       ^\nSyntaxError: invalid syntax\n',
    "Python, group": "  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: two\n",
    "the linter, pylint": "a.py:1:0: C0114: Missing module docstring (missing-module-docstring)\n",
    "the compiler, pyright": '  /w/a.py:1:10 - error: Type "str" is not assignable\n',
    "the linter": "a.py:1:8: F401 [*] `os` imported but unused\n",
    "the linter, in full": "F401 [*] `os` imported but unused\n --> a.py:1:8\n",
    "mypy": "a.py:1: error: Incompatible types in assignment  [assignment]\n",
    "the compiler": "m.c:1:20: error: 'x' undeclared\n",
    "the compiler, tsc": "src/a.ts(3,7): error TS2322: no\n",
}
CHECKS = {"rustc", "eslint", "the linter", "mypy", "the compiler"}


@pytest.mark.parametrize("name", OUTPUTS)
def test_recognised(name: str) -> None:
    tool = name.partition(",")[0]
    assert recognise(OUTPUTS[name]) == Failure(tool, tool not in CHECKS)
    coloured = OUTPUTS[name].replace("FAIL", "\x1b[1;31mFAIL\x1b[0m").replace("error", "\x1b[31merror\x1b[39;49m")
    assert recognise(coloured) == recognise(OUTPUTS[name])
    assert recognise("line\n" * 50_000 + OUTPUTS[name]) == recognise(OUTPUTS[name])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def f(x):\n    assert x == 1\n    raise ValueError('error: no')\n",
        "panic: true\nFAIL: yes\n",
        "See a.py:3 for the error.\n",
        "1 passed in 0.02s\n",
        "test tests::adds ... ok\n",
        "int main() { return 0; } // error: none\n",
    ],
)
def test_other_text_is_no_failure(text: str) -> None:
    assert recognise(text) is None


def told(text: str, root: str = "/w", own: tuple[str, ...] = (), n_bytes: int = 16_384) -> str:
    failure = recognise(text)
    assert failure is not None
    return describe_failure(text, failure, (root,), lambda path: path in own, n_bytes)


def test_a_traceback_names_own_frames_first() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/w/test_sum.py", line 5, in test_add\n    add(1)\n'
        '  File "/w/.venv/lib/site-packages/lib.py", line 9, in call\n    f()\n'
        '  File "/w-2/other.py", line 7, in g\n    h()\n'
        '  File "/w/pkg/sum.py", line 2, in add\n    return a\n'
        "ValueError: no\n"
    )
    made = told(text, own=("test_sum.py", "pkg/sum.py", ".venv/lib/site-packages/lib.py"))
    assert made == (
        "Fix this failing test: ValueError: no\n\n"
        "In this project the output of Python names:\n"
        "- test_sum.py, line 5, in test_add\n- pkg/sum.py, line 2, in add\n\n"
        "The output of Python:\n\n" + text.replace('"/w/', '"').rstrip()
    )


def test_frames_of_other_tools() -> None:
    def places(text: str) -> list[tuple[str, int]]:
        return [(frame.path, frame.line) for frame in own_frames(without_root(text, ("/w",)), lambda path: True)]

    assert places(OUTPUTS["node"]) == [("src/sum.mjs", 3)]
    assert places(OUTPUTS["cargo test"]) == [("src/lib.rs", 12)]
    assert places(OUTPUTS["go test, panic"]) == [("main.go", 12)]
    assert places(OUTPUTS["eslint"]) == [("src/a.js", 3)]
    assert places(OUTPUTS["the compiler, tsc"]) == [("src/a.ts", 3)]
    assert places(OUTPUTS["mypy"]) == [("a.py", 1)]
    assert places("./a.py:1: x\n../b.py:2: x\nc/../../d.py:3: x\n/e.py:4: x\n") == [("a.py", 1)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/w/a.py:1", "a.py:1"),
        ("/w-2/a.py /w2 /x/w/a.py", "/w-2/a.py /w2 /x/w/a.py"),
        ("rootdir: /w\n(/w) '/w/' /w, file:///w/b", "rootdir: .\n(.) './' ., b"),
        ("~/w/a.py ./w/a.py", "~/w/a.py ./w/a.py"),
    ],
)
def test_the_prefix_is_taken_away_by_components(text: str, expected: str) -> None:
    assert without_root(text, ("/w",)) == expected


def test_a_long_output_is_cut_to_what_tells() -> None:
    noise = "".join(f"collecting module number {n}\n" for n in range(4_000))
    text = f"{noise}E       assert 1 == 2\n\nsum.py:2: AssertionError\n{noise}FAILED test_a.py::test_x - assert\n"
    made = told(text, own=("sum.py",), n_bytes=4_096)
    assert len(made.encode()) <= 4_096
    for line in ("E       assert 1 == 2", "sum.py:2: AssertionError", "FAILED test_a.py::test_x - assert"):
        assert f"\n{line}" in made
    assert "lines are left out here …]" in made
    kept = sum(line.startswith("collecting") for line in made.split("\n"))
    n_said = sum(int(line.split()[1].replace(",", "")) for line in made.split("\n") if line.startswith("[… "))
    assert kept + n_said >= 8_000


def test_control_characters_are_seen() -> None:
    assert without_ansi("\x1b[31ma\x1b]8;;http://x\x07b\x1b[0m") == "ab"
    made = told("E       assert '\x00\u202e'\n")
    assert "\\x00\\u202e" in made


@pytest.mark.slow
def test_real_outputs(tmp_path: Path) -> None:
    """What pytest and unittest of this machine print, with colours."""
    (tmp_path / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    test = "import unittest\nfrom calc import add\nclass T(unittest.TestCase):\n    def test_add(self):\n"
    (tmp_path / "test_calc.py").write_text(test + "        self.assertEqual(add(1, 2), 3)\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "FORCE_COLOR": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for tool in ("pytest", "unittest"):
        more = (
            ["-c", os.devnull, "--rootdir=.", "-p", "no:cacheprovider", "--color=yes", "test_calc.py"]
            if tool == "pytest"
            else ["test_calc"]
        )
        done = subprocess.run(
            [sys.executable, "-m", tool, *more], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
        )
        text = done.stdout + done.stderr
        failure = recognise(text)
        assert failure == Failure(tool, True)
        made = describe_failure(text, failure, (str(tmp_path),), lambda path: (tmp_path / path).is_file(), 16_384)
        assert "- test_calc.py, line 5" in made
        assert "\x1b" not in made
        assert "\\x1b" not in made
        assert str(tmp_path) not in made


@pytest.mark.parametrize(
    "piece", ["x", " ", "\n", "a:", "/", "/w/", "at ", "E  ", "\x1b[", "(a", "Error: ", "a/b.py:1: ", "panic: x\n"]
)
def test_no_text_takes_long(piece: str) -> None:
    text = piece * (300_000 // len(piece))
    begun = time.perf_counter()
    recognise(text)
    made = describe_failure(text, Failure("pytest", True), ("/w",), lambda path: True, 16_384)
    assert time.perf_counter() - begun < 5.0
    assert len(made.encode()) <= 16_384
