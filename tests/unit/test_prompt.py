"""What the model is told, and the notes about what it was not trained for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.prompt import SYSTEM_PROMPT, PromptFile, load_prompt_file, system_prompt, user_prompt
from agent.remarks import demonstration_notes, file_notes, is_english, issue_notes
from agent.types import Issue

ENGLISH = "When the list is empty, `mean` raises ZeroDivisionError. It should return 0 instead."
CODE = """\
The parser is wrong for this input:

```python
für = [wert for wert in daten if wert is nicht]
```
and it should be fixed.
"""


def test_the_prompt_is_short_and_names_the_workspace() -> None:
    text = system_prompt("/home/me/project {x}")
    assert "/home/me/project {x}" in text
    assert "{workspace}" not in text
    assert len(SYSTEM_PROMPT) < 1_600, "about 400 tokens; with the tools it must stay under 900"


def test_the_issue_is_given_as_it_is() -> None:
    assert user_prompt(Issue(text="  a <b> & c\n\n")) == "a <b> & c"
    again = user_prompt(Issue(text="Fix it."), "I read a.py.")
    assert again.startswith("Fix it.\n\n[")
    assert again.endswith("]\nI read a.py.")


def test_the_title_of_an_issue() -> None:
    assert Issue(text="\n\n  First line  \nsecond").title == "First line"
    assert len(Issue(text="x" * 200).title) == 80


def test_a_prompt_file_as_text_and_as_json(tmp_path: Path) -> None:
    path = tmp_path / "prompt"
    path.write_text("You are {workspace}.\n")
    assert load_prompt_file(str(path)) == PromptFile(system="You are {workspace}.")
    path.write_text(json.dumps({"system": "S", "tools": [{"type": "function"}]}))
    assert load_prompt_file(str(path)) == PromptFile(system="S", tools=({"type": "function"},))
    path.write_text("{not json} but a prompt")
    assert load_prompt_file(str(path)).system == "{not json} but a prompt"


@pytest.mark.parametrize("content", ["", "  \n", '{"tools": []}', '{"system": "x", "tools": [1]}'])
def test_a_bad_prompt_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "prompt"
    path.write_text(content)
    with pytest.raises(UsageError):
        load_prompt_file(str(path))
    with pytest.raises(UsageError):
        load_prompt_file(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ENGLISH, True),
        (CODE, True),
        ("Fix it", True),
        ("TypeError: unsupported operand type(s) for +: 'int' and 'str' in total() at app/sum.py:12", True),
        ("Wenn die Liste leer ist, wird eine Ausnahme geworfen. Das soll nicht passieren.", False),
        ("La fonction ne renvoie pas la bonne valeur pour une liste qui est vide.", False),
        ("La función no devuelve el valor que debe para una lista vacía.", False),
        ("Если список пуст, функция бросает исключение", False),
        ("空のリストを渡すと mean が例外を送出します", False),
        ("A function `de` in les_mots and the la_la module is wrong: it should be an int, not a str.", True),
    ],
)
def test_whether_an_issue_is_english(text: str, expected: bool) -> None:
    assert is_english(text) is expected
    assert bool(issue_notes(text)) is not expected


def test_files_that_are_not_python_are_named() -> None:
    assert file_notes(["a.py", "README.md", "data.json", "Makefile"]) == []
    (note,) = file_notes(["src/a.ts", "b.go", "a.py", "c.rs", "d.java"])
    assert "b.go, c.rs, d.java and 1 more" in note


def test_the_demonstration_model_says_what_it_is_for_where_it_changed_nothing() -> None:
    assert demonstration_notes(changed=True) == []
    (note,) = demonstration_notes(changed=False)
    assert "one-line bugs in small Python files" in note
