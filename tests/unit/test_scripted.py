"""The scripted model: turns from a list, from lines, and from a trajectory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ContextOverflow, ModelFileError, ModelQueryError, ModelUnavailable
from agent.model.scripted import ScriptedModel
from agent.types import Limits, Observation, ToolCall, Turn

RAW = (
    "Look.\n</think>\n\n"
    "<tool_call>\n<function=Read>\n<parameter=file_path>\na.py\n</parameter>\n</function>\n</tool_call>"
)
CALLS = {"reasoning": "Look.", "calls": [{"name": "Read", "arguments": {"file_path": "a.py"}}]}


async def play(path: Path, n: int = 1) -> list[Turn]:
    model = ScriptedModel(str(path))
    info = await model.open(Limits())
    assert (info.kind, info.name) == ("scripted", path.name)
    await model.begin("S", [], "U")
    return [await model.generate((), lambda _: None, lambda *_: None) for _ in range(n)]


def write(path: Path, turns: Any) -> Path:
    path.write_text(json.dumps(turns, ensure_ascii=False), encoding="utf-8")
    return path


async def test_raw_and_plain_turns_say_the_same(tmp_path: Path) -> None:
    first, second = await play(write(tmp_path / "turns.json", [{"raw": RAW}, CALLS]), 2)
    for turn in (first, second):
        assert turn.reasoning == "Look."
        assert [(call.name, dict(call.arguments)) for call in turn.calls] == [("Read", {"file_path": "a.py"})]
    assert first.raw == RAW and second.raw is None
    assert first.calls[0].id != second.calls[0].id


async def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(json.dumps({"raw": RAW}) + "\n\n" + json.dumps({"content": "Done."}) + "\n")
    first, second = await play(path, 2)
    assert first.calls and second.content == "Done." and not second.calls


async def test_the_text_is_streamed(tmp_path: Path) -> None:
    model = ScriptedModel(str(write(tmp_path / "t.json", [{"raw": RAW}])))
    await model.open(Limits())
    await model.begin("S", [], "U")
    pieces: list[str] = []
    await model.generate((), pieces.append, lambda *_: None)
    assert "".join(pieces) == RAW


async def test_a_cut_turn_has_no_calls(tmp_path: Path) -> None:
    for given in ({"raw": RAW, "finish": "length"}, {**CALLS, "finish": "length"}):
        (turn,) = await play(write(tmp_path / "t.json", [given]))
        assert turn.truncated and not turn.calls


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"error": "gone", "kind": "model_unavailable"}, ModelUnavailable),
        ({"error": "full", "kind": "context_overflow"}, ContextOverflow),
        ({"error": "bad"}, ModelQueryError),
    ],
)
async def test_errors(tmp_path: Path, given: dict[str, str], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=given["error"]):
        await play(write(tmp_path / "t.json", [given]))


async def test_the_end_of_the_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelQueryError, match="no turn 2"):
        await play(write(tmp_path / "t.json", [{"content": "x"}]), 2)


async def test_recalled_turns_are_passed_over(tmp_path: Path) -> None:
    model = ScriptedModel(str(write(tmp_path / "t.json", [{"raw": RAW}, {"content": "Done."}])))
    await model.open(Limits())
    await model.begin("S", [], "U")
    turn = Turn(calls=(ToolCall(name="Read", arguments={}),))
    await model.recall(turn, [Observation(tool="Read", text="x")])
    assert (await model.generate((), lambda _: None, lambda *_: None)).content == "Done."


async def test_a_trajectory_is_played(tmp_path: Path) -> None:
    function = {"name": "Read", "arguments": '{"file_path": "a.py"}'}
    assistant = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "type": "function", "function": function}],
    }
    lines = [
        {"trajectory_format": "leaf-function-calling"},
        {"role": "user", "content": "issue"},
        {"step": 1, "assistant": assistant, "observations": []},
        {"step": 2, "assistant": {"role": "assistant", "content": ""}, "raw": RAW},
        {"step": 3, "assistant": {"role": "assistant", "content": "cut"}, "truncated": True},
        {"n_steps": 3, "exit_reason": "agent"},
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    first, second, third = await play(path, 3)
    assert first.calls[0].arguments == {"file_path": "a.py"} == second.calls[0].arguments
    assert third.truncated


@pytest.mark.parametrize(
    "content",
    [
        "",
        "not json",
        "[1]",
        "[{}]",
        '[{"finish": "maybe", "raw": ""}]',
        '[{"calls": [{"x": 1}]}]',
        '[{"raw": "", "delay_s": -1}]',
    ],
)
async def test_bad_files_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content)
    model = ScriptedModel(str(path))
    if not content:
        await model.open(Limits())
        with pytest.raises(ModelQueryError):
            await model.generate((), lambda _: None, lambda *_: None)
        return
    with pytest.raises(ModelFileError) as caught:
        await model.open(Limits())
    assert caught.value.hint


async def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot be read"):
        await ScriptedModel(str(tmp_path / "no.json")).open(Limits())
