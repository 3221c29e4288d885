"""Beginnings of conversations on disk: another process reads nothing of them again, and trusts none blindly."""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.model.client import WorkerModel, WorkerOptions
from agent.model.locate import ModelFile
from agent.model.prefixes import PrefixStore
from agent.types import Issue, JailSettings, Limits, ModelSpec, Note, RunSpec, Turn
from lsp_server.launcher import AgentLauncher
from tests.model.tiny import write_model

SYSTEM = "A long system prompt that is always the same. " * 20
N_SYSTEM = len(SYSTEM)  # at least one token a byte
TOOL = {"type": "function", "function": {"name": "Read", "description": "Reads.", "parameters": {}}}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "frog-lsp" / "prefixes"


def kept(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.state"))


async def run(
    path: Path, issue: str = "The issue.", *, system: str = SYSTEM, **options: object
) -> tuple[Turn, list[str]]:
    """One turn in a process of its own, and the notes."""
    notes: list[str] = []
    n_ctx = int(str(options.pop("n_ctx", 4096)))
    model = WorkerModel(
        ModelFile(path=str(path), name="tiny", kind="file"),
        seed=1,
        options=WorkerOptions(**options),  # type: ignore[arg-type]
        on_note=notes.append,
    )
    try:
        await model.open(Limits(context_tokens=n_ctx, tokens_per_turn=24))
        await model.begin(system, [TOOL], issue)
        return await model.generate([], lambda _: None, lambda *_: None), notes
    finally:
        await model.close()


def read_tokens(turn: Turn) -> int:
    """Tokens of the prompt that were decoded."""
    assert turn.usage.evaluated_tokens is not None
    return turn.usage.evaluated_tokens - turn.usage.completion_tokens


@pytest.mark.model
@pytest.mark.usefixtures("require_model")
class TestWithRealWorkers:
    @pytest.mark.slow
    async def test_a_second_process_reads_nothing_of_it_again(self, tiny_path: Path, cache: Path) -> None:
        first, _ = await run(tiny_path)
        assert read_tokens(first) > N_SYSTEM
        (file,) = kept(cache)
        assert [stat.S_IMODE(os.stat(path).st_mode) for path in (file, cache)] == [0o600, 0o700]
        second, notes = await run(tiny_path)
        assert second.raw == first.raw
        assert second.usage.prompt_tokens == first.usage.prompt_tokens
        assert 0 < read_tokens(second) < 60 and second.usage.redecoded_tokens == 0
        assert notes == []
        other, _ = await run(tiny_path, "Quite another issue, in other words.")
        assert read_tokens(other) < 80
        assert kept(cache) == [file]

    @pytest.mark.slow
    @pytest.mark.parametrize("harm", ["flipped bit", "truncated", "header", "empty", "foreign", "open to others"])
    async def test_what_is_damaged_or_foreign_is_ignored_with_a_note(
        self, tiny_path: Path, cache: Path, harm: str
    ) -> None:
        first, _ = await run(tiny_path)
        (file,) = kept(cache)
        data = bytearray(file.read_bytes())
        if harm == "flipped bit":
            data[len(data) // 2] ^= 4
        elif harm == "truncated":
            del data[-100:]
        elif harm == "header":
            data[12:40] = b"\xff" * 28
        elif harm == "empty":
            data.clear()
        elif harm == "foreign":  # whole and sound, but of other tokens
            await run(tiny_path, system="Another. " * 50)
            (other,) = set(kept(cache)) - {file}
            data[:] = other.read_bytes()
        file.write_bytes(data)
        file.chmod(0o644 if harm == "open to others" else 0o600)
        again, notes = await run(tiny_path)
        assert again.raw == first.raw and read_tokens(again) == read_tokens(first)
        assert len(notes) == 1 and file.name in notes[0] and "ignored" in notes[0]
        third, notes = await run(tiny_path)  # it was written anew
        assert third.raw == first.raw and read_tokens(third) < 60 and notes == []

    @pytest.mark.slow
    async def test_a_state_that_llama_cpp_refuses_costs_a_reading(
        self, tiny_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The right key and checksum over bytes that are no state: as a bug of ours would leave it."""
        first, _ = await run(tiny_path)
        (file,) = kept(cache)
        begin = file.read_bytes()
        (n_header,) = struct.unpack_from("<I", begin, 8)
        state = begin[12 + n_header :][:-4096]
        import hashlib
        import json

        header = json.loads(begin[12 : 12 + n_header])
        header |= {"size_bytes": len(state), "blake2b": hashlib.blake2b(state, digest_size=32).hexdigest()}
        text = json.dumps(header).encode()
        file.write_bytes(begin[:8] + struct.pack("<I", len(text)) + text + state)
        again, notes = await run(tiny_path)
        assert again.raw == first.raw and read_tokens(again) == read_tokens(first)
        assert "does not take it" in notes[0]

    @pytest.mark.slow
    async def test_what_the_worker_says_later_is_in_the_result_of_the_servers_run(
        self, tiny_path: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        (tmp_path / "workspace").mkdir()
        spec = RunSpec(
            run_id="notes",
            workspace=str(tmp_path / "workspace"),
            issue=Issue(text="The tests fail."),
            model=ModelSpec(path=str(tiny_path)),
            limits=Limits(context_tokens=4096, tokens_per_turn=24, max_steps=1),
            jail=JailSettings(backend="files"),
        )
        for harm in (False, True):
            for file in kept(cache) if harm else []:
                file.write_bytes(file.read_bytes()[:-1])
            launcher, events = AgentLauncher(), []
            result = await launcher.make(spec, events.append, 60.0).execute()
            await launcher.close()  # the next one has a worker of its own
            said = [note for note in result.notes if "was ignored and removed: it is damaged" in note]
            assert len(said) == int(harm), result.notes
            assert [event.text for event in events if isinstance(event, Note)] == list(result.notes)

    @pytest.mark.slow
    async def test_each_thing_that_decides_the_state_is_in_the_key(self, tmp_path: Path, cache: Path) -> None:
        path = write_model(tmp_path / "m.gguf", texts={"frog.sampling": '{"temperature": 0.0}'})

        async def is_read_again(**options: object) -> bool:
            turn, _ = await run(path, **options)  # type: ignore[arg-type]
            return read_tokens(turn) > 300

        assert await is_read_again()
        assert not await is_read_again(n_ctx=2048)
        assert await is_read_again(flash_attention="off")
        assert await is_read_again(system=SYSTEM[:-6] + "more. ")
        os.utime(path, ns=(1, 1))
        assert await is_read_again()
        info = path.stat()
        path.write_bytes(path.read_bytes().replace(b"qwen35.rope.freq_base", b"qwen35.rope.freq_bose"))
        os.utime(path, ns=(1, 1))
        assert path.stat().st_size == info.st_size  # only the header differs
        assert await is_read_again()

    async def test_the_build_of_the_engine_is_in_the_name_and_in_the_key(self, tiny_path: Path, cache: Path) -> None:
        from agent.model.engine_library import engine_build

        await run(tiny_path)
        (file,) = kept(cache)
        assert file.name.startswith(engine_build()[:12])


def make_store(folder: Path, **more: object) -> PrefixStore:
    facts = {"model": [1, 2, "3"], "build": "b" * 64, "cache": ["f16"]} | dict(more.pop("facts", {}))  # type: ignore[call-overload]
    return PrefixStore(folder, facts, **more)  # type: ignore[arg-type]


def put(store: PrefixStore, tokens: list[int], state: bytes) -> Path:
    store.store(tokens, state)
    store.wait()
    return store.path_of(tokens)


def test_another_build_never_sees_it_and_removes_it(tmp_path: Path) -> None:
    old = make_store(tmp_path)
    path = put(old, [1, 2], b"state of the old build")
    new = make_store(tmp_path, facts={"build": "c" * 64})
    assert old.load([1, 2]) == b"state of the old build"
    assert new.load([1, 2]) is None
    os.rename(path, new.path_of([1, 2]))  # even under its name
    assert new.load([1, 2]) is None
    again = put(old, [1, 2], b"x")
    put(new, [3], b"y")
    assert not again.exists()


def test_the_folder_keeps_to_its_size_and_the_oldest_go_first(tmp_path: Path) -> None:
    store = make_store(tmp_path, most_bytes=10_000)
    paths = []
    for i in range(5):
        paths.append(put(store, [i], bytes(3_000)))
        os.utime(paths[-1], (time.time() - 100 + i,) * 2)
    assert [path.exists() for path in paths] == [False, False, True, True, True]
    assert store.load([2]) is not None  # a use makes it young again
    put(store, [9], bytes(3_000))
    assert [path.exists() for path in paths] == [False, False, True, False, True]
    store.store([11], bytes(20_000))  # larger than all: not kept
    store.wait()
    assert store.load([11]) is None


def test_what_was_not_used_for_a_month_goes(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    old, leftover = put(store, [1], b"x"), tmp_path / ".part-abc"
    leftover.write_bytes(b"half")
    for path in (old, leftover):
        os.utime(path, (time.time() - 31 * 86_400,) * 2)
    put(store, [2], b"y")
    assert not old.exists() and not leftover.exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    notes: list[str] = []
    store = make_store(tmp_path / "a", on_note=notes.append)
    path = put(store, [1], b"x")
    os.rename(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert store.load([1]) is None and len(notes) == 1
    assert (tmp_path / "elsewhere").exists() and not path.is_symlink()


@pytest.mark.parametrize("make", [lambda p: p.write_bytes(b""), lambda p: p.mkdir()])
def test_a_folder_that_cannot_be_had_keeps_nothing_and_hurts_nobody(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    target = tmp_path / "x"
    make(target)
    store = make_store(target / "y" if target.is_dir() else target)
    if target.is_dir():
        (target / "y").write_bytes(b"")
    store.store([1], b"state")
    store.wait()
    assert store.load([1]) is None
