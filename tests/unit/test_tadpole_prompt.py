"""What the tiny model was trained to read: pinned, since it knows these strings as whole tokens."""

import json
from pathlib import Path
from random import Random

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from quant.tadpole import prompt, trajectory
from quant.tadpole.generator import sample

MODEL = Path(prompt.__file__).parents[2] / "agent" / "model" / "data" / "tadpole.gguf"
PREFIX_SHA256 = "016cab680caa13e7404f41aa4f03c7dd4bbaac4f272b049cef236832d8d1b708"


def _call(name: str, **arguments: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def test_the_system_turn_is_the_one_of_the_training() -> None:
    assert prompt.prefix_hash() == PREFIX_SHA256


@pytest.mark.parametrize(
    "environment",
    [
        jinja2.Environment(),
        jinja2.Environment(trim_blocks=True, lstrip_blocks=True),
        ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True),
    ],
)
def test_every_renderer_gives_the_same_system_turn(environment: jinja2.Environment) -> None:
    environment.globals["raise_exception"] = pytest.fail
    messages = [{"role": "system", "content": prompt.SYSTEM_PROMPT}]
    made = environment.from_string(prompt.TEMPLATE).render(messages=messages, tools=prompt.TOOLS)
    assert made == prompt.prefix()


def test_the_template_writes_what_training_wrote() -> None:
    made = sample(3, "name")
    spans = trajectory.conversation(made, Random(1), plain=True)
    observations = [span.text.split("<tool_response>\n")[1].split("\n</tool_response>")[0] for span in spans[2::2]]
    edit = _call("Edit", file_path=made.path, old_string=made.old, new_string=made.new)
    said = [
        ("Read the file.", [_call("Read", file_path=made.path)]),
        (made.think, [edit]),
        ("Run the tests.", [_call("Bash", command=made.test_command)]),
    ]
    messages: list[dict[str, object]] = [
        {"role": "system", "content": prompt.SYSTEM_PROMPT},
        {"role": "user", "content": made.issue},
    ]
    for (think, calls), observation in zip(said, observations, strict=True):
        messages.append({"role": "assistant", "content": "", "reasoning_content": think, "tool_calls": calls})
        messages.append({"role": "tool", "content": observation})
    last = f"Fixed {made.path}; the tests pass."
    messages.append({"role": "assistant", "content": last, "reasoning_content": "The tests pass."})
    assert prompt.render(messages) == prompt.prefix() + "".join(span.text for span in spans) + "\n"


def test_tool_messages_in_a_row_share_a_user_turn_and_bad_roles_are_refused() -> None:
    calls = [_call("Glob", pattern="*.py"), _call("Glob", pattern="*.md")]
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "Two.", "tool_calls": calls},
        {"role": "tool", "content": "a.py"},
        {"role": "tool", "content": "b.md"},
    ]
    text = prompt.render(messages, generate=True)
    assert "Two.\n\n<tool_call>\n<function=Glob>\n<parameter=pattern>\n*.py\n</parameter>" in text
    assert "</tool_call>\n<tool_call>" in text
    assert text.endswith(
        "<|im_start|>user\n<tool_response>\na.py\n</tool_response>\n<tool_response>\nb.md\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )
    with pytest.raises(ValueError, match="Unknown role"):
        prompt.render([{"role": "judge", "content": ""}])


@pytest.mark.skipif(not MODEL.exists(), reason="the model file is not there")
def test_the_model_file_carries_the_same_strings() -> None:
    gguf = pytest.importorskip("gguf")
    fields = gguf.GGUFReader(str(MODEL)).fields

    def text(key: str) -> str:
        return bytes(fields[key].parts[fields[key].data[0]]).decode()

    assert MODEL.stat().st_size <= 16 * 1024 * 1024
    assert text("general.architecture") == "qwen35"
    assert text("frog.kind") == "demonstration"
    assert text("frog.system_prompt") == prompt.SYSTEM_PROMPT
    assert json.loads(text("frog.tools")) == prompt.TOOLS
    assert json.loads(text("frog.sampling")) == {"temperature": 0.0}
    assert text("tokenizer.chat_template") == prompt.TEMPLATE
