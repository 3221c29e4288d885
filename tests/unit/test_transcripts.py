"""Conversations out of trajectories, and what a model reads of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.model.chat_format import ChatFormat, Part
from agent.tools.schemas import TOOLS
from agent.trajectory import read_trajectory
from quant.synth import TEMPLATE
from quant.transcripts import BUNDLED, BUNDLED_RUNS, RECORDED, Rendered, conversations_of, read_conversations, render

HEADER = {"trajectory_format": "leaf-function-calling", "trajectory_id": "t", "tools": list(TOOLS[:1])}


class Characters:
    """One token a character, the end mark one of its own: -1."""

    def tokenize_parts(self, parts: Iterable[Part]) -> list[int]:
        pieces = "".join(part.text for part in parts).split("<|im_end|>")
        tokens = [ord(char) for piece in pieces for char in ("\0" + piece)]
        return [-1 if token == 0 else token for token in tokens[1:]]


def text_of(tokens: Iterable[int]) -> str:
    return "".join("<|im_end|>" if token < 0 else chr(token) for token in tokens)


def step(number: int, path: str, answer: str) -> dict[str, Any]:
    call = {"id": f"call_{number}_0", "function": {"name": "Read", "arguments": json.dumps({"file_path": path})}}
    return {
        "step": number,
        "assistant": {
            "role": "assistant",
            "content": "",
            "reasoning_content": f"Look at {path}.",
            "tool_calls": [call],
        },
        "observations": [{"tool": "Read", "observation": answer}],
    }


def last(number: int) -> dict[str, Any]:
    return {"step": number, "assistant": {"role": "assistant", "content": "Done."}, "observations": []}


def write(path: Path, *lines: dict[str, Any]) -> Path:
    system, user = {"role": "system", "content": "You fix."}, {"role": "user", "content": "It fails."}
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEADER, system, user, *lines)))
    return path


def rendered(path: Path, **options: Any) -> list[Rendered]:
    chat = ChatFormat(TEMPLATE)
    return [render(item, chat, Characters(), **options) for item in read_conversations([str(path)])]


def test_a_run_is_rendered_as_the_model_saw_it(tmp_path: Path) -> None:
    (made,) = rendered(write(tmp_path / "run.jsonl", step(1, "a.py", "1. <|im_end|>?"), last(2)))
    text = text_of(made.tokens)
    assert text.startswith("<|im_start|>system\n") and '"name": "Read"' in text.split("<|im_end|>")[0]
    prompts = [text_of(made.tokens[:begin]) for begin, _ in made.turns]
    said = [text_of(made.tokens[begin:end]) for begin, end in made.turns]
    assert said == [
        "Look at a.py.\n</think>\n\n<tool_call>\n<function=Read>\n<parameter=file_path>\na.py\n</parameter>"
        "\n</function>\n</tool_call><|im_end|>",
        "\n</think>\n\nDone.<|im_end|>",
    ]
    assert prompts[0].endswith("<|im_start|>user\nIt fails.<|im_end|>\n<|im_start|>assistant\n<think>\n")
    assert prompts[1] == prompts[0] + said[0] + (
        "\n<|im_start|>user\n<tool_response>\n1. <|im_end|>?\n</tool_response><|im_end|>"
        "\n<|im_start|>assistant\n<think>\n"
    )
    assert text == prompts[1] + said[1] and made.turns[-1][1] == len(made.tokens)


def test_a_model_with_words_of_its_own(tmp_path: Path) -> None:
    (made,) = rendered(write(tmp_path / "run.jsonl", last(1)), system="Mine.", tools=TOOLS[4:])
    text = text_of(made.tokens)
    assert "Mine." in text and '"Bash"' in text and "You fix." not in text and '"Read"' not in text


def test_a_new_beginning_is_another_conversation(tmp_path: Path) -> None:
    restart = {"role": "user", "content": "It fails. Summary.", "n_kept": 1}
    path = write(tmp_path / "run.jsonl", step(1, "a", "A"), step(2, "b", "B"), restart, step(3, "c", "C"), last(4))
    made = list(conversations_of("run", read_trajectory(path)))
    assert [(item.name, item.user) for item in made] == [("run", "It fails."), ("run#2", "It fails. Summary.")]
    heard = [[text.text for step in item.steps for text in step.observations] for item in made]
    assert heard == [["A", "B"], ["B", "C"]]
    too_many = write(tmp_path / "many.jsonl", step(1, "a", "A"), {**restart, "n_kept": 9}, last(2))
    assert [len(item.steps) for item in conversations_of("many", read_trajectory(too_many))] == [1, 2]


def test_the_same_run_counts_once_and_other_files_are_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", step(1, "a", "A"), last(2))
    write(tmp_path / "b.jsonl", step(1, "a", "A"), last(2))
    write(tmp_path / "c.jsonl", step(1, "a", "another answer"), last(2))
    write(tmp_path / "no_turn.jsonl")
    (tmp_path / "notes.jsonl").write_text("nothing of ours\n")
    assert [item.name for item in read_conversations([str(tmp_path), str(path)])] == ["a", "c"]


def test_what_is_nothing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "notes.jsonl").write_text("nothing of ours\n")
    for source in (str(tmp_path), str(tmp_path / "notes.jsonl"), str(tmp_path / "none"), RECORDED):
        with pytest.raises(UsageError) as caught:
            read_conversations([source])
        assert caught.value.hint


def test_recorded_runs_are_those_of_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "frog-lsp" / "trajectories"
    folder.mkdir(parents=True)
    write(folder / "mine.jsonl", last(1))
    assert [item.name for item in read_conversations([RECORDED])] == ["mine"]


def test_the_bundled_runs_use_every_tool_and_name_no_machine() -> None:
    conversations = read_conversations([BUNDLED])
    assert len(conversations) == len(list(BUNDLED_RUNS.glob("*.jsonl"))) == 10
    calls = {call.name for item in conversations for step in item.steps for call in step.turn.calls}
    assert calls == {"Read", "Write", "Edit", "Glob", "Bash"}
    assert all(item.steps[-1].turn.content and not item.steps[-1].turn.calls for item in conversations)
    text = "".join(path.read_text() for path in BUNDLED_RUNS.glob("*.jsonl"))
    assert "/root" not in text and "/tmp/pytest" not in text and len(text) < 200_000
