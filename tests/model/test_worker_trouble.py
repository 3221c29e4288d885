"""What can go wrong with a worker: cancels, two at once, bad files, and its death. After each the next run is right."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.errors import ContextOverflow, ModelFileError, ModelUnavailable
from agent.model import presence
from agent.model.client import WorkerModel
from agent.model.death import describe_death
from agent.model.keeper import WorkerKeeper
from agent.model.locate import ModelFile
from agent.model.presence import other_holders
from agent.tools.schemas import TOOLS
from agent.types import Limits, Observation
from quant.synth import write_model
from quant.synth_shape import Shape, find_shape
from tests.model.tiny import TEMPLATE
from tests.model.tiny import write_model as write_tiny

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("require_model")]

LIMITS = Limits(context_tokens=4096, tokens_per_turn=24)
GREEDY = {"frog.sampling": '{"temperature": 0.0}'}
CANCEL_S = 0.2


@pytest.fixture(scope="module")
def busy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that a prompt takes seconds and a turn is not over at once."""
    shape = replace(find_shape("tiny"), hidden=256, feed_forward=1024, layers=8, context=16_384)
    return write_model(tmp_path_factory.mktemp("busy") / "busy.gguf", shape)


@pytest.fixture
async def keeper() -> AsyncIterator[WorkerKeeper]:
    kept = WorkerKeeper()
    yield kept
    await kept.close()


def model_of(path: Path, **more: Any) -> WorkerModel:
    return WorkerModel(ModelFile(path=str(path), name=path.stem, kind="file"), seed=1, **more)


def ignore(*_: object) -> None:
    pass


async def answer(path: Path, issue: str = "The issue.", **more: Any) -> str:
    """The greedy answer of a run."""
    model = model_of(path, **more)
    try:
        await model.open(LIMITS)
        await model.begin("S", [], issue)
        return (await model.generate([], ignore, ignore)).raw or ""
    finally:
        await model.close()


def process_of(model: WorkerModel) -> psutil.Process:
    assert model._worker is not None
    return psutil.Process(model._worker.pid)


@pytest.mark.slow
async def test_fifty_cancels_in_a_row_change_nothing(tiny_path: Path, keeper: WorkerKeeper) -> None:
    expected = await answer(tiny_path)
    model = model_of(tiny_path, keeper=keeper)
    await model.open(Limits(context_tokens=4096, tokens_per_turn=2000))
    process = process_of(model)
    resident = []
    for i in range(50):
        await model.begin("S", [], f"{i} " * 700)
        task = asyncio.create_task(model.generate([], ignore, ignore))
        await asyncio.sleep(0.003 * (i % 12))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        resident.append(process.memory_info().rss)
    await model.close()
    assert await answer(tiny_path, keeper=keeper) == expected
    assert process.is_running()
    assert resident[-1] - resident[9] < 16 << 20


async def test_two_requests_at_once_are_answered_one_after_the_other(tiny_path: Path, keeper: WorkerKeeper) -> None:
    seen = [Observation(tool="Read", text="a.py\n1. x")]
    expected = []
    model = model_of(tiny_path, keeper=keeper)
    await model.open(LIMITS)
    for at_once in (False, True):
        await model.begin("S", [], "The issue.")
        asks = [model.generate([], ignore, ignore), model.generate(seen, ignore, ignore)]
        turns = await asyncio.gather(*asks) if at_once else [await ask for ask in asks]
        expected.append([turn.raw for turn in turns])
    await model.close()
    assert expected[0] == expected[1]


@pytest.mark.slow
async def test_two_runs_at_once_give_what_each_gives_alone(tiny_path: Path, keeper: WorkerKeeper) -> None:
    issues = ["The first issue.", "Quite another one, and longer."]
    alone = [await answer(tiny_path, issue) for issue in issues]
    shared = await asyncio.gather(*(answer(tiny_path, issue, keeper=keeper) for issue in issues))
    apart = await asyncio.gather(*(answer(tiny_path, issue) for issue in issues))
    assert alone == list(shared) == list(apart)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["reading", "generating"])
async def test_a_cancel_takes_effect_within_200_ms(busy_path: Path, when: str, keeper: WorkerKeeper) -> None:
    model = model_of(busy_path, keeper=keeper)
    await model.open(Limits(context_tokens=16_384, tokens_per_turn=8000))
    took_s: list[float] = []
    for i in range(30):
        await model.begin("S", [], f"{i} " * (6000 if when == "reading" else 20))
        is_there = asyncio.Event()

        def on_prefill(done: int, total: int, is_there: asyncio.Event = is_there) -> None:
            if (0 < done < total) if when == "reading" else done == total:
                is_there.set()

        task = asyncio.create_task(model.generate([], ignore, on_prefill))
        await asyncio.wait_for(is_there.wait(), 60)
        await asyncio.sleep(0.02 * len(took_s))
        if task.done():  # a model of random weights may end its turn at any token
            assert when == "generating"
            continue
        begun = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        took_s.append(time.monotonic() - begun)
        if len(took_s) == 7:
            break
    await model.close()
    assert len(took_s) == 7
    assert statistics.median(took_s) <= CANCEL_S, took_s


