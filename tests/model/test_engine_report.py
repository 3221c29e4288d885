"""What doctor says of the build: asked of the real library in a process of its own, and in words from values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.model import engine_report
from agent.model.engine_report import (
    GPU_SWITCHES,
    Build,
    build_command,
    describe_build,
    missed,
    read_backends,
    read_features,
    report_engine,
)

PLAIN = Build(mmap=True, features=frozenset({"AVX2", "REPACK"}))


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
    assert describe_build(PLAIN, 4) == (
        "Built without a GPU. The model runs on the processor, with 4 threads (AVX2, REPACK)."
    )
    assert "copied" in describe_build(Build(mmap=False, features=frozenset()), 1)


def test_the_backends_of_a_build_are_its_libraries() -> None:
    assert read_backends(["libggml-cpu.so.0", "libggml.so", "libllama.so"]) == ()
    assert read_backends(["libggml-cuda.so", "libggml-vulkan.so.0.25.3"]) == ("CUDA", "Vulkan")
    assert read_backends(["libggml-metal.dylib"]) == ("Metal",)
    assert read_backends(["ggml-hip.dll"]) == ("HIP",)


def test_what_runs_where_is_said() -> None:
    cuda = replace(PLAIN, backends=("CUDA",), devices=("NVIDIA H200 (CUDA0)",))
    said = describe_build(cuda, 4)
    assert said.startswith("Built for CUDA. The model runs on NVIDIA H200 (CUDA0); ")
    assert "on the processor, with 4 threads" in describe_build(replace(cuda, devices=()), 4)


def test_what_the_machine_could_have() -> None:
    nvidia = {"NVIDIA": "CUDA"}
    cuda = replace(PLAIN, backends=("CUDA",), devices=("NVIDIA H200 (CUDA0)",))
    assert missed(PLAIN, {}, {"avx2"}) == ""
    assert missed(cuda, nvidia, set()) == ""
    for maker, backend in (("NVIDIA", "CUDA"), ("AMD", "HIP"), ("Apple", "Metal"), ("by Vulkan", "Vulkan")):
        hint = missed(PLAIN, {maker: backend}, {"avx2"})
        assert f"CMAKE_ARGS=-DGGML_{backend.upper()}=on make setup" in hint and "\n" not in hint
    assert "driver" in missed(replace(cuda, devices=()), nvidia, set())
    assert "AVX512" in missed(PLAIN, {}, {"avx2", "avx512f"})


def test_the_switches_are_those_of_the_readme() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for backend in GPU_SWITCHES:
        assert f"{build_command(backend)}" in readme, backend
