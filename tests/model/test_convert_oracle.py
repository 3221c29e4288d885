"""What `model convert` makes is what llama.cpp's own converter makes, and computes what transformers computes."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.model.gguf_header import _U32, _U64, _Reader
from quant.convert import convert, plan_conversion
from quant.gguf_writer import ALIGNMENT, TensorKind
from quant.synth_checkpoint import write_checkpoint
from quant.synth_config import VisionShape
from quant.synth_shape import Shape, find_shape
from quant.synth_vocabulary import CONTROL, TAGS, Vocabulary, byte_characters, qwen_vocabulary
from tests.conftest import skip_or_fail
from tests.oracle.install import converter_of, is_ready, python_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
N_POSITIONS = 700
ORACLE_TIMEOUT_S = 500


def small_vocabulary() -> Vocabulary:
    """Bytes, one merge, and the tags; some numbers are left to no token."""
    tokens = [*byte_characters(), "Ġt", *CONTROL, *TAGS, "[unused]", "[unused2]"]
    types = [1] * 257 + [3] * len(CONTROL) + [4] * len(TAGS) + [5, 5]
    return Vocabulary(tokens=tokens, types=types, merges=["Ġ t"])


TINY = find_shape("tiny")
ODD = Shape(
    layers=6, hidden=96, feed_forward=160, heads=3, kv_heads=1, head_size=20, rotary=10,
    groups=3, steps=9, state=12, vocabulary=0, context=2048, interval=3, mtp=True,
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A checkpoint, and how the two converters are asked for the same."""

    shape: Shape
    options: dict[str, Any]
    form: str = "auto"
    arguments: tuple[str, ...] = ()
    has_real_vocabulary: bool = False


CASES = {
    "shards": Case(replace(TINY, mtp=True), {"n_shards": 2, "vision": VisionShape(), "dtype": "BF16", "seed": 3}),
    "odd": Case(ODD, {"dtype": "F16", "tied": False, "seed": 4}),
    "real": Case(TINY, {"dtype": "BF16", "seed": 5}, arguments=("--no-mtp",), has_real_vocabulary=True),
    "f32": Case(TINY, {"dtype": "F32", "n_shards": 3, "seed": 6}, "f32", ("--no-mtp", "--outtype", "f32")),
}
OURS_ALONE = {"frog.converted_by", "frog.source.name", "frog.source.licence"}


