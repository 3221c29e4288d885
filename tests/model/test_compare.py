"""Two models over recorded runs of the bundled one: a copy is the same, fewer bits are worse; and the command."""

from __future__ import annotations

import json
import signal
import time
from bisect import bisect_left
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import psutil
import pytest

from agent.errors import ModelUnavailable
from agent.model.chat_format import ChatFormat
from agent.model.client import WorkerOptions
from agent.model.gguf_header import GgufHeader, read_header
from agent.model.keeper import WorkerKeeper
from agent.model.locate import BUNDLED, ModelFile, locate
from agent.types import Limits
from lsp_server.cli import main
from quant.compare import Comparison, Options, compare, plan_reading
from quant.compare_report import WIDTH, report
from quant.compare_stability import Asker
from quant.compare_tokens import HEARD, SAID, UNSCORED, read_passage
from quant.compare_turns import MEASURES, was_repaired
from quant.synth import write_model
from quant.synth_shape import find_shape
from quant.transcripts import read_conversations
from tests.frog import Frog
from tests.model.tiny import write_model as write_tiny

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("require_model")]

GREEDY = "Both models are greedy: one seed is enough, since all would give the same."
MIB = 1 << 20
RUNS = Path(__file__).parent / "runs"
LOGITS_ALONE = Options(sources=[str(RUNS)], n_prompts=0, most_tokens=2500, turn_tokens=64)


def file_of(path: Path) -> ModelFile:
    return locate(str(path))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random model whose rows are multiples of 256, as K quants need it, and what the quantizer makes of it."""
    folder = tmp_path_factory.mktemp("wide")
    shape = replace(
        find_shape("tiny"), hidden=256, feed_forward=512, head_size=64, rotary=32, groups=4, steps=4, state=64
    )
    files = {"F32": write_model(folder / "wide.gguf", shape)}
    frog = Frog(folder)
    for kind in ("Q8_0", "Q2_K"):
        files[kind] = folder / f"wide-{kind}.gguf"
        made = frog("model", "quantize", files["F32"], files[kind], "--type", kind)
        assert made.code == 0, made.err
    return files


@pytest.fixture(scope="module")
def coarse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model with five values a block of 16, too large by a third: what rounding to two bits may leave."""
    path = tmp_path_factory.mktemp("coarse") / "coarse.gguf"
    path.write_bytes(BUNDLED.read_bytes())
    for tensor in gguf.GGUFReader(path, "r+").tensors:
        if tensor.tensor_type.name == "F16":
            blocks = tensor.data.astype(np.float32).reshape(-1, 16)
            largest = np.abs(blocks).max(axis=1, keepdims=True)
            rounded = np.round(1.5 * blocks / np.where(largest == 0, 1, largest)) / 1.5 * largest
            tensor.data[...] = rounded.reshape(tensor.data.shape).astype(np.float16)
    return path


