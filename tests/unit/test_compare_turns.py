"""How a turn is judged, which turns are asked for, and what is recommended."""

from __future__ import annotations

from typing import Any

import pytest

from agent.model.tool_calls import parse
from agent.observations import with_nudge
from agent.tools.schemas import TOOLS
from agent.trajectory import Step
from agent.types import Forced, ToolCall, Turn
from quant.compare_advice import Candidate, advise, judge_calls
from quant.compare_metrics import Agreement, Estimate, wilson
from quant.compare_turns import (
    MEASURES,
    Prompt,
    Tally,
    Verdict,
    choose_prompts,
    judge,
    required_arguments,
    was_repaired,
)
from quant.transcripts import Conversation

GOOD = {"parses": True, "real_tool": True, "all_arguments": True, "repeats": False, "capped": False, "no_call": False}

NOTHING = {"parses": False, "real_tool": False, "all_arguments": False, "no_call": True}


def call(name: str, **values: str) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def turn(text: str, *, finish: Any = "stop", forced: tuple[str, ...] = ()) -> Turn:
    """What the worker's client makes of a text."""
    raw = f"Look.\n</think>\n\n{text}"
    parsed = parse(raw, finish=finish, tools=TOOLS)
    return with_nudge(
        Turn(
            calls=parsed.calls,
            problems=parsed.problems,
            truncated=parsed.truncated,
            raw=raw,
            forced=tuple(Forced(kind=kind, text="", n_tokens=0) for kind in forced),
        )
    )


@pytest.mark.parametrize(
    ("made", "differs"),
    [
        (turn(call("Read", file_path="a.py")), {}),
        (turn(call("Read", file_path="a.py", offset="3") + call("Bash", command="ls")), {}),
        (turn(call("read_file", file_path="a.py")), {"real_tool": False, "all_arguments": False}),
        (turn(call("Edit", file_path="a.py", old_string="x")), {"all_arguments": False}),
        (turn(call("Read", file_path="a.py", offset="three")), {"all_arguments": False}),
        (turn(call("Read", file_path="a") + "<tool_call>\n???\n</tool_call>"), {"parses": False}),
        (
            turn("<tool_call>\n???\n</tool_call>"),
            NOTHING,
        ),
        (turn("It is done."), {"real_tool": False, "all_arguments": False, "no_call": True}),
        (
            turn(call("Read", file_path="a.py"), finish="length"),
            NOTHING | {"capped": True},
        ),
        (
            turn("the same line\n" * 40, finish="length"),
            NOTHING | {"capped": True, "repeats": True},
        ),
        (
            turn("round and round", finish="length", forced=("answer_repeats",)),
            NOTHING | {"repeats": True},
        ),
        (turn(call("Read", file_path="a.py"), forced=("thought_repeats",)), {"repeats": True}),
        (turn(call("Read", file_path="a.py"), forced=("thought_limit",)), {}),
    ],
)  # fmt: skip
def test_a_turn_is_judged(made: Turn, differs: dict[str, bool]) -> None:
    assert judge(made, TOOLS) == Verdict(**{**GOOD, **differs})


def test_what_the_guard_changed() -> None:
    assert was_repaired(turn("x", forced=("close",))) and was_repaired(turn("x", forced=("thought_limit", "name")))
    assert not was_repaired(turn("x", forced=("thought_limit",))) and not was_repaired(turn("x"))


def test_required_arguments_come_from_the_schemas() -> None:
    assert required_arguments(TOOLS) == {
        "Read": ("file_path",),
        "Write": ("file_path", "content"),
        "Edit": ("file_path", "old_string", "new_string"),
        "Glob": ("pattern",),
        "Bash": ("command",),
    }
    assert required_arguments([{"name": "odd", "parameters": 3}, {}]) == {"odd": (), "": ()}


def conversation(*calls: bool) -> Conversation:
    made = ToolCall(name="Read", arguments={})
    steps = tuple(Step(turn=Turn(calls=(made,) if calls_ else ()), observations=()) for calls_ in calls)
    return Conversation(name="c", system="s", tools=(), user="u", steps=steps)


def test_prompts_are_places_of_calls_that_fit_both_models_evenly() -> None:
    runs = [conversation(True, True, False), conversation(True, True)]
    fits = [[10, 20, 30], [10, 50]]
    assert choose_prompts(runs, [fits, fits], room=100, most=9) == [
        Prompt(conversation=i, step=k) for i, k in ((0, 0), (0, 1), (1, 0), (1, 1))
    ]
    assert choose_prompts(runs, [fits, fits], room=40, most=9)[-1] == Prompt(conversation=1, step=0)
    assert choose_prompts(runs, [fits, [[10, 200, 300], [10, 50]]], room=100, most=2) == [
        Prompt(conversation=0, step=0),
        Prompt(conversation=1, step=0),
    ]
    assert choose_prompts(runs, [fits, fits], room=5, most=9) == []