@pytest.mark.slow
def test_where_a_decode_cannot_be_stopped_its_batches_are_short(busy_path: Path) -> None:
    """As on a GPU: without the callback, only the flag between micro-batches stops the reading."""
    import threading

    from agent.model.engine import Engine
    from agent.model.engine_context import LONGEST_BATCH_S, DecodeAbortedError, LoadedModel

    model = LoadedModel(str(busy_path), n_gpu_layers=0, repack=False, on_progress=lambda _: True)
    model.stops_within_decode = False
    engine = Engine(model, n_ctx=16_384, n_threads=1)
    try:
        took_s, batch_s = [], []
        for i in range(7):
            engine.abort.clear()
            engine.rewind([0])
            begun = time.monotonic()
            engine.read([1] * engine._context.batch_tokens)
            batch_s.append(time.monotonic() - begun)
            asked: list[float] = []

            def stop(asked: list[float] = asked) -> None:
                asked.append(time.monotonic())
                engine.abort.set()

            timer = threading.Timer(0.05 + 0.02 * i, stop)
            timer.start()
            with pytest.raises(DecodeAbortedError):
                engine.read([1] * 12_000)
            took_s.append(time.monotonic() - asked[0])
            timer.join()
        assert statistics.median(batch_s) <= 2 * LONGEST_BATCH_S  # twice: other processes run beside
        assert statistics.median(took_s) <= CANCEL_S
    finally:
        engine.close()
        model.close()


@pytest.mark.parametrize(
    ("per_token_s", "most", "expected"),
    [(0.0001, 256, 256), (0.001, 256, 128), (0.004, 256, 32), (0.1, 256, 16), (0.0001, 100, 100), (0.001, 8, 8)],
)
def test_the_micro_batch_that_fits(per_token_s: float, most: int, expected: int) -> None:
    from agent.model.engine_context import fit_batch

    assert fit_batch(lambda n: n * per_token_s, most) == expected


# --- bad files -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Lying(Shape):
    """A shape whose metadata says something else; None: nothing."""

    lies: dict[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        told = super().metadata | self.lies
        return {key: value for key, value in told.items() if value is not None}


def lying(path: Path, key: str, value: object) -> Path:
    tiny = find_shape("tiny")
    own = {item.name: getattr(tiny, item.name) for item in fields(tiny)}
    return write_model(path, Lying(**own, lies={key: value}), texts=GREEDY)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("embedding_length", 96, "token_embd.weight' has wrong shape"),
        ("feed_forward_length", 64, "ffn_gate.weight' has wrong shape"),
        ("attention.head_count_kv", 3, "attn_k.weight' has wrong shape"),
        ("ssm.state_size", 0, "has wrong shape"),
        ("block_count", 100, "blk.4.attn_norm.weight' not found"),
        ("ssm.conv_kernel", None, "key not found in model: qwen35.ssm.conv_kernel"),
        ("rope.dimension_sections", None, "key not found in model: qwen35.rope.dimension_sections"),
        ("context_length", None, "key not found in model: qwen35.context_length"),
        ("block_count", None, "no language model"),
    ],
)
async def test_a_file_that_contradicts_itself_is_refused_by_name(
    tmp_path: Path, tiny_path: Path, keeper: WorkerKeeper, key: str, value: object, says: str
) -> None:
    expected = await answer(tiny_path, keeper=keeper)
    with pytest.raises(ModelFileError) as caught:
        await answer(lying(tmp_path / "bad.gguf", key, value), keeper=keeper)
    assert says in caught.value.message and caught.value.hint
    assert await answer(tiny_path, keeper=keeper) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("rope.dimension_count", 7, "an assertion of llama.cpp (SIGABRT): "),
        ("full_attention_interval", 0, "SIGFPE"),
        ("ssm.inner_size", 1 << 30, "GiB of memory"),
    ],
)
async def test_a_file_over_which_llama_cpp_dies_ends_the_worker_alone(
    tmp_path: Path, tiny_path: Path, keeper: WorkerKeeper, key: str, value: object, says: str
) -> None:
    expected = await answer(tiny_path, keeper=keeper)
    with pytest.raises(ModelUnavailable) as caught:
        await answer(lying(tmp_path / "bad.gguf", key, value), keeper=keeper)
    assert says in caught.value.message and caught.value.hint
    assert "GGML_ASSERT" in caught.value.message or "SIGABRT" not in caught.value.message
    assert await answer(tiny_path, keeper=keeper) == expected


@pytest.mark.slow
async def test_a_huge_vocabulary_is_no_trouble(tmp_path: Path) -> None:
    from quant.synth_vocabulary import byte_vocabulary

    path = tmp_path / "wide.gguf"
    write_model(path, find_shape("tiny"), vocabulary=byte_vocabulary(400_000), texts=GREEDY)
    assert isinstance(await answer(path), str)