@pytest.mark.slow
async def test_a_copy_is_the_same_and_fewer_bits_are_further_away(wide: dict[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(wide["F32"].read_bytes())
    found: dict[str, Comparison] = {}
    for name, path in {**wide, "copy": copy}.items():
        if name != "F32":
            found[name] = await compare(file_of(wide["F32"]), file_of(path), LOGITS_ALONE)
    for part in ("said", "heard"):
        same, eight, two = (getattr(found[name], part) for name in ("copy", "Q8_0", "Q2_K"))
        assert (same.kl_max, same.top1.value, same.ratio.value) == (0.0, 1.0, 1.0)
        assert 0.0 < eight.kl.high < two.kl.low
        assert two.top1.high < eight.top1.low < 1.0
        assert same.n_tokens == eight.n_tokens == two.n_tokens > 300
    assert found["copy"].advice.use == "b"
    assert "every token the same probability" in found["copy"].advice.sentence


@pytest.mark.slow
async def test_one_model_in_memory_at_a_time_gives_the_very_same(wide: dict[str, Path], tmp_path: Path) -> None:
    pair = file_of(wide["F32"]), file_of(wide["Q2_K"])
    options = replace(LOGITS_ALONE, most_tokens=2000)
    together = await compare(*pair, options)
    headers, n_ctx = (together.a.header, together.b.header), together.context_tokens
    n_vocabulary = headers[0].lengths["tokenizer.ggml.tokens"]
    sizes = range(MIB, 1 << 30, MIB)
    tight = sizes[bisect_left(sizes, 1, key=lambda size: fits_both(headers, n_ctx, n_vocabulary, size)) - 1]
    apart = await compare(*pair, replace(options, memory_bytes=tight))
    assert [note for note in apart.notes if "one after the other" in note] and not together.notes
    assert (apart.said, apart.heard, apart.n_read_tokens) == (together.said, together.heard, 2000)
    for one, other in zip(apart.said_scores, together.said_scores, strict=True):
        assert (one.kl == other.kl).all() and (one.nll_b == other.nll_b).all()
    assert list((tmp_path / "cache" / "frog-lsp").iterdir()) == []  # nothing is left of the logits


def fits_both(headers: tuple[GgufHeader, GgufHeader], n_ctx: int, n_vocabulary: int, size: int) -> bool:
    try:
        return plan_reading(headers, n_ctx, n_vocabulary, size).together
    except ModelUnavailable:
        return False


@pytest.mark.slow
async def test_few_bits_are_worse_in_every_column(coarse: Path, tmp_path: Path) -> None:
    frog = Frog(tmp_path)
    eight = tmp_path / "eight.gguf"
    assert frog("model", "quantize", BUNDLED, eight, "--type", "Q8_0").code == 0
    options = Options(sources=[str(RUNS)], n_prompts=8, most_tokens=1500, turn_tokens=80)
    found = await compare(file_of(eight), file_of(coarse), options)
    good, bad = (side.raw.shares() for side in found.stability)
    assert found.said is not None and found.said.ratio.low is not None and found.said.ratio.low > 1
    assert found.said.kl.low is not None and found.said.kl.low > 0.5 and found.said.top1.value < 0.95
    assert found.said.perplexity_a < 1.2
    assert all(good[name].value > bad[name].value for name in MEASURES[:3])
    assert good["capped"].value < bad["capped"].value and good["no_call"].value < bad["no_call"].value
    assert good["repeats"].value == 0.0
    assert found.stability[1].n_repaired_turns > 0
    assert found.stability[1].repaired.share("parses").value >= bad["parses"].value  # what the repair is worth
    assert found.advice.use == "a" and "a difference beyond chance" in found.advice.sentence
    assert found.notes == [GREEDY]


@pytest.mark.slow
async def test_what_the_guard_did_not_touch_is_the_same_without_it(tmp_path: Path) -> None:
    """So that such a turn need not be generated twice."""
    path = write_tiny(tmp_path / "m.gguf", texts={"frog.sampling": '{"temperature": 1.0}'})
    keeper, conversation = WorkerKeeper(), read_conversations([str(RUNS)])[1]
    asker = Asker(file_of(path), keeper, Limits(context_tokens=4096, tokens_per_turn=96), WorkerOptions())
    n_untouched = 0
    try:
        for seed in range(4):
            repaired, raw = [await asker.ask(conversation, 0, seed, repairs=flag) for flag in (True, False)]
            assert raw.raw and repaired.raw
            if not was_repaired(repaired):
                n_untouched += 1
                assert raw == replace(repaired, usage=raw.usage, duration_s=raw.duration_s)
    finally:
        await keeper.close()
    assert n_untouched >= 1


@pytest.mark.slow
async def test_another_vocabulary_leaves_the_tool_calls_alone(tiny_path: Path) -> None:
    options = Options(sources=[str(RUNS)], n_prompts=2, turn_tokens=32)
    found = await compare(locate("tadpole"), file_of(tiny_path), options)
    assert found.difference == "A has 1,376 tokens and B 267"
    assert (found.said, found.heard, found.said_scores) == (None, None, [])
    assert [side.raw.n_turns for side in found.stability] == [2, 2]
    text = report(found, None)
    assert "Logits are not compared: the vocabularies differ" in text.replace("\n", " ")


async def test_too_few_tokens_say_so() -> None:
    options = Options(sources=[str(RUNS / "tadpole-1.jsonl")], n_prompts=0, most_tokens=8)
    found = await compare(locate("tadpole"), locate("tadpole"), options)
    assert (found.said, found.heard) == (None, None)
    assert found.notes[1] == (
        "No probabilities were compared: 8 tokens end within the system prompt. Give more --tokens or --context."
    )
    assert found.advice.use is None
    assert found.advice.sentence == "Nothing was measured, so neither is recommended."


def test_the_tokens_are_those_that_the_model_made() -> None:
    from quant.compare_logits import OpenVocab

    for conversation in read_conversations([str(RUNS)]):
        with OpenVocab(str(BUNDLED), "tadpole") as vocab:
            template = read_header(BUNDLED).text("tokenizer.chat_template")
            chat = ChatFormat(template, bos=vocab.bos, ends=vocab.ends)
            passage, rendered = read_passage(conversation, chat, vocab)
            said = [token for token, kind in zip(passage.tokens, passage.kinds, strict=True) if kind == SAID]
            assert [end - begin for begin, end in rendered.turns] == [
                step.turn.usage.completion_tokens for step in conversation.steps
            ]
            assert len(said) == sum(step.turn.usage.completion_tokens for step in conversation.steps)
            n_prefix = passage.kinds.index(HEARD)
            assert set(passage.kinds[:n_prefix]) == {UNSCORED} and UNSCORED not in passage.kinds[n_prefix:]
            text = b"".join(vocab.piece(token) for token in passage.tokens[n_prefix:])
            assert text.decode().startswith("<|im_start|>user\n" + conversation.user)
            # A turn that was cut is not scored; as the last one it is not even read.
            first, *others, last = conversation.steps
            steps = [replace(first, turn=replace(first.turn, truncated=True)), *others]
            steps.append(replace(last, turn=replace(last.turn, truncated=True)))
            lost, _ = read_passage(replace(conversation, steps=tuple(steps)), chat, vocab)
            (begin, end), *_, (last_begin, _) = rendered.turns
            assert lost.tokens == passage.tokens[:last_begin]
            assert set(lost.kinds[begin:end]) == {UNSCORED} and lost.kinds[end:] == passage.kinds[end:last_begin]


@pytest.mark.slow
def test_the_command(coarse: Path, tmp_path: Path) -> None:
    from PIL import Image

    frog, runs, plot = Frog(tmp_path), tmp_path / "runs", tmp_path / "plot.png"
    runs.mkdir()
    (runs / "good.jsonl").write_bytes((RUNS / "tadpole-1.jsonl").read_bytes())
    (runs / "broken.jsonl").write_text("{not json\n")
    words = ["model", "compare", "tadpole", coarse, "--trajectories", runs, "--prompts", "2", "--turn-tokens", "48"]
    made = frog(*words, "--plot", plot)
    assert made.code == 0, made.err
    assert max(map(len, made.out.splitlines())) <= WIDTH
    assert "broken.jsonl, line 1: not a line of a trajectory" in made.out.replace("\n", " ")
    assert "\nUse A, tadpole: " in made.out and f"Plot: {plot}" in made.out
    assert "tokens read: " in made.err and "turns made: 4 of 4" in made.err
    with Image.open(plot) as image:
        image.load()
        assert (image.format, image.size) == ("PNG", (1200, 640))
        assert len(image.getcolors(1 << 20) or ()) > 10
    answer = frog(*words, "--prompts", "0", "--json").json
    assert sorted(answer) == [
        "a", "b", "context_tokens", "error", "logits", "n_conversations", "notes", "plot", "recommendation",
        "stability", "vocabulary_difference",
    ]  # fmt: skip
    assert answer["error"] is None and answer["recommendation"]["use"] == "a"
    assert answer["logits"]["said"]["kl"]["low"] < answer["logits"]["said"]["kl"]["value"]
    assert Path(answer["plot"]).is_relative_to(tmp_path / "cache") and Path(answer["plot"]).is_file()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["tadpole", "no-such"], 1, "there is no model no-such"),
        (["tadpole", "tadpole", "--trajectories", "/no/such"], 2, "/no/such"),
        (["tadpole", "tadpole", "--prompts", "many"], 2, "many"),
        (["tadpole", "tadpole", "--context", "9000"], 2, "The largest is 8192."),
        (["tadpole", "tadpole", "--turn-tokens", "8192"], 2, "leave nothing"),
        (["tadpole", "tadpole", "--plot", "/no/such/plot.png"], 2, "is no folder"),
        (["tadpole"], 2, "required: B"),
    ],
)
def test_what_cannot_be_right(
    words: list[str], code: int, says: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    assert main(["model", "compare", *words, "--json"]) == code
    error = json.loads(capfdbinary.readouterr().out)["error"]
    assert says in error["message"] + error["hint"]


@pytest.mark.slow
def test_an_interrupt_ends_it_and_leaves_nothing(tmp_path: Path) -> None:
    frog = Frog(tmp_path)
    process = frog.start("model", "compare", "tadpole", "tadpole", "--seeds", "1", "--tokens", "60000")
    children: list[psutil.Process] = []
    end = time.monotonic() + 60
    while not children and time.monotonic() < end:
        children = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert b"interrupted" in err
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
