"""Errors in one line: whatever a message ends with, the hint is a sentence of its own."""

from __future__ import annotations

import pytest

from agent.errors import UsageError


@pytest.mark.parametrize(
    ("message", "hint", "line"),
    [
        ("it is a base model", "Use another.", "it is a base model. Use another."),
        ("The file is gone.", "Look.", "The file is gone. Look."),
        ("what is this?", "Say it.", "what is this? Say it."),
        ("nothing to do", "", "nothing to do"),
    ],
)
def test_a_hint_is_a_sentence_of_its_own(message: str, hint: str, line: str) -> None:
    assert UsageError(message, hint).in_one_line == line