@pytest.mark.slow
async def test_a_template_that_waits_for_its_moment_is_stopped_then(
    tmp_path: Path, tiny_path: Path, keeper: WorkerKeeper
) -> None:
    expected = await answer(tiny_path, keeper=keeper)
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    for hostile, says in ((endless, "does not come to its end"), ("{{ 'x' * 5000000 }}", r"5,00\d,\d")):
        path = tmp_path / "late.gguf"
        write_tiny(
            path, template="{% if tools and tools | length > 4 %}" + hostile + "{% endif %}" + TEMPLATE, texts=GREEDY
        )
        model = model_of(path, keeper=keeper)
        await model.open(LIMITS)
        with pytest.raises(ModelFileError, match=says) as caught:
            await model.begin("S", TOOLS, "The issue.")
        assert caught.value.hint
        await model.begin("S", TOOLS[:2], "The issue.")
        assert (await model.generate([], ignore, ignore)).raw
        await model.close()
    assert await answer(tiny_path, keeper=keeper) == expected


async def test_a_prompt_longer_than_the_window_is_said_and_the_next_run_is_right(
    tiny_path: Path, keeper: WorkerKeeper
) -> None:
    expected = await answer(tiny_path, keeper=keeper)
    with pytest.raises(ContextOverflow, match=r"tokens of conversation do not fit the context of 4,096"):
        await answer(tiny_path, "long " * 2000, keeper=keeper)
    assert await answer(tiny_path, keeper=keeper) == expected


# --- death ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "lines", "is_out_of_memory", "says"),
    [
        (-9, [], True, "memory ran out"),
        (-9, [], False, "was ended by SIGKILL"),
        (-6, ["x", "ggml.c:1: GGML_ASSERT(a == b) failed"], False, "an assertion of llama.cpp (SIGABRT): ggml.c:1"),
        (-6, ["terminate called"], False, "was ended by SIGABRT"),
        (-7, [], False, "SIGBUS"),
        (3, [], False, "exit code 3"),
        (-50, [], False, "signal 50"),
    ],
)
def test_how_a_worker_died(code: int, lines: list[str], is_out_of_memory: bool, says: str) -> None:
    how, hint = describe_death(code, lines, is_out_of_memory)
    assert says in how and hint


@pytest.fixture
def small_group() -> Iterator[Callable[[int], None]]:
    """Puts a process into a control group in which it gets 4 MiB more than it has now."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        pytest.skip("this system has no control groups")
    own = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines}
    if "memory" in own:
        base, limit = Path("/sys/fs/cgroup/memory") / own["memory"].lstrip("/"), "memory.limit_in_bytes"
    else:
        base, limit = Path("/sys/fs/cgroup") / own.get("", "/").lstrip("/"), "memory.max"
    group = base / f"frog-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(4 << 20))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no control group for memory can be made here: {error}")

    def put(pid: int) -> None:
        (group / "cgroup.procs").write_text(str(pid))

    yield put
    for _ in range(100):
        try:
            group.rmdir()
            break
        except OSError:
            time.sleep(0.05)


@pytest.mark.slow
async def test_a_worker_that_the_system_ends_for_want_of_memory_says_so(
    tiny_path: Path, busy_path: Path, small_group: Callable[[int], None], keeper: WorkerKeeper
) -> None:
    expected = await answer(tiny_path, keeper=keeper)
    model = model_of(tiny_path, keeper=keeper)
    await model.open(LIMITS)
    small_group(process_of(model).pid)
    await model.close()
    with pytest.raises(ModelUnavailable, match="because memory ran out") as caught:
        large = model_of(busy_path, keeper=keeper)
        try:
            await large.open(Limits(context_tokens=16_384))
        finally:
            await large.close()
    assert "smaller" in caught.value.hint
    assert await answer(tiny_path, keeper=keeper) == expected


async def test_an_abort_signal_says_so(tiny_path: Path) -> None:
    model = model_of(tiny_path)
    await model.open(LIMITS)
    process_of(model).send_signal(signal.SIGABRT)
    with pytest.raises(ModelUnavailable, match="SIGABRT"):
        await model.begin("S", [], "I")
    await model.close()


# --- two editors ---------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_second_editor_is_told_of_the_first(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = model_of(tiny_path), model_of(tiny_path)
    alone = await first.open(LIMITS)
    assert other_holders() == []  # so small a model is nobody's trouble
    monkeypatch.setattr(presence, "WORTH_TELLING_BYTES", 0)
    assert not any("Another frog-lsp" in note for note in alone.notes)
    told = await second.open(LIMITS)
    (note,) = [note for note in told.notes if "Another frog-lsp" in note]
    assert f"process {process_of(first).pid}" in note and tiny_path.name in note and "GiB" in note
    folder = tmp_path / "frog-lsp" / "workers"
    assert os.stat(folder).st_mode & 0o077 == 0
    os.kill(process_of(first).pid, signal.SIGKILL)  # what it left says nothing any more
    await first.close()
    await second.close()
    third = model_of(tiny_path)
    again = await third.open(LIMITS)
    assert not any("Another frog-lsp" in note for note in again.notes)
    await third.close()