def test_seeds_of_one_prompt_count_as_one_trial() -> None:
    tally, bad = Tally(), Verdict(**{**GOOD, "parses": False})
    for seed in range(3):
        tally.add(Prompt(conversation=0, step=0), Verdict(**GOOD))
        tally.add(Prompt(conversation=0, step=1), bad if seed else Verdict(**GOOD))
    assert tally.n_turns == 6
    assert tally.share("parses") == wilson(2 / 3, 2)
    assert set(tally.shares()) == set(MEASURES)


def shares(value: float, n: int, **others: float) -> dict[str, Estimate]:
    values = {
        "parses": value,
        "real_tool": value,
        "all_arguments": value,
        "repeats": 0.0,
        "capped": 0.0,
        "no_call": 0.0,
    }
    return {name: wilson(share, n) for name, share in {**values, **others}.items()}


def agreed(kl: float, high: float | None = None, largest: float = 1.0) -> Agreement:
    share = Estimate(value=0.9, low=0.85, high=0.95)
    return Agreement(
        n_tokens=100, kl=Estimate(value=kl, low=kl, high=kl if high is None else high), kl_median=kl, kl_p99=kl,
        kl_max=largest, top1=share, perplexity_a=2.0, perplexity_b=2.0, ratio=share,
    )  # fmt: skip


def test_the_verdict_on_calls() -> None:
    assert judge_calls(shares(1.0, 60), shares(1.0, 60)) == ("as good", "all_arguments")
    assert judge_calls(shares(1.0, 10), shares(1.0, 10))[0] == "unsure"
    assert judge_calls(shares(0.5, 60), shares(1.0, 60)) == ("worse", "all_arguments")
    assert judge_calls(shares(1.0, 60, repeats=0.4), shares(1.0, 60)) == ("worse", "repeats")
    assert judge_calls(shares(1.0, 60), shares(0.5, 60))[0] == "better"
    assert judge_calls({}, shares(1.0, 60))[0] == "unsure"


@pytest.mark.parametrize(
    ("of_a", "of_b", "said", "use", "why"),
    [
        (shares(1.0, 60), shares(1.0, 60), agreed(0.01), "b", "as good within 10 points, in a file 60 % smaller"),
        (shares(1.0, 60), shares(1.0, 60), None, "b", "as good within 10 points"),
        (shares(1.0, 60), shares(1.0, 60), agreed(0.2), "a", "far from it"),
        (shares(1.0, 60), shares(1.0, 60), agreed(0.04, high=0.06), "a", "far from it"),
        (shares(1.0, 60), shares(0.6, 60), agreed(0.01), "a", "100 % of its turns are complete tool calls, 60 %"),
        (shares(0.6, 60), shares(1.0, 60), agreed(0.2), "b", "a difference beyond chance"),
        (shares(1.0, 10), shares(1.0, 10), agreed(0.01), "b", "too few to tell"),
        (shares(1.0, 10), shares(1.0, 10), agreed(0.2), "a", "too few to tell"),
        (shares(1.0, 10), shares(0.9, 10), None, "a", "too few to tell"),
        ({}, {}, agreed(0.01), "b", "no turns were generated"),
        (shares(1.0, 2), shares(1.0, 2), agreed(0.0, largest=0.0), "b", "every token the same probability"),
        (shares(0.1, 60), shares(0.2, 60), agreed(0.01), None, "Use neither: 10 % of the turns of A and 20 % of those"),
    ],
)  # fmt: skip
def test_the_sentence(of_a: Any, of_b: Any, said: Agreement | None, use: str | None, why: str) -> None:
    a = Candidate(letter="a", name="big", size_bytes=1000, shares=of_a)
    b = Candidate(letter="b", name="small", size_bytes=400, shares=of_b)
    n_prompts = 10 if of_a else 0
    found = advise(a, b, said, n_prompts)
    assert found.use == use
    assert why in found.sentence
    assert found.sentence.startswith({"a": "Use A, big: ", "b": "Use B, small: ", None: "Use neither: "}[use])
    turned = advise(
        Candidate(letter="a", name="small", size_bytes=400, shares=of_b),
        Candidate(letter="b", name="big", size_bytes=1000, shares=of_a),
        said,
        n_prompts,
    )
    assert turned.use == {"a": "b", "b": "a", None: None}[use]  # the order of the names does not matter
