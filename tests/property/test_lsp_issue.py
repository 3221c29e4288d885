"""Whatever a client sends gives an issue of bounded size, a code action of one line, and no exception."""

from __future__ import annotations

import unicodedata
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.capabilities import resolve
from lsp_server.client import Client
from lsp_server.failures import recognise
from lsp_server.features.code_action import actions
from lsp_server.fixing import issue_text
from lsp_server.issue import MAX_ISSUE_BYTES
from lsp_server.session import Session
from tests.e2e.lsp_client import FULL
from tests.unit.test_lsp_issue import NoWire

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
NUMBERS = st.integers(-3, 40) | st.integers() | SCALARS
POSITIONS = st.fixed_dictionaries({}, optional={"line": NUMBERS, "character": NUMBERS}) | JSON
RANGES = st.fixed_dictionaries({}, optional={"start": POSITIONS, "end": POSITIONS}) | JSON
URIS = st.sampled_from(["file:///w/b.py", "file:///x", "untitled:1", "http://[", ""]) | st.text()
MESSAGES = (
    st.text() | st.integers(0, 40_000).map(lambda n: "m" * n) | st.fixed_dictionaries({"value": st.text()}) | JSON
)
RELATED = st.fixed_dictionaries(
    {"message": MESSAGES}, optional={"location": st.fixed_dictionaries({"uri": URIS, "range": RANGES}) | JSON}
)
DIAGNOSTICS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "message": MESSAGES,
            "range": RANGES,
            "severity": NUMBERS,
            "code": JSON | st.fixed_dictionaries({"value": SCALARS}),
            "source": JSON,
            "relatedInformation": st.lists(RELATED | JSON, max_size=8) | JSON,
        },
    ),
    max_size=12,
)
PIECES = [
    "x = 1\n",
    "def f():\n",
    "    y\n",
    "\n",
    "\r\n",
    "\r",
    "𝄞",
    "# TODO: a\n",
    '"""',
    "'",
    "/*",
    "E   assert\n",
    "x" * 3_000,
    "Traceback (most recent call last):\n",
    '  File "/w/a.py", line 2, in f\n',
    "\x1b[31m",
    "\ud800",
    "---\n",
    "\ufeff",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
NAMES = st.sampled_from(["a.py", "a.c", "a.md", "a.html", "a", "%0A.py", "%FF.py"])


def session_with(uri: str, text: str) -> Session:
    params = {"capabilities": FULL, "workspaceFolders": [{"uri": "file:///w", "name": "w"}]}
    session = Session(Client(NoWire()), resolve(params), params)
    session.buffers.open(uri, "", 1, text)
    return session


@settings(max_examples=60)
@given(NAMES, TEXTS, DIAGNOSTICS, st.integers(1, 300), st.none() | st.text() | st.just("w" * 40_000))
def test_any_diagnostics_give_a_bounded_text(name: str, text: str, found: Any, n_times: int, words: str | None) -> None:
    uri = f"file:///w/{name}"
    session = session_with(uri, text)
    params: Any = {"uri": uri, "diagnostics": found * n_times, "issue": words}
    made = issue_text(session, session.place_of(uri), params)
    assert made is None or len(made.encode("utf-8")) <= MAX_ISSUE_BYTES


@given(NAMES, TEXTS, RANGES)
def test_any_place_gives_a_bounded_text(name: str, text: str, span: Any) -> None:
    uri = f"file:///w/{name}"
    session = session_with(uri, text)
    params: Any = {"uri": uri, "range": span}
    made = issue_text(session, session.place_of(uri), params)
    assert made is None or len(made.encode("utf-8")) <= MAX_ISSUE_BYTES


@settings(max_examples=40)  # building such values takes most of the time
@given(NAMES, TEXTS, RANGES, DIAGNOSTICS | JSON, JSON)
def test_any_context_gives_titles_of_one_line(name: str, text: str, span: Any, found: Any, only: Any) -> None:
    uri = f"file:///w/{name}"
    for action in actions(session_with(uri, text), uri, span, {"diagnostics": found, "only": only}):
        assert not {unicodedata.category(char) for char in action["title"]} & {"Cc", "Cs", "Zl", "Zp"}
        assert len(action["title"]) <= 80


@given(st.text())
def test_any_text_is_recognised_or_not(text: str) -> None:
    recognise(text)
