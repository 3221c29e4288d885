"""Where the files of a run are after the user renamed things."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.changes.proposal import Proposal
from agent.changes.renames import LostError, Renames
from agent.types import ChangeKind, ChangeSet, ExitReason, FileChange, FileState, JailInfo, ModelInfo
from lsp_server.capabilities import resolve
from lsp_server.client import Client
from lsp_server.moved import find_moved
from lsp_server.renames import name_in
from lsp_server.runs import RunRecord
from lsp_server.session import Folder, Session
from lsp_server.uris import respelled
from tests.e2e.lsp_client import FULL, to_uri
from tests.unit.test_lsp_runs import Wire


def renames(*pairs: tuple[str, str]) -> Renames:
    made = Renames()
    for old, new in pairs:
        made = made.then(old, new)
    return made


@pytest.mark.parametrize(
    ("pairs", "name", "now"),
    [
        ([], "a.py", "a.py"),
        ([("a.py", "b.py")], "a.py", "b.py"),
        ([("a.py", "b.py")], "aa.py", "aa.py"),
        ([("a.py", "b.py"), ("b.py", "a.py")], "a.py", "a.py"),
        ([("pkg", "lib")], "pkg/sub/a.py", "lib/sub/a.py"),
        ([("pkg", "lib")], "pkg-2/a.py", "pkg-2/a.py"),
        ([("pkg", "lib"), ("lib/a.py", "b.py")], "pkg/a.py", "b.py"),
        ([("a.py", "/elsewhere/a.py")], "a.py", "/elsewhere/a.py"),
        ([("a.py", "/elsewhere/a.py"), ("/elsewhere", "/third"), ("/third/a.py", "a.py")], "a.py", "a.py"),
        ([("x.py", "a.py")], "a.py", None),
        ([("x.py", "a.py")], "x.py", "a.py"),
        ([("a.py", "t"), ("b.py", "a.py"), ("t", "b.py")], "a.py", "b.py"),
        ([("a.py", "t"), ("b.py", "a.py"), ("t", "b.py")], "b.py", "a.py"),
    ],
)
def test_a_name_follows_in_order(pairs: list[tuple[str, str]], name: str, now: str | None) -> None:
    assert renames(*pairs).now(name) == now


@pytest.mark.parametrize(
    ("pairs", "now"),
    [
        ([("pkg", "lib")], "lib/new.py"),
        ([("x.py", "pkg/new.py")], "pkg/new.py"),
        ([("pkg/new.py", "mine.py")], "pkg/new.py"),
    ],
)
def test_a_file_to_be_made_goes_with_its_folder_alone(pairs: list[tuple[str, str]], now: str) -> None:
    assert renames(*pairs).now("pkg/new.py", is_there=False) == now


def test_names_are_relative_in_the_folder_and_through_links(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "link").symlink_to("repo")
    repo = str(tmp_path / "repo")
    assert name_in(repo, f"{repo}/a/b.py") == "a/b.py"
    assert name_in(repo, f"{tmp_path}/link/gone.py") == "gone.py"
    assert name_in(str(tmp_path / "link"), f"{repo}/gone.py") == "gone.py"
    assert name_in(repo, f"{tmp_path}/repo-2/a.py") == f"{tmp_path}/repo-2/a.py"
    assert name_in(repo, repo) == repo


# --- a run --------------------------------------------------------------------------------------------------------

MODIFIED = FileChange(
    path="a.py", kind=ChangeKind.MODIFIED, before=FileState(data=b"1\n"), after=FileState(data=b"2\n")
)
CREATED = FileChange(path="pkg/new.py", kind=ChangeKind.CREATED, before=None, after=FileState(data=b"x\n"))


def record(*changes: FileChange) -> RunRecord:
    proposal = Proposal(
        run_id="r",
        title="t",
        workspace="/ws",
        folder="file:///ws",
        created_s=0.0,
        exit_reason=ExitReason.AGENT,
        final_message="",
        changes=ChangeSet(changes=changes),
        patch="",
        model=ModelInfo(kind="scripted", name="m"),
        jail=JailInfo(backend="none"),
    )
    return RunRecord("r", Folder("file:///ws", "/ws", "ws"), "t", state="proposed", proposal=proposal)


def test_where_the_files_of_a_proposal_are() -> None:
    run = record(MODIFIED, CREATED)
    for old, new in [("a.py", "b.py"), ("pkg", "lib")]:
        run.renames = run.renames.then(old, new)
    assert (run.path_now("a.py"), run.path_now("pkg/new.py")) == ("b.py", "lib/new.py")
    assert run.proposal is not None
    assert run.proposal.renames == (("a.py", "b.py"), ("pkg", "lib")), "kept with the proposal"
    run.renames = run.renames.then("b.py", "/elsewhere/b.py")
    with pytest.raises(LostError, match=r"^it was moved to /elsewhere/b.py, outside the folder$"):
        run.path_now("a.py")
    run.renames = run.renames.then("/elsewhere/b.py", "c.py")
    assert run.path_now("a.py") == "c.py"
    run.renames = run.renames.then("mine.py", "c.py")
    with pytest.raises(LostError, match=r"^another file was renamed onto it$"):
        run.path_now("a.py")


def test_a_file_that_was_made_follows_once_it_is_there() -> None:
    run = record(CREATED)
    run.renames = run.renames.then("pkg/new.py", "mine.py")
    assert run.path_now("pkg/new.py") == "pkg/new.py", "what was renamed was a file of the user's"
    run.renames = Renames()
    assert run.proposal is not None
    run.proposal = run.proposal.with_applied(["pkg/new.py"], [1])
    run.renames = run.renames.then("pkg/new.py", "mine.py")
    assert run.path_now("pkg/new.py") == "mine.py"
    run.proposal = replace(run.proposal, applied_files=())
    assert run.path_now("pkg/new.py") == "mine.py", "a hunk of it is in place"


# --- the session --------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def session(*folders: Any) -> Session:
    params = {
        "capabilities": FULL,
        "workspaceFolders": [{"uri": to_uri(folder), "name": Path(folder).name} for folder in folders],
    }
    return Session(Client(Wire()), resolve(params), params)


def test_documents_and_spellings_follow_a_folder() -> None:
    known = session("/ws")
    (folder,) = known.folders
    odd = "file:///ws/pkg/sp%61ce%20%C3%a9.py"
    known.remember_spelling(odd)
    known.buffers.open(odd, "python", 1, "text\n")
    known.remember_spelling("file:///ws/pkg-2/b.py")
    assert known.follow_rename("file:///ws/pkg", "file:///ws/l%69b") == ("/ws/pkg", "/ws/lib")
    buffer = known.buffers.at("/ws/lib/space é.py")
    assert buffer is not None
    assert buffer.uri == "file:///ws/l%69b/sp%61ce%20%C3%a9.py", "the client's spelling of each part"
    assert known.uri_for(folder, "lib/space é.py") == buffer.uri
    known.buffers.close(buffer.uri)
    assert known.uri_for(folder, "lib/space é.py") == "file:///ws/l%69b/sp%61ce%20%C3%a9.py"
    assert known.uri_for(folder, "pkg-2/b.py") == "file:///ws/pkg-2/b.py"
    assert known.buffers.at("/ws/pkg/space é.py") is None


@pytest.mark.parametrize("is_before", [True, False])
def test_a_client_that_opens_the_new_document_itself_is_believed(is_before: bool) -> None:
    known = session("/ws")
    known.buffers.open("file:///ws/a.py", "python", 3, "old\n")
    if is_before:
        known.buffers.open("file:///ws/b.py", "python", 1, "new\n")
    known.follow_rename("file:///ws/a.py", "file:///ws/b.py")
    known.buffers.close("file:///ws/a.py")
    if not is_before:
        moved = known.buffers.at("/ws/b.py")
        assert moved is not None
        assert (moved.text, moved.version) == ("old\n", 3)
        known.buffers.open("file:///ws/b.py", "python", 1, "new\n")
    assert [(buffer.uri, buffer.text) for buffer in known.buffers] == [("file:///ws/b.py", "new\n")]


def test_workspace_folders_follow_with_those_that_lie_in_them() -> None:
    known = session("/ws/repo", "/ws/repo/sub", "/ws/repo-2")
    known.follow_rename("file:///ws/repo", "file:///ws/r%65named")
    assert [(folder.uri, folder.path, folder.name) for folder in known.folders] == [
        ("file:///ws/r%65named", "/ws/renamed", "renamed"),
        ("file:///ws/r%65named/sub", "/ws/renamed/sub", "sub"),
        ("file:///ws/repo-2", "/ws/repo-2", "repo-2"),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [("untitled:a", "file:///ws/a.py"), ("file:///ws/a.py", "git:/ws/a.py"), ("file:///ws/a.py", "file:///ws/%61.py")],
)
def test_what_is_no_rename_of_files_changes_nothing(old: str, new: str) -> None:
    known = session("/ws")
    known.buffers.open("file:///ws/a.py", "python", 1, "x")
    assert known.follow_rename(old, new) is None
    assert [buffer.uri for buffer in known.buffers] == ["file:///ws/a.py"]


def test_a_spelling_that_is_not_that_of_the_path_is_made_anew() -> None:
    assert respelled("file:///ws/pkg/x/../a.py", "/a.py", "file:///lib") == "file:///lib/a.py"
    assert respelled("file:///ws/pkg/x/../sub/a%20b.py", "/sub/a b.py", "file:///lib/") == "file:///lib/sub/a%20b.py"
    assert respelled("file:///ws//a.py", "/ws/a.py", "file:///n") == "file:///n/ws/a.py"


# --- moved without a word -----------------------------------------------------------------------------------------


def test_a_file_is_found_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "copy").write_bytes(b"text\n")
    (tmp_path / "near.py").write_bytes(b"tex?\n")
    (tmp_path / "deep" / "loop").symlink_to(tmp_path)
    gone = str(tmp_path / "a.py")
    assert find_moved(b"text\n", gone, str(tmp_path)) is None
    (tmp_path / "deep" / "er" / "b.py").write_bytes(b"text\n")
    assert find_moved(b"text\n", gone, str(tmp_path)) == "deep/er/b.py"
    (tmp_path / "second.py").write_bytes(b"text\n")
    assert find_moved(b"text\n", gone, str(tmp_path)) is None, "two are no answer"
    assert find_moved(b"", gone, str(tmp_path)) is None


def test_a_large_tree_is_not_searched_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsp_server.moved.MAX_ENTRIES", 3)
    (tmp_path / "b.py").write_bytes(b"text\n")
    for at in range(4):
        (tmp_path / f"{at}").touch()
    assert find_moved(b"text\n", str(tmp_path / "a.py"), str(tmp_path)) is None
