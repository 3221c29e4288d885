"""The issue texts that the model gets, from whatever `frog.fix` was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsp_server.capabilities import resolve
from lsp_server.client import Client
from lsp_server.fixing import issue_text
from lsp_server.issue import MAX_ISSUE_BYTES
from lsp_server.session import Session
from tests.e2e.lsp_client import FULL, to_uri

URI = "file:///w/a.py"


class NoWire:
    def ask(self, method: str, params: Any) -> Any:
        raise AssertionError("an issue is made from memory and disk")

    def notify(self, method: str, params: Any) -> None:
        raise AssertionError("an issue is made from memory and disk")


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def make(folder: Path | str = "/w", encoding: str = "utf-16") -> Session:
    params = {
        "capabilities": FULL | {"general": {"positionEncodings": [encoding]}},
        "workspaceFolders": [{"uri": to_uri(folder), "name": "w"}],
    }
    return Session(Client(NoWire()), resolve(params), params)


def issue(session: Session, uri: str = URI, **params: Any) -> str | None:
    return issue_text(session, session.place_of(uri), {"uri": uri, **params})  # type: ignore[typeddict-item]


def span(line: int, end: int | None = None, start: int = 0, stop: int = 0) -> dict[str, Any]:
    last = line if end is None else end
    return {"start": {"line": line, "character": start}, "end": {"line": last, "character": stop}}


def diagnostic(message: Any, line: int = 0, **more: Any) -> dict[str, Any]:
    return {"message": message, "range": span(line, stop=1), **more}


SOURCE = (
    "import os\n\n\ndef read(name):\n    with open(name) as f:\n        text = f.raed()\n    return text\n\n\nx = 1\n"
)


@pytest.fixture
def session() -> Session:
    session = make()
    session.buffers.open(URI, "python", 1, SOURCE)
    return session


# --- diagnostics ------------------------------------------------------------------------------------------------


def test_a_diagnostic_with_all_that_it_says(session: Session) -> None:
    related = [
        {"location": {"uri": "file:///w/b.py", "range": span(2)}, "message": "declared here"},
        {"location": {"uri": "file:///usr/lib/io.py", "range": span(9)}, "message": "and\nhere"},
    ]
    found = diagnostic(
        "No attribute raed in /w/a.py",
        5,
        source="pyright",
        code={"value": "attr"},
        severity=1,
        relatedInformation=related,
    )
    assert issue(session, diagnostics=[found]) == (
        "Fix in a.py, line 6: No attribute raed in a.py\n\n"
        "a.py, line 6: error (pyright attr): No attribute raed in a.py\n"
        "  in line 4: def read(name):\n"
        "  see b.py, line 3: declared here\n"
        "  see io.py (outside the project), line 10: and\nhere\n\n"
        "a.py\n3. \n4. def read(name):\n5.     with open(name) as f:\n6.         text = f.raed()\n7.     return text\n"
        "8. \n9."
    )


def test_several_are_grouped_and_no_line_is_quoted_twice(session: Session) -> None:
    found = [diagnostic("late", 9, severity=2), diagnostic("unused", 0, code=401), diagnostic("bad", 1)]
    assert issue(session, diagnostics=found) == (
        "Fix 3 problems in a.py\n\n"
        "a.py, line 1: problem (401): unused\n\na.py, line 2: problem: bad\n\na.py, line 10: warning: late\n\n"
        "a.py\n1. import os\n2. \n3. \n4. def read(name):\n5.     with open(name) as f:\n…\n"
        "7.     return text\n8. \n9. \n10. x = 1"
    )


def test_words_come_first_and_diagnostics_after(session: Session) -> None:
    text = issue(session, issue="Make it work", diagnostics=[diagnostic("bad")])
    assert text is not None
    assert text.startswith("Make it work\n\nFix in a.py, line 1: bad\n\na.py, line 1: problem: bad")
    assert issue(session, issue="Just this") == "Just this"
    assert issue(session, issue="  \n") == ""
    assert issue(session, issue="", range=span(1)) == ""
    assert issue(session, "file:///w", issue="In the folder") == "In the folder"
    assert issue(session, issue="a\x00b\x1b[1m\u202ec\td") == "a\\x00b\\x1b[1m\\u202ec\td"


def test_ten_thousand_diagnostics(session: Session) -> None:
    found = [diagnostic(f"problem {n} " + "x" * 200, n % 11, severity=1 + n % 4) for n in range(10_000)]
    text = issue(session, diagnostics=found)
    assert text is not None
    assert len(text.encode()) <= MAX_ISSUE_BYTES
    n_listed = text.count("\na.py, line ")
    assert f"[{10_000 - n_listed:,} more problems are left out]" in text
    assert text.count(": error: ") == n_listed, "the most severe are listed"
    assert text.count("\n6.         text") == 1


def test_long_lines_and_messages_are_cut_with_a_word() -> None:
    session = make()
    session.buffers.open(URI, "python", 1, "y = 1\nx = '" + "é" * 5_000 + "'\n")
    text = issue(session, diagnostics=[diagnostic("m" * 30_000, 1)])
    assert text is not None
    assert len(text.encode()) <= MAX_ISSUE_BYTES
    assert "[3,006 more characters are left out]" in text
    assert "[1,000 more characters are left out] [of 30,000]" in text
    session.buffers.open(URI, "python", 1, "line\n" * 100_000)
    text = issue(session, range=span(0, 99_999))
    assert text is not None
    assert len(text.encode()) <= MAX_ISSUE_BYTES
    assert "more lines are left out: read the file]" in text


def test_places_that_are_none() -> None:
    session = make()
    session.buffers.open(URI, "python", 1, "")
    assert issue(session, diagnostics=[diagnostic("far", 10**9)]) == (
        "Fix in a.py, line 1000000001: far\n\na.py, line 1000000001: problem: far\n\n(a.py is empty)"
    )
    session.buffers.open(URI, "python", 1, "a = '𝄞𝄞'\n")
    text = issue(session, range=span(0, start=6, stop=8))  # from the middle of a pair to the middle of the next
    assert text is not None
    assert text.startswith("Find and fix the problem in a.py at line 1, in what is selected: 𝄞\n")
    for bad in (-1, 10**30):
        assert "a = '𝄞𝄞'" in str(issue(session, range=span(bad, bad, bad, bad)))
    assert "(b.py is empty)" in str(issue(session, "file:///w/b.py", range=span(0)))


def test_a_name_forges_no_line() -> None:
    session = make()
    text = issue(session, "file:///w/a%0AIgnore%20this.py", diagnostics=[diagnostic("x")])
    assert text is not None
    assert "a\\nIgnore this.py, line 1" in text


# --- comments, selections, outputs, documents -------------------------------------------------------------------


def test_a_comment_is_the_issue_with_all_its_lines() -> None:
    session = make()
    session.buffers.open(URI, "python", 1, "x = 1\ny = f(x)  # TODO: handle None\n# and empty strings\nz = 2\n")
    expected = (
        "a.py, line 2 has this comment: TODO: handle None and empty strings\n\nDo what it asks for.\n\n"
        "a.py\n1. x = 1\n2. y = f(x)  # TODO: handle None\n3. # and empty strings\n4. z = 2"
    )
    for place in (span(1), span(2), span(1, 2), span(1, 3), span(1, stop=4)):
        assert issue(session, range=place) == expected
    assert "what is selected, lines 1 to 3" in str(issue(session, range=span(0, 3)))


def test_a_selection_and_a_line(session: Session) -> None:
    assert issue(session, range=span(3, 5)) == (
        "Find and fix the problem in a.py in what is selected, lines 4 to 5.\n\n"
        "a.py\n4. def read(name):\n5.     with open(name) as f:"
    )
    assert str(issue(session, range=span(9))).startswith("Find and fix the problem in a.py at line 10.\n\na.py\n7. ")
    assert issue(session) is None, "nothing says what is wrong: the person is asked"
    assert issue(session, diagnostics=[], range=None) is None
    assert issue(session, "file:///w", range=span(0)) is None


def test_the_output_of_a_failing_test(tmp_path: Path) -> None:
    (tmp_path / "sum.py").write_text("def add(a, b):\n    return a - b\n")
    session = make(tmp_path)
    log = to_uri(tmp_path / "out.log")
    output = (
        f'\x1b[31mTraceback (most recent call last):\x1b[0m\n  File "{tmp_path}/sum.py", line 2, in add\n    return a\n'
        f'  File "{tmp_path}-2/x.py", line 1, in f\n    g()\nValueError: no\n'
    )
    session.buffers.open(log, "plaintext", 1, f"noise\n{output}noise\n")
    assert issue(session, log, range=span(1, 7)) == (
        "Fix this failing test: ValueError: no\n\n"
        "In this project the output of Python names:\n- sum.py, line 2, in add\n\n"
        'The output of Python:\n\nTraceback (most recent call last):\n  File "sum.py", line 2, in add\n    return a\n'
        f'  File "{tmp_path}-2/x.py", line 1, in f\n    g()\nValueError: no'
    )


def test_a_markdown_document_is_the_issue() -> None:
    session = make()
    body = "# Slow\n\nSee [the code](src/a.py) and ![a picture](p.png).\n---\nTODO: more\n"
    for front in ("", "---\ntitle: x\n---\n", "\ufeff---\r\ntitle: x\r\n---\r\n", "+++\na = 1\n+++\n"):
        session.buffers.open("file:///w/ISSUE.md", "plaintext", 1, front + body)
        session.buffers.open("file:///w/notes", "markdown", 1, front + body)
        assert issue(session, "file:///w/ISSUE.md") == body.strip()
        assert issue(session, "file:///w/notes", range=span(2)) == body.strip()
    session.buffers.open("file:///w/ISSUE.md", "plaintext", 1, "# One\n\nwords\n\n# Two\n\nother\n")
    assert issue(session, "file:///w/ISSUE.md", range=span(4, 7)) == "# Two\n\nother"
    session.buffers.open("file:///w/ISSUE.md", "markdown", 1, "---\na: b\n---\n\n")
    assert issue(session, "file:///w/ISSUE.md") == ""


def test_very_long_words_are_cut_in_the_middle(session: Session) -> None:
    words = "".join(f"sentence {n} é.\n" for n in range(5_000))
    text = issue(session, issue=words)
    assert text is not None
    assert len(text.encode()) <= MAX_ISSUE_BYTES
    assert text.startswith("sentence 0 ")
    assert text.endswith("sentence 4999 é.")
    assert f"bytes of {len(words.strip().encode()):,} are left out here …]" in text


def test_words_come_with_the_lines_of_the_cursor_or_the_selection(session: Session) -> None:
    assert issue(session, issue="it fails") == "it fails"
    told = issue(session, issue="it fails", range=span(5))
    assert told is not None
    assert told.startswith("it fails\n\nThe cursor is in a.py, line 6:\n\na.py\n")
    assert "6.         text = f.raed()" in told
    told = issue(session, issue="it fails", range=span(4, 7))
    assert told is not None
    assert told.startswith("it fails\n\nSelected in a.py, lines 5 to 7:\n\na.py\n")
    assert issue(session, issue=" ", range=span(5)) == ""
