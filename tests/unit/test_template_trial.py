"""Chat templates that run for ever, fill the memory or nest without end are refused in a sentence, in seconds."""

from __future__ import annotations

import contextlib
import time

import pytest

from agent.errors import ModelFileError
from agent.model.chat_format import ChatFormat
from agent.model.chat_template import Template
from agent.model.template_process import TemplateProcess
from agent.model.template_trial import TRIAL_CPU_S, try_template
from agent.types import Observation
from tests.model.tiny import TEMPLATE

LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
LATE = "{% if messages | length > 5 %}" + LOOP + "{% endif %}"
HOSTILE = {
    "loops": (LOOP, "does not come to its end"),
    "loops in a later turn": (LATE, "does not come to its end"),
    "a range too large": ("{% for a in range(10**9) %}x{% endfor %}", "cannot be used"),
    "doubling": (
        "{% set ns = namespace(x='x') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "cannot be used|fills the memory",
    ),
    "a long text": ("{{ 'x' * 50000000 }}", "50,000,"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    "deep nesting": ("{% if 1 %}" * 3000 + "{% endif %}" * 3000, "cannot be used|broke the process|fills the memory"),
    "a power": ("{{ 9 ** (9 ** 9) }}", "does not come to its end|cannot be used"),
    "another object": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "cannot be used"),
    "a division": ("{{ 1 // 0 }}", "cannot be used"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_templates_end_with_a_clear_error(what: str) -> None:
    hostile, message = HOSTILE[what]
    began = time.monotonic()
    with pytest.raises(ModelFileError, match=message) as caught:
        try_template(hostile + TEMPLATE)
    assert caught.value.hint
    assert time.monotonic() - began < 6 * TRIAL_CPU_S


@pytest.mark.slow
def test_a_template_that_waits_for_its_moment_is_stopped_then_and_the_next_text_is_right() -> None:
    moment = "{% if messages[0].content == 'now' %}"
    loops, long = moment + LOOP + "{% endif %}", "{% if messages[0].content == 'long' %}{{ 'x' * 5000000 }}{% endif %}"
    try_template(long + loops + TEMPLATE)
    with contextlib.closing(TemplateProcess(long + loops + TEMPLATE)) as process:
        chat = ChatFormat("any", renderer=process)
        before = chat.suffix([Observation(tool="Read", text="x")])

        def render(content: str) -> str:
            return process.render({"messages": [{"role": "user", "content": content}], "tools": None})

        for content, message in (("now", f"does not come to its end in {TRIAL_CPU_S} s"), ("long", r"5,00\d,\d")):
            with pytest.raises(ModelFileError, match=message) as caught:
                render(content)
            assert caught.value.hint
            assert "then" in render("then")
            assert chat.suffix([Observation(tool="Read", text="x")]) == before


def test_what_was_rendered_is_kept_and_is_what_the_template_gives() -> None:
    variables = {"messages": [{"role": "user", "content": "ä\udc80"}], "tools": None, "add_generation_prompt": True}
    with contextlib.closing(TemplateProcess(TEMPLATE)) as process:
        text = process.render(variables)
        assert text == Template(TEMPLATE).render(variables) and "ä\udc80" in text
        process.close()
        assert process.render(variables) == text  # with nobody to ask
        assert process.render({**variables, "add_generation_prompt": False}) != text  # one is started again


def test_a_good_template_passes_and_is_tried_once() -> None:
    try_template(TEMPLATE)
    began = time.process_time()
    try_template(TEMPLATE)
    assert time.process_time() - began < 0.05


@pytest.mark.parametrize(
    ("template", "message"),
    [(None, "base model"), ("{% for m in messages %}{{ m.content }}{% endfor %}", "knows no tools")],
)
def test_the_words_are_those_of_the_format(template: str | None, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        try_template(template)
