"""The estimator of memory, the context that fits, sampling, and where models are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import ContextTooLarge, ModelFileError, ModelUnavailable, UsageError
from agent.model import locate as place
from agent.model.client import WorkerOptions
from agent.model.gguf_header import GgufHeader, read_header
from agent.model.ledger import Ledger
from agent.model.memory import CHECKPOINT_BYTES, GIB, MARKS, MIB, CacheType, Setup, estimate, plan_context
from agent.model.model_facts import read_facts
from agent.model.sampling import Sampling, read_sampling
from agent.types import ModelSpec
from tests.model.tiny import write_model

# The shape of FrogNano-4B at Q4_K_M.
REAL = GgufHeader(
    path="FrogNano.gguf",
    size_bytes=2_800_000_000,
    tensor_bytes=2_790_000_000,
    n_tensors=441,
    lengths={},
    matrix_bytes={12: 1_700_000_000, 14: 560_000_000},
    metadata={
        "general.architecture": "qwen35",
        "qwen35.feed_forward_length": 9216,
        "qwen35.block_count": 33,
        "qwen35.nextn_predict_layers": 1,
        "qwen35.context_length": 262_144,
        "qwen35.embedding_length": 2560,
        "qwen35.full_attention_interval": 4,
        "qwen35.attention.head_count": 16,
        "qwen35.attention.head_count_kv": 4,
        "qwen35.attention.key_length": 256,
        "qwen35.attention.value_length": 256,
        "qwen35.ssm.conv_kernel": 4,
        "qwen35.ssm.state_size": 128,
        "qwen35.ssm.group_count": 16,
        "qwen35.ssm.time_step_rank": 32,
        "qwen35.ssm.inner_size": 4096,
    },
)


def test_the_estimate_of_the_real_shape() -> None:
    need = estimate(REAL)
    assert need.kv_bytes_per_token == 32 * 1024
    assert estimate(REAL, Setup(cache_type="q8_0")).kv_bytes_per_token == 17 * 1024
    assert need.state_bytes == pytest.approx(50.25 * MIB, rel=0.001)
    assert estimate(REAL, n_rs_seq=3).state_bytes == 4 * need.state_bytes
    assert estimate(REAL, n_sequences=2, n_rs_seq=1).state_bytes == 4 * need.state_bytes
    assert need.repacked_bytes == 1_700_000_000
    assert need.checkpoints_bytes == CHECKPOINT_BYTES + MARKS * need.state_bytes  # kept ones, and those of a turn
    assert 3 * need.state_bytes + 3 * 4096 <= CHECKPOINT_BYTES  # behind the tools, behind the issue, before the turn
    assert estimate(REAL, Setup(repack=False)).repacked_bytes == 0
    small = estimate(REAL, Setup(batch_tokens=64))
    assert small.compute_bytes == need.compute_bytes // 4
    assert small.mask_bytes_per_token == need.mask_bytes_per_token // 4


MIXED = replace(
    REAL,
    tensor_bytes=int(2585.75 * MIB),
    matrix_bytes={12: int(1569.375 * MIB), 14: int(500.4 * MIB), 0: 18 * MIB},
    lengths={"tokenizer.ggml.tokens": 248_320},
)


# Resident MiB of a process with the made 4B (Q4_K_M), after 65 to 257 tokens, no checkpoints; llama-cpp-python 0.3.36.
@pytest.mark.parametrize(
    ("n_ctx", "cache_type", "repack", "resident"),
    [
        (8192, "f16", True, 4630),
        (8192, "q8_0", True, 4515),
        (32_768, "f16", True, 5380),
        (32_768, "q8_0", True, 4906),
        (131_072, "f16", True, 8462),
        (131_072, "q8_0", True, 6545),
        (32_768, "f16", False, 3809),
    ],
)
def test_the_estimate_is_within_a_tenth_of_what_was_measured(
    n_ctx: int, cache_type: CacheType, repack: bool, resident: int
) -> None:
    need = estimate(MIXED, Setup(cache_type=cache_type, repack=repack))
    assert (need.total_bytes(n_ctx) - need.checkpoints_bytes) / MIB == pytest.approx(resident, rel=0.1)


def test_all_of_the_context_where_there_is_room() -> None:
    plan = plan_context(REAL, 131_072, 32 * GIB)
    assert (plan.n_ctx, plan.setup, plan.notes) == (131_072, Setup(), ())
    assert plan_context(REAL, 300_000, 64 * GIB).n_ctx == 262_144
    assert plan_context(REAL, 1024, 32 * GIB, explicit=True).n_ctx == 1024


def test_what_gives_way_when_memory_is_short() -> None:
    """The context down to 64 K, then the bits of the cache, then the copies, then the batch, then the context."""
    setups = []
    for tenths in range(36, 100):
        plan = plan_context(REAL, 131_072, tenths * GIB // 10)
        assert plan.need.total_bytes(plan.n_ctx) <= tenths * GIB // 10 * 0.95
        assert plan.n_ctx % 256 == 0
        assert (plan.n_ctx < 131_072) == any("lowered from 131,072" in note for note in plan.notes)
        assert ("8 bits" in (plan.note or "")) == (plan.setup.cache_type == "q8_0")
        assert ("copies" in (plan.note or "")) == (not plan.setup.repack)
        setups.append((plan.setup, plan.n_ctx >= 65_536))
    order = list(dict.fromkeys(reversed(setups)))
    small = Setup(cache_type="q8_0", repack=False, batch_tokens=64)
    preferred = [
        (Setup(), True),
        (Setup(cache_type="q8_0"), True),
        (Setup(repack=False), True),
        (Setup(cache_type="q8_0", repack=False), True),
        (small, True),  # between two tenths of a GiB, or not at all
        (small, False),
    ]
    assert [step for step in order if step != (small, True)] == [step for step in preferred if step != (small, True)]


def test_a_context_asked_for_by_hand_is_had_whole_or_refused() -> None:
    plan = plan_context(REAL, 131_072, 8 * GIB, explicit=True)
    assert plan.n_ctx == 131_072 and plan.setup.cache_type == "q8_0" and "8 bits" in (plan.note or "")
    with pytest.raises(ContextTooLarge, match="no more fits in memory") as caught:
        plan_context(REAL, 131_072, 4 * GIB, explicit=True)
    largest = caught.value.largest
    assert plan_context(REAL, largest, 4 * GIB, explicit=True).n_ctx == largest
    with pytest.raises(ContextTooLarge):
        plan_context(REAL, largest + 256, 4 * GIB, explicit=True)
    with pytest.raises(ContextTooLarge, match="trained with 262,144") as caught:
        plan_context(REAL, 300_000, 64 * GIB, explicit=True)
    assert caught.value.largest == 262_144
    with pytest.raises(ModelUnavailable, match="GiB are free"):
        plan_context(REAL, 131_072, 3 * GIB)


def test_a_cache_of_8_bits_only_where_it_can_be() -> None:
    assert plan_context(REAL, 131_072, 6 * GIB, cache_types=("f16",)).setup.cache_type == "f16"
    metadata = {**REAL.metadata, "qwen35.attention.key_length": 80, "qwen35.attention.value_length": 80}
    assert plan_context(replace(REAL, metadata=metadata), 131_072, 4 * GIB).setup.cache_type == "f16"


def test_what_is_chosen_by_hand_stays() -> None:
    roomy = plan_context(REAL, 131_072, 32 * GIB, cache_types=("q8_0",), batch_tokens=512)
    assert roomy.setup == Setup(cache_type="q8_0", batch_tokens=512) and roomy.notes == ()
    tight = plan_context(REAL, 131_072, 4 * GIB, batch_tokens=128)
    assert tight.setup == Setup(cache_type="q8_0", repack=False, batch_tokens=128)
    assert "tokens at a time" not in (tight.note or "")
    metadata = {**REAL.metadata, "qwen35.attention.key_length": 80, "qwen35.attention.value_length": 80}
    odd = plan_context(replace(REAL, metadata=metadata), 131_072, 32 * GIB, cache_types=("q8_0",))
    assert odd.setup.cache_type == "f16" and "16 bits" in (odd.note or "")


def test_a_cache_of_8_bits_without_flash_attention_is_refused() -> None:
    assert WorkerOptions.of(ModelSpec(cache_type="f16", batch_tokens=64)).cache_types == ("f16",)
    assert WorkerOptions(flash_attention="off").cache_types == ("f16",)
    with pytest.raises(UsageError, match="flashAttention is off"):
        _ = WorkerOptions(flash_attention="off", cache_type="q8_0").cache_types


def test_a_pure_attention_model_keeps_all_layers() -> None:
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 4,
    }
    header = GgufHeader(path="x", size_bytes=1, tensor_bytes=1, n_tensors=1, metadata=metadata, lengths={})
    assert estimate(header).kv_bytes_per_token == 2 * 4 * (16 + 16) * 2
    assert estimate(header).state_bytes == 0


def test_header_of_a_real_file(tmp_path: Path) -> None:
    path = write_model(
        tmp_path / "m.gguf",
        texts={"frog.kind": "demonstration", "frog.system_prompt": "Sö", "frog.tools": '[{"a": 1}]'},
    )
    header = read_header(path)
    assert header.architecture == "qwen35"
    assert header.number("block_count") == 4
    assert header.metadata["qwen35.rope.dimension_sections"] == [2, 1, 1, 0]
    facts = read_facts(header)
    assert (facts.is_demonstration, facts.system_prompt, facts.tools) == (True, "Sö", ({"a": 1},))
    assert facts.sampling == Sampling()
    broken = write_model(tmp_path / "b.gguf", texts={"frog.tools": "{"})
    with pytest.raises(ModelFileError, match="not JSON"):
        read_facts(read_header(broken))


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    whole = write_model(tmp_path / "m.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    for size in [*range(0, 4000, 37), 8000, len(whole) - 200_000, len(whole) - 33]:
        path.write_bytes(whole[:size])
        with pytest.raises(ModelFileError):
            read_header(path)


def test_a_projector_is_no_language_model(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(
        write_model(tmp_path / "t.gguf").read_bytes().replace(b"\x06\0\0\0\0\0\0\0qwen35", b"\x04\0\0\0\0\0\0\0clip", 1)
    )
    with pytest.raises(ModelFileError, match="projector"):
        read_facts(read_header(path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, Sampling()),
        ('{"temperature": 0.0}', Sampling(temperature=0.0)),
        ('{"top_k": 5, "top_p": 1, "min_p": 0.1}', Sampling(top_k=5, top_p=1.0, min_p=0.1)),
        ("rubbish", Sampling()),
        ("[]", Sampling()),
        ('{"temperature": "hot", "top_k": true, "top_p": -1}', Sampling()),
    ],
)
def test_sampling_of_a_file(text: str | None, expected: Sampling) -> None:
    assert read_sampling(text) == expected


def test_checkpoints_stay_within_their_budget() -> None:
    ledger = Ledger(checkpoint_bytes=250)
    ledger.append([1] * 10)
    ledger.save(b"x" * 100, lasting=True)
    for _ in range(5):
        ledger.append([2] * 10)
        ledger.save(b"x" * 100, lasting=False)
    assert [ledger.checkpoint(n).n_tokens for n in (10, 59, 60)] == [10, 10, 60]  # type: ignore[union-attr]
    assert ledger.checkpoint(9) is None
    ledger.roll_back(15)
    assert len(ledger) == 15 and ledger.checkpoint(99).n_tokens == 10  # type: ignore[union-attr]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def test_models_are_found_by_path_and_by_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = write_model(home / "Mine.gguf")
    found = place.locate(str(mine))
    assert (found.path, found.name, found.kind) == (str(mine), "Mine", "file")
    monkeypatch.chdir(home)
    assert place.locate("Mine.gguf").path == str(mine)
    for name in ("nothing-of-this-name", "./no.gguf", "/no/such.gguf"):
        with pytest.raises(ModelFileError, match="there is no model") as caught:
            place.locate(name)
        assert caught.value.hint


def test_the_bundled_model_and_the_users_choice(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = write_model(home / "tadpole.gguf")
    monkeypatch.setattr(place, "BUNDLED", bundled)
    for name in (None, "tadpole", "Demo"):
        assert place.locate(name) == place.ModelFile(path=str(bundled), name="tadpole", kind="demonstration")
    mine = write_model(home / "mine.gguf")
    config = home / "XDG_CONFIG_HOME" / "frog-lsp" / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text(f'{{"model": {{"path": "{mine}"}}}}')
    assert place.locate(None).path == str(mine)
    monkeypatch.setattr(place, "BUNDLED", home / "gone.gguf")
    with pytest.raises(ModelFileError, match="missing"):
        place.locate("tadpole")
