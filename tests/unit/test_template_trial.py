"""Chat templates that run for ever, fill the memory or nest without end are refused in a sentence, in seconds."""

from __future__ import annotations

import time

import pytest

from agent.errors import ModelFileError
from agent.model.template_trial import TRIAL_CPU_S, try_template
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
    "deep nesting": ("{% if 1 %}" * 3000 + "{% endif %}" * 3000, "cannot be used|broke its trial|fills the memory"),
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
