"""The worker as a real process: it is spoken to, stopped, killed, kept and refused bad files."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from agent.errors import ContextOverflow, ContextTooLarge, ModelFileError, ModelUnavailable
from agent.model.client import WorkerModel
from agent.model.keeper import WorkerKeeper
from agent.model.locate import ModelFile
from agent.model.worker_process import WorkerProcess
from agent.types import Limits, Observation, Usage
from tests.model.tiny import TEMPLATE, write_model

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("require_model")]

LIMITS = Limits(context_tokens=2048, tokens_per_turn=24)


def file_of(path: Path) -> ModelFile:
    return ModelFile(path=str(path), name=path.stem, kind="file")


def ignore(*_: object) -> None:
    pass


def pid_of(model: WorkerModel) -> int:
    assert model._worker is not None
    return model._worker.pid


async def gone(pid: int) -> bool:
    for _ in range(100):
        if not psutil.pid_exists(pid):
            return True
        await asyncio.sleep(0.02)
    return False


async def test_a_conversation_of_several_turns(tiny_path: Path) -> None:
    model = WorkerModel(file_of(tiny_path), seed=1)
    info = await model.open(LIMITS)
    assert (info.kind, info.name, info.context_tokens, info.demonstration) == ("worker", "tiny", 2048, False)
    pid = pid_of(model)
    await model.begin("System.", [], "The issue")
    total, texts, prefills = Usage(), [], []
    observations: list[Observation] = []
    for _ in range(4):
        turn = await model.generate(observations, texts.append, lambda *p: prefills.append(p))
        total += turn.usage
        observations = [Observation(tool="Read", text="a </think> b")]
    assert total.evaluated_tokens == turn.context_tokens - 1
    assert prefills[-1][0] == prefills[-1][1] > 0
    assert "".join(texts)
    await model.close()
    await model.close()
    assert await gone(pid)


async def test_limits_and_notes(tiny_path: Path) -> None:
    model = WorkerModel(file_of(tiny_path))
    info = await model.open(Limits())
    assert info.context_tokens == 4096
    assert "lowered" in info.notes[0]
    await model.begin("S", [], "x " * 3000)
    with pytest.raises(ContextOverflow):
        await model.generate([], ignore, ignore)
    await model.close()
    model = WorkerModel(file_of(tiny_path), context_is_explicit=True)
    with pytest.raises(ContextTooLarge) as caught:
        await model.open(Limits())
    assert caught.value.largest == 4096


async def test_kill_in_the_middle_is_model_unavailable_at_once(tiny_path: Path) -> None:
    model = WorkerModel(file_of(tiny_path))
    await model.open(Limits(context_tokens=4096, tokens_per_turn=4000))
    await model.begin("S", [], "y " * 1000)
    asyncio.get_running_loop().call_later(0.1, os.kill, pid_of(model), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(ModelUnavailable, match="SIGKILL"):
        for _ in range(1000):
            await model.generate([], ignore, ignore)
            await model.begin("S", [], "z " * 1000)
    assert time.monotonic() - began < 5
    with pytest.raises(ModelUnavailable):
        await model.begin("S", [], "again")
    await model.close()


async def test_cancelling_stops_the_generation_and_the_worker_lives(tiny_path: Path) -> None:
    keeper = WorkerKeeper()
    model = WorkerModel(file_of(tiny_path), keeper=keeper)
    await model.open(Limits(context_tokens=4096, tokens_per_turn=4000))
    pid = pid_of(model)
    await model.begin("S", [], "y " * 1900)
    task = asyncio.create_task(model.generate([], ignore, ignore))
    await asyncio.sleep(0.05)
    task.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 1.5
    await model.begin("S", [], "short")
    expected = await model.generate([], ignore, ignore)
    await model.close()
    assert psutil.pid_exists(pid)
    again = WorkerModel(file_of(tiny_path), keeper=keeper)
    await again.open(Limits(context_tokens=4096, tokens_per_turn=4000))
    assert pid_of(again) == pid
    await again.begin("S", [], "short")
    assert (await again.generate([], ignore, ignore)).raw == expected.raw
    await again.close()
    await keeper.close()
    assert await gone(pid)


@pytest.mark.slow
async def test_a_stopped_worker_is_killed(tiny_path: Path) -> None:
    model = WorkerModel(file_of(tiny_path))
    await model.open(LIMITS)
    await model.begin("S", [], "y")
    pid = pid_of(model)
    os.kill(pid, signal.SIGSTOP)
    task = asyncio.create_task(model.generate([], ignore, ignore))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(pid)
    await model.close()


@pytest.mark.slow
async def test_the_keeper_unloads_when_idle_and_replaces_the_dead(tiny_path: Path) -> None:
    keeper = WorkerKeeper(idle_unload_s=0.1)
    model = WorkerModel(file_of(tiny_path), keeper=keeper)
    await model.open(LIMITS)
    first = pid_of(model)
    await model.close()
    assert await gone(first)
    await model.open(LIMITS)
    second = pid_of(model)
    os.kill(second, signal.SIGKILL)
    with pytest.raises(ModelUnavailable):
        await model.begin("S", [], "x")
    await model.close()
    await model.open(LIMITS)
    await model.begin("S", [], "x")
    await model.close()
    await keeper.close()


async def test_one_run_waits_for_the_other(tiny_path: Path) -> None:
    keeper = WorkerKeeper()
    first, second = (WorkerModel(file_of(tiny_path), keeper=keeper) for _ in range(2))
    await first.open(LIMITS)
    waiting = asyncio.create_task(second.open(LIMITS))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await first.close()
    await waiting
    await second.close()
    await keeper.close()


async def test_the_end_of_stdin_ends_the_worker(tiny_path: Path) -> None:
    worker = await WorkerProcess.start()
    pid = worker.pid
    assert worker._process.stdin is not None
    worker._process.stdin.close()
    assert await gone(pid) or worker._process.returncode is not None
    with pytest.raises(ModelUnavailable):
        await worker.request("hello", {})
    await worker.close()


async def test_the_worker_imports_nothing_of_the_folder_it_is_started_from(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "agent"
    trap.mkdir()
    for name in ("agent/__init__.py", "sitecustomize.py", "llama_cpp.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'sprung')!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    model = WorkerModel(file_of(tiny_path))
    await model.open(LIMITS)
    await model.close()
    assert not (tmp_path / "sprung").exists()


def broken(tmp_path: Path, tiny_path: Path) -> dict[str, tuple[Path, str]]:
    whole = tiny_path.read_bytes()
    files: dict[str, tuple[Path, str]] = {}

    def put(name: str, data: bytes, message: str) -> None:
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(data)
        files[name] = (path, message)

    put("text", b"hello", "not a GGUF file")
    put("empty", b"", "empty")
    put("truncated", whole[:-1000], "truncated")
    put("header-only", whole[:3000], "truncated")
    put("magic-only", whole[:6], "truncated")
    put("version", whole[:4] + b"\x09" + whole[5:], "version 9")
    put("big-endian", whole[:4] + b"\0\0\0\x03" + whole[8:], "big-endian")
    put("pointer", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS")
    put("safetensors", b'\x10\0\0\0\0\0\0\0{"a": 1}', "safetensors")
    put("counts", whole[:8] + b"\xff" * 16 + whole[24:], "not plausible")
    base = write_model(tmp_path / "base.gguf", template=None)
    plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    no_tools = write_model(tmp_path / "no-tools.gguf", template=plain)
    bad = write_model(tmp_path / "bad-template.gguf", template="{% for tools %}")
    files["base"] = (base, "base model")
    files["no-tools"] = (no_tools, "knows no tools")
    files["bad-template"] = (bad, "cannot be used")
    files["missing"] = (tmp_path / "missing.gguf", "cannot be opened")
    files["folder"] = (tmp_path, "a folder")
    return files


async def test_bad_files_are_refused_before_a_worker_starts(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_cls: object) -> WorkerProcess:
        raise AssertionError("a worker was started")

    monkeypatch.setattr(WorkerProcess, "start", classmethod(never))
    for name, (path, message) in broken(tmp_path, tiny_path).items():
        with pytest.raises(ModelFileError, match=message) as caught:
            await WorkerModel(file_of(path)).open(LIMITS)
        assert caught.value.hint, name


def rename_architecture(source: Path, target: Path) -> Path:
    target.write_bytes(source.read_bytes().replace(b"qwen35", b"qwen99"))
    return target


async def test_a_file_that_llama_cpp_refuses_is_a_model_file_error(tmp_path: Path, tiny_path: Path) -> None:
    path = rename_architecture(tiny_path, tmp_path / "odd.gguf")
    with pytest.raises(ModelFileError, match="architecture"):
        await WorkerModel(file_of(path)).open(LIMITS)


async def test_template_that_needs_another_call_format(tmp_path: Path) -> None:
    other = TEMPLATE.replace("<tool_call>", "[TOOL]")
    path = write_model(tmp_path / "other.gguf", template=other)
    with pytest.raises(ModelFileError, match="another way"):
        await WorkerModel(file_of(path)).open(LIMITS)


def test_the_parent_never_imports_llama_cpp() -> None:
    import subprocess

    code = "import sys, agent.model.client, agent.model.scripted; sys.exit('llama_cpp' in sys.modules)"
    assert subprocess.run([sys.executable, "-I", "-c", code], check=False).returncode == 0
