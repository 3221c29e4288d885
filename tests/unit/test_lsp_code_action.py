"""Code actions, issue texts, places: what is offered where, and why not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from lsp_server.capabilities import resolve
from lsp_server.client import Client
from lsp_server.features.code_action import actions
from lsp_server.fixing import _issue_text
from lsp_server.session import RefusedError, Session
from lsp_server.uris import child_uri, path_of, relative_to, uri_of
from tests.e2e.lsp_client import FULL, to_uri


class NoWire:
    def ask(self, method: str, params: Any) -> Any:
        raise AssertionError("code actions come from memory")

    def notify(self, method: str, params: Any) -> None:
        raise AssertionError("code actions come from memory")


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def make(*folders: Path | str, capabilities: Any = None, options: Any = None) -> Session:
    params = {
        "capabilities": FULL if capabilities is None else capabilities,
        "workspaceFolders": [{"uri": to_uri(f), "name": "w"} for f in folders] or None,
        "initializationOptions": options,
    }
    return Session(Client(NoWire()), resolve(params), params)


def diagnostic(message: str, line: int = 0, **more: Any) -> dict[str, Any]:
    return {"message": message, "range": span(line), **more}


def span(line: int = 0, end: int | None = None) -> dict[str, Any]:
    return {"start": {"line": line, "character": 0}, "end": {"line": line if end is None else end, "character": 1}}


URI = "file:///w/a.py"


def offered(session: Session, *diagnostics: Any, uri: str = URI, line: int = 0, **context: Any) -> list[Any]:
    return actions(session, uri, span(line), {"diagnostics": list(diagnostics), **context})


def test_one_entry_a_diagnostic_and_one_for_all() -> None:
    session = make("/w")
    found = [diagnostic(f"problem {n}", n, code=n, data={"kept": n}) for n in range(7)]
    made = offered(session, *found)
    assert [action["title"] for action in made] == [
        *(f"Fix with FrogNano: problem {n}" for n in range(5)),
        "Fix all 7 problems here with FrogNano",
    ]
    assert {action["kind"] for action in made} == {"quickfix"}
    assert made[0]["command"]["command"] == "frog.fix"
    assert made[0]["command"]["arguments"] == [{"uri": URI, "range": span(0), "diagnostics": [found[0]]}]
    assert made[5]["command"]["arguments"][0]["diagnostics"] == found
    assert not any("isPreferred" in action or "edit" in action for action in made)


def test_one_diagnostic_has_no_entry_for_all() -> None:
    assert len(offered(make("/w"), diagnostic("x" * 200))) == 1
    assert len(offered(make("/w"), diagnostic("x" * 200))[0]["title"]) <= len("Fix with FrogNano: ") + 60


def test_without_diagnostics_one_rewrite_that_names_a_comment() -> None:
    session = make("/w")
    session.buffers.open(URI, "python", 1, "x = 1\ny = 2  # TODO: handle None\n")
    assert [a["title"] for a in offered(session)] == ["Fix an issue here with FrogNano…"]
    (action,) = offered(session, line=1)
    assert action["title"] == "Fix an issue here with FrogNano… (TODO: handle None)"
    assert action["kind"] == "refactor.rewrite"


def test_nothing_for_an_automatic_trigger_without_diagnostics() -> None:
    assert offered(make("/w"), triggerKind=2) == []
    assert len(offered(make("/w"), diagnostic("x"), triggerKind=2)) == 1
    assert len(offered(make("/w"), triggerKind=1)) == 1


@pytest.mark.parametrize(
    ("only", "n_with", "n_without"),
    [
        (["quickfix"], 1, 0),
        (["refactor"], 0, 1),
        (["refactor.rewrite"], 0, 1),
        (["refactor.extract"], 0, 0),
        (["source.organizeImports"], 0, 0),
        ([""], 1, 1),
        ([], 1, 1),
        (["refactor.rewrite.more"], 0, 0),
        ([5, None], 0, 0),
        ("quickfix", 1, 1),
    ],
)
def test_only(only: Any, n_with: int, n_without: int) -> None:
    session = make("/w")
    assert len(offered(session, diagnostic("x"), only=only)) == n_with
    assert len(offered(session, only=only)) == n_without


def test_the_tag_and_literals_where_they_are_known() -> None:
    tagged = {"textDocument": {"codeAction": {"codeActionLiteralSupport": {}, "tagSupport": {"valueSet": [1]}}}}
    assert offered(make("/w", capabilities=tagged), diagnostic("x"))[0]["tags"] == [1]
    assert "tags" not in offered(make("/w"), diagnostic("x"))[0]
    (command,) = offered(make("/w", capabilities={}), diagnostic("x"))
    assert command["command"] == "frog.fix"
    assert "kind" not in command


@pytest.mark.parametrize(
    ("uri", "options", "reason"),
    [
        (URI, {"trusted": False}, "not trusted"),
        (URI, {"trusted": "yes"}, "malformed"),
        ("file:///w-2/a.py", None, "outside"),
        ("untitled:Untitled-1", None, "save it first"),
        ("vscode-notebook-cell:/w/n.ipynb#c1", None, "notebooks"),
        ("file:///w/n.ipynb", None, "notebooks"),
        ("http://w/a.py", None, "only files"),
        ("file://other/w/a.py", None, "only files"),
    ],
)
def test_refused_with_the_reason(uri: str, options: Any, reason: str) -> None:
    (action,) = offered(make("/w", options=options), diagnostic("x"), uri=uri)
    assert reason in action["disabled"]["reason"]
    assert "command" not in action
    quiet = {"textDocument": {"codeAction": {"codeActionLiteralSupport": {}}}}
    assert offered(make("/w", options=options, capabilities=quiet), diagnostic("x"), uri=uri) == []


def test_home_and_root_are_no_projects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (action,) = offered(make(tmp_path), diagnostic("x"), uri=to_uri(tmp_path / "a.py"))
    assert "home folder" in action["disabled"]["reason"]
    (action,) = offered(make("/"), diagnostic("x"), uri="file:///etc/a.py")
    assert "file system" in action["disabled"]["reason"]


def test_a_setting_turns_them_off() -> None:
    assert offered(make("/w", options={"codeActions": {"enabled": False}}), diagnostic("x")) == []


@pytest.mark.parametrize(
    "context", [None, [], "x", {}, {"diagnostics": 5}, {"diagnostics": [None, {}, {"message": 1}]}]
)
def test_junk_contexts(context: Any) -> None:
    assert len(actions(make("/w"), URI, None, context)) == 1


def test_it_takes_less_than_ten_milliseconds() -> None:
    session = make("/w")
    session.buffers.open(URI, "python", 1, "x = 1\n" * 20_000)
    found = [diagnostic(f"problem {n}", n) for n in range(50)]
    offered(session, *found)
    times = []
    for _ in range(20):
        begun = time.perf_counter()
        offered(session, *found)
        times.append(time.perf_counter() - begun)
    assert min(times) < 0.01


# --- places and URIs --------------------------------------------------------------------------------------------


def test_the_deepest_folder_holds_the_document() -> None:
    session = make("/w", "/w/sub", "/w-2")
    assert session.place_of("file:///w/sub/a.py").folder.path == "/w/sub"
    assert session.place_of("file:///w/sub-2/a.py").relative == "sub-2/a.py"
    assert session.place_of("file:///w-2/a.py").folder.path == "/w-2"
    with pytest.raises(RefusedError, match="outside"):
        session.place_of("file:///w/../x/a.py")
    with pytest.raises(RefusedError, match="no folder is open"):
        make().place_of(URI)


def test_a_folder_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.py").write_text("x\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    session = make(tmp_path / "link")
    assert session.place_of(to_uri(tmp_path / "real" / "a.py")).relative == "a.py"
    session.buffers.open(to_uri(tmp_path / "real" / "a.py"), "python", 1, "y\n")
    assert session.snapshot_buffers(session.folders[0]) == ({"a.py": b"y\n"}, [])


def test_one_file_has_many_spellings() -> None:
    spellings = ["file:///w/%C3%BC.py", "file:///w/%c3%bc.py", "file://localhost/w/ü.py", "file:///w/./x/../ü.py"]
    assert {path_of(uri) for uri in spellings} == {"/w/ü.py"}
    assert path_of("file:///C:/a") == path_of("file:///c%3A/a") == "/c:/a"
    for uri in ("", "x", "file:", "file://", "file:///a%00b", "FILE:relative", "file://[bad/a"):
        assert path_of(uri) is None or path_of(uri) == "/"
    assert path_of(uri_of("/w/100% é#?;.py")) == "/w/100% é#?;.py"
    assert child_uri("file:///w%20x/", "ä/b.py") == "file:///w%20x/%C3%A4/b.py"
    assert relative_to("/a/repo", "/a/repo-2/x") is None
    assert relative_to("/a/repo", "/a/repo/x/y") == "x/y"


def test_snapshots_hold_what_differs_from_the_disk(tmp_path: Path) -> None:
    for name, data in {
        "same.py": b"x\n",
        "crlf.py": b"x\r\ny\r\n",
        "mark.py": b"\xef\xbb\xbfx\n",
        "latin.py": "# -*- coding: latin-1 -*-\né\n".encode("latin-1"),
        "odd.py": b"\xff\xfe\xfd broken \x81\n",
    }.items():
        (tmp_path / name).write_bytes(data)
    session = make(tmp_path)
    for name, text in {
        "same.py": "x\n",
        "crlf.py": "x\nY\n",
        "mark.py": "X\n",
        "latin.py": "# -*- coding: latin-1 -*-\née\n",
        "odd.py": "\ufffd\n",
        "new/n.py": "n\n",
    }.items():
        session.buffers.open(to_uri(tmp_path / name), "python", 1, text)
    session.buffers.open("untitled:1", "python", 1, "u\n")
    session.buffers.open("file:///elsewhere/e.py", "python", 1, "e\n")
    buffers, notes = session.snapshot_buffers(session.folders[0])
    assert buffers == {
        "crlf.py": b"x\r\nY\r\n",
        "mark.py": b"\xef\xbb\xbfX\n",
        "latin.py": "# -*- coding: latin-1 -*-\née\n".encode("latin-1"),
        "new/n.py": b"n\n",
    }
    assert len(notes) == 1
    assert "odd.py" in notes[0]


# --- issues -----------------------------------------------------------------------------------------------------


def issue(session: Session, **params: Any) -> str:
    return _issue_text(session, session.place_of(URI), {"uri": URI, **params})  # type: ignore[typeddict-item]


@pytest.fixture
def session() -> Session:
    session = make("/w")
    text = "".join(f"line {n}\n" for n in range(1, 11)) + "x = None.y  # FIXME why\n"
    session.buffers.open(URI, "python", 1, text)
    return session


def test_a_diagnostic_is_quoted_with_code_source_and_lines(session: Session) -> None:
    text = issue(session, diagnostics=[diagnostic("None has no y", 4, source="pyright", code="attr", severity=1)])
    assert "a.py, line 5: error (pyright attr): None has no y" in text
    assert "a.py\n2. line 2\n3. line 3\n4. line 4\n5. line 5\n6. line 6\n7. line 7\n8. line 8" in text
    assert "/w" not in text


def test_words_come_first_and_diagnostics_after(session: Session) -> None:
    text = issue(session, issue="Make it work", diagnostics=[diagnostic("bad", 0)])
    assert text.startswith("Make it work\n\nFix in a.py, line 1: bad\n\na.py, line 1: problem: bad")
    assert issue(session, issue="Just this") == "Just this"
    assert issue(session, issue="  \n") == ""


def test_a_comment_a_selection_and_a_place(session: Session) -> None:
    assert "a.py, line 11 has this comment: FIXME why" in issue(session, range=span(10))
    selected = issue(session, range={"start": {"line": 1, "character": 0}, "end": {"line": 2, "character": 4}})
    assert selected.endswith("from line 2:\n\nline 2\nline")
    assert "line 3" in issue(session, range={"start": {"line": 2, "character": 0}, "end": {"line": 2, "character": 0}})
    assert issue(session).startswith("Find and fix the problem in a.py at line 1.")


def test_odd_diagnostics_do_no_harm(session: Session) -> None:
    odd = [{"message": "far", "range": span(10**9)}, {"message": {"kind": "markdown", "value": "**m**"}}]
    text = issue(session, diagnostics=odd)
    assert "Fix 2 problems in a.py" in text
    assert "**m**" in text
