"""The table, the object and the picture of a comparison, from values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from agent.model.gguf_header import GgufHeader
from agent.model.locate import ModelFile
from agent.model.model_facts import ModelFacts
from agent.model.sampling import Sampling
from quant.compare import Comparison, Side
from quant.compare_advice import Advice
from quant.compare_metrics import TokenScores, agreement
from quant.compare_plot import HEIGHT, WIDTH, draw, exceedance
from quant.compare_report import comparison_json, report
from quant.compare_stability import Stability
from quant.compare_turns import Prompt, Tally, Verdict

GOOD = {"parses": True, "real_tool": True, "all_arguments": True, "repeats": False, "capped": False, "no_call": False}

TABLE = """\
A  big                                                                   4.62 GB
B  …model-with-a-name-that-is-longer-than-a-line-of-a-table-has-got      0.28 GB

Probabilities, over 5,120 tokens of 1 conversation
                                             it writes                  it reads
tokens                                             128                        64
KL of B to A, nats a token   0.01500 (0.01000–0.02000)                   2.0e-05
  median                                       0.01500                   2.0e-05
  99 of 100 are below                          0.02000                   2.0e-05
same first choice                   50.0 % (41.5–58.5)      100.0 % (94.3–100.0)
perplexity of A                                  2.718                   1484.13
perplexity of B                                  4.482                   1484.13
  B over A                         1.649 (1.649–1.649)                     1.000

Turns: 2 prompts x 1 seed, at most 1,024 tokens each
                          A, raw     A, repaired          B, raw     B, repaired
can be read       100 % (34–100)  100 % (34–100)     50 % (9–91)  100 % (34–100)
a real tool       100 % (34–100)  100 % (34–100)     50 % (9–91)     50 % (9–91)
all arguments     100 % (34–100)  100 % (34–100)     50 % (9–91)     50 % (9–91)
repeats itself        0 % (0–66)      0 % (0–66)      0 % (0–66)      0 % (0–66)
hits the cap          0 % (0–66)      0 % (0–66)      0 % (0–66)      0 % (0–66)
no call               0 % (0–66)      0 % (0–66)     50 % (9–91)     50 % (9–91)
In brackets: intervals of 95 %. Raw: without the repair of calls while they are
written (model.repairCalls); repaired: with it, as runs have it.

Note: Something a person should know.

Use A, big: because.

Plot: /tmp/p.png
"""


def scores(kl: list[float], same: bool, nll_a: float, nll_b: float) -> TokenScores:
    n = len(kl)
    return TokenScores(
        kl=np.array(kl),
        same_top=np.array([same, True] * (n // 2)),
        nll_a=np.full(n, nll_a),
        nll_b=np.full(n, nll_b),
    )


def side(name: str, size: int) -> Side:
    header = GgufHeader(path="/m", size_bytes=size, tensor_bytes=size, n_tensors=1, metadata={}, lengths={})
    facts = ModelFacts(template="", is_demonstration=False, system_prompt=None, tools=None, sampling=Sampling())
    return Side(file=ModelFile(path=f"/m/{name}", name=name, kind="file"), header=header, facts=facts)


def tally(*verdicts: Verdict) -> Tally:
    made = Tally()
    for i, verdict in enumerate(verdicts):
        made.add(Prompt(conversation=0, step=i), verdict)
    return made


@pytest.fixture
def found() -> Comparison:
    good = Verdict(**GOOD)
    silent = Verdict(**{**GOOD, "real_tool": False, "all_arguments": False, "no_call": True})
    unread = Verdict(**{**GOOD, "parses": False, "real_tool": False, "all_arguments": False, "no_call": True})
    said, heard = (
        [scores([0.01] * 64 + [0.02] * 64, False, 1.0, 1.5)],
        [scores([2e-5] * 64, True, 7.3025852, 7.3025852)],
    )
    return Comparison(
        a=side("big", 4_620_000_000),
        b=side("this-is-a-model-with-a-name-that-is-longer-than-a-line-of-a-table-has-got", 280_000_000),
        n_conversations=1,
        context_tokens=8192,
        turn_tokens=1024,
        seeds=range(1, 2),
        n_prompts=2,
        n_read_tokens=5120,
        said=agreement(said),
        heard=agreement(heard),
        said_scores=said,
        heard_scores=heard,
        stability=(
            Stability(raw=tally(good, good), repaired=tally(good, good)),
            Stability(raw=tally(good, unread), repaired=tally(good, silent), n_repaired_turns=1),
        ),
        advice=Advice(use="a", sentence="Use A, big: because."),
        notes=["Something a person should know."],
    )


def test_the_table(found: Comparison) -> None:
    assert report(found, "/tmp/p.png") == TABLE


def test_the_object(found: Comparison) -> None:
    value = json.loads(json.dumps(comparison_json(found, None), allow_nan=False))
    assert value["a"] == {"name": "big", "path": "/m/big", "size_bytes": 4_620_000_000}
    assert value["logits"]["said"]["kl"] == {
        "value": pytest.approx(0.015),
        "low": pytest.approx(0.01),
        "high": pytest.approx(0.02),
    }
    assert value["logits"]["heard"]["kl"]["low"] is None
    assert value["stability"]["seeds"] == [1]
    assert value["stability"]["b"]["n_repaired_turns"] == 1
    raw = value["stability"]["b"]["raw"]
    assert (raw["n_turns"], raw["parses"]["value"], raw["no_call"]["value"]) == (2, 0.5, 0.5)
    assert value["recommendation"] == {"use": "a", "sentence": "Use A, big: because."}
    assert value["notes"] == ["Something a person should know."] and value["plot"] is None


def colours_of(path: Path) -> set[tuple[int, int, int]]:
    with Image.open(path) as image:
        assert (image.format, image.size) == ("PNG", (WIDTH, HEIGHT))
        return {colour for _, colour in image.getcolors(1 << 20) or ()}  # type: ignore[misc]


def test_the_picture(found: Comparison, tmp_path: Path) -> None:
    bars, curve = (0x2B, 0x6C, 0xA3), (0x6F, 0x9A, 0x3C)
    draw(found, tmp_path / "whole.png")
    assert {bars, curve} <= colours_of(tmp_path / "whole.png")
    found.n_prompts = 0
    draw(found, tmp_path / "logits.png")
    assert (0xD9, 0x77, 0x2B) not in colours_of(tmp_path / "logits.png")
    found.n_prompts, found.said, found.heard, found.difference = 2, None, None, "they differ"
    draw(found, tmp_path / "turns.png")
    assert curve not in colours_of(tmp_path / "turns.png")
    assert "they differ" in report(found, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logits.png", "turns.png", "whole.png"]


def test_the_curve() -> None:
    assert exceedance(np.array([0.001, 0.1, 0.1, 10.0]), -4, 2, n_points=7) == [
        (-4.0, 1.0), (-3.0, 0.75), (-2.0, 0.75), (-1.0, 0.25), (0.0, 0.25), (1.0, 0.0), (2.0, 0.0),
    ]  # fmt: skip
    assert exceedance(np.zeros(0), -4, 2) == []
