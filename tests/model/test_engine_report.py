"""What doctor says of the build: asked of the real library in a process of its own, and in words from values."""

from __future__ import annotations

import pytest

from agent.model import engine_report
from agent.model.engine_report import Build, describe_build, missed, read_features, report_engine

PLAIN = Build(gpu_offload=False, mmap=True, features=frozenset({"AVX2", "REPACK"}))


@pytest.mark.model
@pytest.mark.usefixtures("require_model")
def test_the_real_library_answers_from_its_own_process() -> None:
    report = report_engine()
    assert report.problem is None
    assert "threads" in report.message and "processor" in report.message
    assert "llama_cpp" not in report.hint


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 4)", "signal 4"),
        ("print('no json')", "does not answer"),
        ("raise ImportError('libgomp.so.1 is missing')", "libgomp.so.1"),
    ],
)
def test_a_library_that_does_not_load_is_a_sentence(monkeypatch: pytest.MonkeyPatch, code: str, says: str) -> None:
    monkeypatch.setattr(engine_report, "_ASK", code)
    problem = report_engine().problem
    assert problem is not None and says in problem


def test_features_are_those_that_are_on() -> None:
    text = "CPU : SSE3 = 1 | AVX2 = 1 | AVX512 = 0 | REPACK = 1 | "
    assert read_features(text) == {"SSE3", "AVX2", "REPACK"}
    assert "4 threads (AVX2, REPACK)" in describe_build(PLAIN, 4)
    assert "copied" in describe_build(Build(gpu_offload=False, mmap=False, features=frozenset()), 1)


def test_what_the_machine_could_have() -> None:
    assert missed(PLAIN, {}, {"avx2"}) == ""
    assert "GGML_CUDA=on" in missed(PLAIN, {"NVIDIA": "GGML_CUDA"}, {"avx2"})
    assert missed(Build(gpu_offload=True, mmap=True, features=PLAIN.features), {"NVIDIA": "GGML_CUDA"}, set()) == ""
    assert "AVX512" in missed(PLAIN, {}, {"avx2", "avx512f"})