@dataclass(frozen=True)
class Answers:
    """Below `folder`: `NAME` is a checkpoint, `NAME.gguf` the oracle's, `NAME.ours.gguf` ours, `logits.npy`."""

    folder: Path
    tokens: list[int]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    if not is_ready():
        skip_or_fail("the oracle of `model convert` is not there: run `make oracle`")
    folder = tmp_path_factory.mktemp("convert")
    real = qwen_vocabulary(248_320)
    tokens = np.random.default_rng(1).integers(0, 256, N_POSITIONS).tolist()
    jobs: list[dict[str, Any]] = []
    for name, case in CASES.items():
        vocabulary = real if case.has_real_vocabulary else small_vocabulary()
        write_checkpoint(folder / name, case.shape, vocabulary=vocabulary, **case.options)
        convert(plan_conversion(folder / name, form=case.form), folder / f"{name}.ours.gguf")
        jobs.append(
            {
                "convert": str(folder / name),
                "out": str(folder / f"{name}.gguf"),
                "arguments": case.arguments,
                "pre": None if case.has_real_vocabulary else "qwen35",
            }
        )
    jobs.append({"logits": str(folder / "f32"), "tokens": tokens, "out": str(folder / "logits.npy")})
    # byte-code is kept: the environment was installed without it
    unwanted = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    done = subprocess.run(
        [python_of(), Path(__file__).parents[1] / "oracle" / "ask.py", converter_of()],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        timeout=ORACLE_TIMEOUT_S,
        env={name: value for name, value in os.environ.items() if name not in unwanted} | {"HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return Answers(folder, tokens)


class Parsed:
    """A GGUF as bytes: `metadata` from key to type and value as they are written, `tensors` from name to all of it."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        reader = _Reader(data)
        reader.skip(8)
        n_tensors, n_entries = reader.number(_U64), reader.number(_U64)
        self.metadata: dict[str, bytes] = {}
        for _ in range(n_entries):
            key, begin = reader.string(), reader.at
            reader.value(key, reader.number(_U32))
            self.metadata[key] = data[begin : reader.at]
        infos: list[tuple[str, tuple[int, ...], int, int]] = []
        for _ in range(n_tensors):
            name = reader.string()
            shape = tuple(reader.number(_U64) for _ in range(reader.number(_U32)))
            infos.append((name, shape, reader.number(_U32), reader.number(_U64)))
        first = -(-reader.at // ALIGNMENT) * ALIGNMENT
        self.tensors: dict[str, tuple[tuple[int, ...], int, bytes]] = {}
        for name, shape, kind, offset in infos:
            n_bytes = prod(shape) * (4 if kind == TensorKind.F32 else 2)
            self.tensors[name] = shape, kind, data[first + offset : first + offset + n_bytes]


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_the_oracle_makes(answers: Answers, name: str) -> None:
    ours, theirs = (Parsed(answers.folder / f"{name}{end}.gguf") for end in (".ours", ""))
    assert ours.metadata.keys() - theirs.metadata.keys() == OURS_ALONE
    different = {key for key, value in theirs.metadata.items() if ours.metadata.get(key) != value}
    assert different == set()
    assert ours.tensors.keys() == theirs.tensors.keys()
    for key, (shape, kind, data) in theirs.tensors.items():
        made_shape, made_kind, made_data = ours.tensors[key]
        assert (made_shape, made_kind, len(made_data)) == (shape, kind, len(data)), key
        if key.endswith(".ssm_a"):  # equal where it was made; torch's exp may differ in the last bit elsewhere
            np.testing.assert_array_max_ulp(np.frombuffer(made_data, "<f4"), np.frombuffer(data, "<f4"), maxulp=1)
        else:
            assert made_data == data, key


@pytest.mark.model
@pytest.mark.usefixtures("require_model")
def test_its_logits_are_those_of_transformers(answers: Answers) -> None:
    made = logits_of(answers.folder / "f32.ours.gguf", answers.tokens)
    wanted = np.load(answers.folder / "logits.npy")
    assert made.shape == wanted.shape == (N_POSITIONS, len(small_vocabulary().tokens))
    differences = np.abs(made - wanted).max(axis=1)
    assert np.abs(wanted).max() > 1  # there is something to differ in
    assert differences.max() < 1e-3
    assert differences[-100:].mean() < 3 * differences[:100].mean()  # no growth over the position


def logits_of(path: Path, tokens: list[int]) -> Any:
    """Those of llama.cpp at all positions, computed in F32 throughout: the cache of attention, too."""
    from agent.model.engine_context import LoadedModel
    from agent.model.engine_library import load_library

    lib = load_library()
    model = LoadedModel(str(path), n_gpu_layers=0, repack=False, on_progress=lambda _: True)
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 768
    params.n_outputs_max = params.n_outputs_max_per_seq = 768
    params.type_k = params.type_v = int(TensorKind.F32)
    params.flash_attn_type = 0
    context = lib.llama_init_from_model(model.raw, params)
    batch = lib.llama_batch_init(len(tokens), 0, 1)
    try:
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, True
            batch.seq_id[i][0] = 0
        assert lib.llama_decode(context, batch) == 0
        made = np.ctypeslib.as_array(lib.llama_get_logits(context), shape=(len(tokens), model.vocab.n_tokens))
        return made.copy()
    finally:
        lib.llama_batch_free(batch)
        lib.llama_free(context)
        model.close()
