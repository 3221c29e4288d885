"""Applying, against editors that behave as the real ones were seen to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.types import ChangeKind, FileChange, FileState
from lsp_server import slices
from lsp_server.apply import delivery, file_operations
from lsp_server.apply.applier import Applier
from lsp_server.apply.plan import Past
from lsp_server.capabilities import resolve
from lsp_server.client import Client
from lsp_server.messages import AppliedFile
from lsp_server.session import Session
from tests.e2e.lsp_client import FULL, Document, Editor, to_uri


class InProcess(Editor):
    """An editor in this process. `before_answer` runs between our check and its answer."""

    def __init__(self, folder: Path, capabilities: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.folder = folder
        self.sent: list[Any] = []
        self.before_answer: Callable[[], None] = lambda: None
        self.answer: Callable[[Any], Any] = self.apply_edit
        params = {
            "capabilities": FULL if capabilities is None else capabilities,
            "workspaceFolders": [{"uri": to_uri(folder), "name": "ws"}],
        }
        self.session = Session(Client(self), resolve(params), params)
        self.encoding = self.session.capabilities.encoding

    def ask(self, method: str, params: Any) -> asyncio.Future[Any]:
        self.sent.append(params)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def reply() -> None:
            self.before_answer()
            try:
                result = self.answer(params)
            except Exception as error:
                future.set_exception(error)
                return
            if result is not None and not future.done():
                future.set_result(result)

        asyncio.get_running_loop().call_soon(reply)
        return future

    def notify(self, method: str, params: Any) -> None:
        """Nothing is shown."""

    def tell_change(self, document: Document) -> None:
        self.session.buffers.change(document.uri, document.version, [{"text": document.text}], "utf-16")

    def open(self, name: str, text: str | None = None, uri: str | None = None) -> Document:
        path = self.folder / name
        document = Document(uri or to_uri(path), path.read_bytes().decode("utf-8-sig") if text is None else text)
        self.documents[document.uri] = document
        self.session.buffers.open(document.uri, "python", 1, document.text)
        return document

    async def apply(self, *changes: FileChange, unsaved: Any = ()) -> dict[str, AppliedFile]:
        applier = Applier(self.session, self.session.folders[0], Past(unsaved))
        structure = [c for c in changes if c.kind in (ChangeKind.DELETED, ChangeKind.RENAMED)]
        rows = await applier.apply([c for c in changes if c not in structure])
        rows += await applier.apply_structure(structure)
        return {row["path"]: row for row in rows}

    async def outcomes(self, *changes: FileChange, unsaved: Any = ()) -> dict[str, str]:
        return {path: row["outcome"] for path, row in (await self.apply(*changes, unsaved=unsaved)).items()}

    @property
    def edits(self) -> list[Any]:
        return [params["edit"] for params in self.sent]


def modified(path: str, before: str | bytes, after: str | bytes, **more: Any) -> FileChange:
    return FileChange(path=path, kind=ChangeKind.MODIFIED, before=state(before), after=state(after), **more)


def created(path: str, after: str | bytes, mode: int = 0o644) -> FileChange:
    return FileChange(path=path, kind=ChangeKind.CREATED, before=None, after=state(after, mode))


def deleted(path: str, before: str) -> FileChange:
    return FileChange(path=path, kind=ChangeKind.DELETED, before=state(before), after=None)


def state(data: str | bytes, mode: int = 0o644) -> FileState:
    return FileState(data=data.encode() if isinstance(data, str) else data, mode=mode)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in sorted(folder.rglob("*"))]


BASE = "one\ntwo\nthree\nfour\nfive\nsix\n"
OURS = "one\ntwo\nTHREE\nfour\nfive\nsix\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text(BASE)
    return tmp_path


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(delivery, "OPEN_WAIT_S", 0.3)
    monkeypatch.setattr(delivery, "CLOSED_WAIT_S", 0.1)
    monkeypatch.setattr(file_operations, "CREATED_WAIT_S", 0.1)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path.parent / "config"))


# --- the edit itself --------------------------------------------------------------------------------------------


async def test_an_open_document_gets_a_minimal_edit_for_its_version(folder: Path) -> None:
    editor = InProcess(folder)
    document = editor.open("a.py")
    editor.change(document, document.text + "typed\n")
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    assert document.text == OURS + "typed\n"
    assert (folder / "a.py").read_text() == BASE, "an open document is never written on disk"
    span = {"start": {"line": 2, "character": 0}, "end": {"line": 3, "character": 0}}
    assert editor.edits == [
        {
            "documentChanges": [
                {
                    "textDocument": {"uri": document.uri, "version": 2},
                    "edits": [{"range": span, "newText": "THREE\n"}],
                }
            ]
        }
    ]


async def test_a_closed_file_has_the_version_null_present(folder: Path) -> None:
    editor = InProcess(folder)
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    part = editor.edits[0]["documentChanges"][0]["textDocument"]
    assert part == {"uri": to_uri(folder / "a.py"), "version": None}
    assert (folder / "a.py").read_text() == OURS


async def test_several_files_go_in_one_edit(folder: Path) -> None:
    (folder / "b.py").write_text(BASE)
    editor = InProcess(folder)
    editor.open("b.py")
    both = [modified("a.py", BASE, OURS), modified("b.py", BASE, OURS)]
    assert await editor.outcomes(*both) == {"a.py": "applied", "b.py": "applied"}
    assert [len(edit["documentChanges"]) for edit in editor.edits] == [2]


async def test_the_very_uri_string_goes_back(folder: Path) -> None:
    (folder / "sp ace+ü.py").write_text(BASE)
    editor = InProcess(folder)
    odd = to_uri(folder) + "/sp%20ace%2b%C3%bc.py"
    document = editor.open("sp ace+ü.py", uri=odd)
    assert await editor.outcomes(modified("sp ace+ü.py", BASE, OURS)) == {"sp ace+ü.py": "applied"}
    assert document.text == OURS
    assert editor.edits[0]["documentChanges"][0]["textDocument"]["uri"] == odd


async def test_without_document_changes_the_plain_form_is_used(folder: Path) -> None:
    editor = InProcess(folder, {"workspace": {"applyEdit": True}})
    document = editor.open("a.py")
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    assert list(editor.edits[0]) == ["changes"]
    assert list(editor.edits[0]["changes"]) == [document.uri]


async def test_without_apply_edit_all_is_by_hand(folder: Path) -> None:
    editor = InProcess(folder, {})
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "by-hand"}
    assert editor.sent == []


# --- merging ----------------------------------------------------------------------------------------------------


async def test_edits_elsewhere_are_both_kept(folder: Path) -> None:
    editor = InProcess(folder)
    document = editor.open("a.py")
    editor.change(document, "ONE\n" + BASE.partition("\n")[2])
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    assert document.text == "ONE\ntwo\nTHREE\nfour\nfive\nsix\n"


async def test_the_same_lines_are_a_conflict_and_nothing_is_sent(folder: Path) -> None:
    editor = InProcess(folder)
    document = editor.open("a.py")
    editor.change(document, BASE.replace("three", "mine"))
    rows = await editor.apply(modified("a.py", BASE, OURS))
    assert rows["a.py"]["outcome"] == "conflict"
    assert "line 3" in rows["a.py"]["detail"]
    assert editor.sent == []


async def test_a_conflict_in_one_file_lets_the_others_through(folder: Path) -> None:
    (folder / "b.py").write_text("changed\n")
    editor = InProcess(folder)
    rows = await editor.outcomes(modified("a.py", BASE, OURS), modified("b.py", "b\n", "B\n"))
    assert rows == {"a.py": "applied", "b.py": "conflict"}
    assert (folder / "b.py").read_text() == "changed\n"


async def test_a_file_deleted_meanwhile_is_a_conflict(folder: Path) -> None:
    (folder / "a.py").unlink()
    editor = InProcess(folder)
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "conflict"}
    assert not (folder / "a.py").exists()


async def test_a_file_changed_on_disk_under_a_clean_buffer_is_a_conflict(folder: Path) -> None:
    editor = InProcess(folder)
    editor.open("a.py")
    (folder / "a.py").write_text(BASE + "other program\n")
    rows = await editor.apply(modified("a.py", BASE, OURS))
    assert rows["a.py"]["outcome"] == "conflict"
    assert "reload" in rows["a.py"]["detail"]


async def test_an_unsaved_buffer_is_the_base_even_where_the_disk_differs(folder: Path) -> None:
    editor = InProcess(folder)
    document = editor.open("a.py", BASE + "unsaved\n")
    change = modified("a.py", BASE + "unsaved\n", OURS + "unsaved\n")
    assert await editor.outcomes(change, unsaved={"a.py"}) == {"a.py": "applied"}
    assert document.text == OURS + "unsaved\n"


async def test_a_closed_file_changed_on_disk_is_merged(folder: Path) -> None:
    (folder / "a.py").write_text(BASE + "other\n")
    editor = InProcess(folder)
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    assert (folder / "a.py").read_text() == OURS + "other\n"


async def test_already_in_place_sends_nothing(folder: Path) -> None:
    (folder / "a.py").write_text(OURS)
    editor = InProcess(folder)
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "unchanged"}
    assert editor.sent == []


async def test_an_unknown_base_is_never_guessed(folder: Path) -> None:
    editor = InProcess(folder)
    assert await editor.outcomes(modified("a.py", BASE, OURS, base_known=False)) == {"a.py": "conflict"}


# --- editors that are not what they say ---------------------------------------------------------------------------


async def test_typing_between_our_check_and_the_answer_is_merged_once_more(folder: Path) -> None:
    editor = InProcess(folder)
    document = editor.open("a.py")
    typed = iter(["typed\n"])

    def type_once() -> None:
        for text in typed:
            editor.change(document, document.text + text)

    editor.before_answer = type_once
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    assert document.text == OURS + "typed\n"
    versions = [edit["documentChanges"][0]["textDocument"]["version"] for edit in editor.edits]
    assert versions == [1, 2]


async def test_a_document_opened_and_typed_in_meanwhile_loses_nothing(folder: Path) -> None:
    """The edit of a closed file has no version, so no editor checks it."""
    editor = InProcess(folder)
    names = iter(["a.py"])

    def open_and_type() -> None:
        for name in names:
            document = editor.open(name)
            editor.change(document, "typed\n" + document.text)

    editor.before_answer = open_and_type
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    (document,) = editor.documents.values()
    assert document.text == "typed\n" + OURS
    assert (folder / "a.py").read_text() == BASE


async def test_a_document_closed_meanwhile(folder: Path) -> None:
    editor = InProcess(folder)
    document = editor.open("a.py")
    uris = iter([document.uri])

    def close() -> None:
        for uri in uris:
            del editor.documents[uri]
            editor.session.buffers.close(uri)

    editor.before_answer = close
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    assert (folder / "a.py").read_text() == OURS


async def test_a_document_closed_without_saving_since_the_run(folder: Path) -> None:
    """The run saw text that was never saved: what is on disk is another side of the merge."""
    unsaved = BASE.replace("one", "unsaved")
    editor = InProcess(folder)
    change = modified("a.py", unsaved, unsaved.replace("three", "THREE"))
    assert await editor.outcomes(change, unsaved={"a.py"}) == {"a.py": "applied"}
    assert (folder / "a.py").read_text() == OURS


async def test_a_document_opened_since_the_run(folder: Path) -> None:
    editor = InProcess(folder)
    document = editor.open("a.py", BASE + "unsaved\n")
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    assert document.text == OURS + "unsaved\n"
    assert (folder / "a.py").read_text() == BASE


async def test_one_stale_document_does_not_lose_the_others(folder: Path) -> None:
    (folder / "b.py").write_text(BASE)
    (folder / "c.py").write_text(BASE)
    editor = InProcess(folder)
    document, _ = editor.open("a.py"), editor.open("b.py")
    typed = iter(["typed\n"])
    editor.before_answer = lambda: [editor.change(document, document.text + text) for text in typed] and None
    rows = await editor.outcomes(*(modified(name, BASE, OURS) for name in ("a.py", "b.py", "c.py")))
    assert rows == {"a.py": "applied", "b.py": "applied", "c.py": "applied"}


async def test_a_stale_edit_that_was_skipped_silently_is_made_anew(folder: Path) -> None:
    editor = InProcess(folder)
    document = editor.open("a.py")
    typed = iter(["typed\n"])
    editor.before_answer = lambda: [editor.change(document, document.text + text) for text in typed] and None

    def as_neovim(params: Any) -> Any:
        editor.apply_edit(params)
        return {"applied": True}

    editor.answer = as_neovim
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    assert document.text == OURS + "typed\n"


@pytest.mark.parametrize("at_once", [True, False])
async def test_an_edit_that_went_to_the_wrong_lines_is_mended(folder: Path, at_once: bool) -> None:
    """Neovim does not check version 0: a line typed above shifts the edit, and a line of the user's was lost."""
    editor = InProcess(folder)
    document = editor.open("a.py")
    typed = iter(["typed\n"])
    editor.before_answer = lambda: [editor.change(document, text + document.text) for text in typed] and None

    def unchecked(params: Any) -> Any:
        for part in params["edit"]["documentChanges"]:
            editor.apply_part(part)
        if not at_once and "typed" in document.text and len(editor.sent) == 1:
            editor.change(document, document.text + "and more\n")
        return {"applied": True}

    editor.answer = unchecked
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    assert document.text == "typed\n" + OURS + ("" if at_once else "and more\n")
    assert len(editor.sent) == 2


async def test_an_edit_that_met_typing_in_its_own_lines_is_taken_out(folder: Path) -> None:
    editor = InProcess(folder)
    document = editor.open("a.py")
    mine = "typed\n" + BASE.replace("three", "mine")
    typed = iter([mine])
    editor.before_answer = lambda: [editor.change(document, text) for text in typed] and None

    def unchecked(params: Any) -> Any:
        for part in params["edit"]["documentChanges"]:
            editor.apply_part(part)
        return {"applied": True}

    editor.answer = unchecked
    rows = await editor.apply(modified("a.py", BASE, OURS.replace("two", "TWO")))
    assert rows["a.py"]["outcome"] == "conflict"
    assert document.text == mine


async def test_applied_true_for_a_skipped_edit_is_not_believed(folder: Path) -> None:
    editor = InProcess(folder)
    document = editor.open("a.py")
    editor.answer = lambda params: {"applied": True}
    rows = await editor.apply(modified("a.py", BASE, OURS))
    assert rows["a.py"]["outcome"] == "rejected"
    assert document.text == BASE


async def test_a_partly_ticked_preview_is_a_mismatch(folder: Path) -> None:
    ours = OURS.replace("six", "SIX")
    editor = InProcess(folder)
    document = editor.open("a.py")

    def tick_first(params: Any) -> Any:
        del params["edit"]["documentChanges"][0]["edits"][1:]
        return editor.apply_edit(params)

    editor.answer = tick_first
    assert await editor.outcomes(modified("a.py", BASE, ours)) == {"a.py": "mismatch"}
    assert document.text == OURS


async def test_applied_false_loses_nothing(folder: Path) -> None:
    editor = InProcess(folder)
    document = editor.open("a.py")
    editor.answer = lambda params: {"applied": False, "failureReason": "busy"}
    rows = await editor.apply(modified("a.py", BASE, OURS))
    assert rows["a.py"] == {"path": "a.py", "outcome": "rejected", "detail": "the editor rejected the edit: busy"}
    assert document.text == BASE
    editor.answer = editor.apply_edit
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}


async def test_an_error_answer_is_not_applied(folder: Path) -> None:
    editor = InProcess(folder)
    editor.open("a.py")

    def fail(params: Any) -> Any:
        raise RuntimeError("no such operation")

    editor.answer = fail
    rows = await editor.apply(modified("a.py", BASE, OURS))
    assert rows["a.py"]["outcome"] == "rejected"
    assert "no such operation" in rows["a.py"]["detail"]


@pytest.mark.slow
async def test_an_editor_that_never_answers_but_applies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "ANSWER_TIMEOUT_S", 0.2)
    editor = InProcess(folder)
    document = editor.open("a.py")

    def silently(params: Any) -> None:
        editor.apply_edit(params)

    editor.answer = silently
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    assert document.text == OURS


async def test_rubbish_as_an_answer(folder: Path) -> None:
    editor = InProcess(folder)
    editor.open("a.py")
    editor.answer = lambda params: ["what"]
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "rejected"}


async def test_a_closed_file_that_stays_in_the_editor_is_unconfirmed(folder: Path) -> None:
    editor = InProcess(folder)
    editor.answer = lambda params: {"applied": True}
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "unconfirmed"}


async def test_a_closed_file_that_the_editor_opens_is_confirmed(folder: Path) -> None:
    editor = InProcess(folder)

    def open_and_apply(params: Any) -> Any:
        editor.open("a.py")
        return editor.apply_edit(params)

    editor.answer = open_and_apply
    assert await editor.outcomes(modified("a.py", BASE, OURS)) == {"a.py": "applied"}
    assert (folder / "a.py").read_text() == BASE


async def test_line_ends_that_the_editor_makes_uniform_are_no_mismatch(folder: Path) -> None:
    (folder / "a.py").write_bytes(b"one\r\ntwo\nthree\n")
    editor = InProcess(folder)
    document = editor.open("a.py", "one\r\ntwo\r\nthree\r\n")

    def normalise(params: Any) -> Any:
        answer = editor.apply_edit(params)
        editor.change(document, document.text.replace("\r\n", "\n").replace("\n", "\r\n"))
        return answer

    editor.answer = normalise
    change = modified("a.py", b"one\r\ntwo\r\nthree\r\n", b"one\r\nTWO\nthree\r\n")
    assert await editor.outcomes(change, unsaved={"a.py"}) == {"a.py": "applied"}


# --- new files --------------------------------------------------------------------------------------------------


async def test_a_new_file_is_made_empty_then_filled(folder: Path) -> None:
    editor = InProcess(folder)
    assert await editor.outcomes(created("deep/er/n.py", "x = 1\n")) == {"deep/er/n.py": "applied"}
    assert (folder / "deep/er/n.py").read_text() == "x = 1\n"
    make, fill = editor.edits
    uri = to_uri(folder / "deep/er/n.py")
    assert make == {
        "documentChanges": [{"kind": "create", "uri": uri, "options": {"overwrite": False, "ignoreIfExists": True}}]
    }
    span = {"start": {"line": 0, "character": 0}, "end": {"line": 1, "character": 0}}
    assert fill["documentChanges"][0] == {
        "textDocument": {"uri": uri, "version": None},
        "edits": [{"range": span, "newText": "x = 1\n"}],
    }


async def test_creates_come_first_and_texts_go_together(folder: Path) -> None:
    editor = InProcess(folder)
    rows = await editor.outcomes(modified("a.py", BASE, OURS), created("n.py", "n\n"), created("m.py", "m\n"))
    assert rows == {"a.py": "applied", "m.py": "applied", "n.py": "applied"}
    kinds = [[part.get("kind", "edit") for part in edit["documentChanges"]] for edit in editor.edits]
    assert kinds == [["create"], ["create"], ["edit", "edit", "edit"]]


async def test_an_empty_new_file_needs_no_text(folder: Path) -> None:
    editor = InProcess(folder)
    assert await editor.outcomes(created("__init__.py", "")) == {"__init__.py": "applied"}
    assert len(editor.edits) == 1


async def test_a_file_that_is_there_is_never_created_over(folder: Path) -> None:
    (folder / "n.py").write_text("precious\n")
    editor = InProcess(folder)
    assert await editor.outcomes(created("n.py", "n\n")) == {"n.py": "conflict"}
    assert editor.sent == []


async def test_a_file_made_while_we_create_it_is_a_conflict(folder: Path) -> None:
    editor = InProcess(folder)
    editor.before_answer = lambda: (folder / "n.py").write_text("precious\n") and None
    assert await editor.outcomes(created("n.py", "n\n")) == {"n.py": "conflict"}
    assert (folder / "n.py").read_text() == "precious\n"


async def test_an_editor_that_does_not_make_the_file(folder: Path) -> None:
    editor = InProcess(folder)
    editor.answer = lambda params: {"applied": True}
    assert await editor.outcomes(created("n.py", "n\n")) == {"n.py": "rejected"}


async def test_an_editor_that_makes_a_buffer_and_no_file(folder: Path) -> None:
    """Neovim 0.11, for a CreateFile that ignores what exists."""
    editor = InProcess(folder)

    def as_neovim(params: Any) -> Any:
        for part in params["edit"]["documentChanges"]:
            if part.get("kind") != "create":
                document = editor.open("pkg/n.py", "")
                editor.change(document, part["edits"][0]["newText"])
        return {"applied": True}

    editor.answer = as_neovim
    assert await editor.outcomes(created("pkg/n.py", "n\n")) == {"pkg/n.py": "applied"}
    assert names_in(folder) == ["a.py", "pkg"]


async def test_no_operation_that_the_client_does_not_list(folder: Path) -> None:
    capabilities = {"workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}}}
    editor = InProcess(folder, capabilities)
    (folder / "old.py").write_text("old\n")
    rows = await editor.outcomes(created("n.py", "n\n"), deleted("old.py", "old\n"), modified("a.py", BASE, OURS))
    assert rows == {"a.py": "applied", "n.py": "by-hand", "old.py": "by-hand"}
    assert all("kind" not in part for edit in editor.edits for part in edit["documentChanges"])


async def test_an_executable_new_file_names_its_command(folder: Path) -> None:
    editor = InProcess(folder)
    rows = await editor.apply(created("run me.sh", "#!/bin/sh\n", 0o755))
    assert rows["run me.sh"]["outcome"] == "applied"
    assert rows["run me.sh"]["detail"] == "by hand: chmod +x 'run me.sh'"


async def test_a_new_buffer_that_holds_something_is_a_conflict(folder: Path) -> None:
    editor = InProcess(folder)
    editor.open("n.py", "mine\n")
    assert await editor.outcomes(created("n.py", "n\n")) == {"n.py": "conflict"}


# --- renames, deletes, modes, links -------------------------------------------------------------------------------


async def test_a_rename_and_a_delete(folder: Path) -> None:
    (folder / "gone.py").write_text("gone\n")
    editor = InProcess(folder)
    rename = FileChange(
        path="pkg/b.py", kind=ChangeKind.RENAMED, before=state(BASE), after=state(BASE), old_path="a.py"
    )
    assert await editor.outcomes(deleted("gone.py", "gone\n"), rename) == {"pkg/b.py": "applied", "gone.py": "applied"}
    assert not (folder / "gone.py").exists()
    assert (folder / "pkg/b.py").read_text() == BASE
    kinds = [part["kind"] for edit in editor.edits for part in edit["documentChanges"]]
    assert kinds == ["rename", "delete"]


async def test_what_changed_meanwhile_is_not_deleted_or_renamed(folder: Path) -> None:
    editor = InProcess(folder)
    document = editor.open("a.py")
    editor.change(document, BASE + "typed\n")
    rename = FileChange(path="b.py", kind=ChangeKind.RENAMED, before=state(BASE), after=state(BASE), old_path="a.py")
    assert await editor.outcomes(deleted("a.py", BASE)) == {"a.py": "conflict"}
    assert await editor.outcomes(rename) == {"b.py": "conflict"}
    assert editor.sent == []


async def test_a_rename_never_goes_over_a_file(folder: Path) -> None:
    (folder / "b.py").write_text("precious\n")
    editor = InProcess(folder)
    rename = FileChange(path="b.py", kind=ChangeKind.RENAMED, before=state(BASE), after=state(BASE), old_path="a.py")
    assert await editor.outcomes(rename) == {"b.py": "conflict"}
    assert (folder / "b.py").read_text() == "precious\n"


async def test_what_was_done_by_hand_is_in_place(folder: Path) -> None:
    (folder / "a.py").chmod(0o755)
    (folder / "l").symlink_to("a.py")
    (folder / "b.py").write_text(BASE)
    editor = InProcess(folder)
    mode = FileChange(path="a.py", kind=ChangeKind.MODE, before=state(BASE), after=state(BASE, 0o755))
    link = FileChange(path="l", kind=ChangeKind.LINK, before=None, after=FileState(data=None, mode=0o777, link="a.py"))
    rename = FileChange(path="b.py", kind=ChangeKind.RENAMED, before=state(BASE), after=state(BASE), old_path="o.py")
    assert await editor.outcomes(mode, link, rename) == dict.fromkeys(["a.py", "l", "b.py"], "unchanged")
    assert editor.sent == []


async def test_modes_and_links_are_listed_with_their_commands(folder: Path) -> None:
    editor = InProcess(folder)
    mode = FileChange(path="a.py", kind=ChangeKind.MODE, before=state(BASE), after=state(BASE, 0o755))
    link = FileChange(
        path="l", kind=ChangeKind.LINK, before=None, after=FileState(data=None, mode=0o777, link="a file.py")
    )
    rows = await editor.apply(mode, link)
    assert rows["a.py"] == {"path": "a.py", "outcome": "by-hand", "detail": "chmod +x a.py"}
    assert rows["l"] == {"path": "l", "outcome": "by-hand", "detail": "ln -sfn 'a file.py' l"}
    assert editor.sent == []


# --- bytes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "ours"),
    [
        pytest.param(b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\n", id="crlf"),
        pytest.param(b"a\rb\rc\r", b"a\rB\rc\r", id="lone-cr"),
        pytest.param(b"a\r\nb\nc\r", b"a\r\nB\nc\r", id="mixed"),
        pytest.param("\ufeffa\nb\n".encode(), "\ufeffA\nb\n".encode(), id="mark"),
        pytest.param(b"a\nb", b"a\nb\nc", id="no-final-newline"),
        pytest.param(b"a\nb\n", b"a\nb", id="final-newline-goes"),
        pytest.param(b"a\nb\nc\n", b"", id="emptied"),
        pytest.param(b"", b"a\n", id="was-empty"),
        pytest.param(b"a\tb\n\tc\n", b"a\tb\n\t\tc\td\n", id="tabs"),
        pytest.param("x\x0cy\u2028z\n𝄞é\u0301\n".encode(), "x\x0cy\u2028Z\n𝄞é\u0301!\n".encode(), id="odd-characters"),
    ],
)
@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_every_other_byte_stays(folder: Path, base: bytes, ours: bytes, is_open: bool, encoding: str) -> None:
    (folder / "t").write_bytes(base)
    editor = InProcess(folder, {**FULL, "general": {"positionEncodings": [encoding]}})
    assert editor.encoding == encoding
    document = editor.open("t") if is_open else None
    assert await editor.outcomes(modified("t", base, ours)) == {"t": "applied"}
    if document is not None:
        assert document.text == ours.decode("utf-8-sig")
    else:
        assert (folder / "t").read_bytes() == ours


async def test_an_editor_that_hides_crlf(folder: Path) -> None:
    (folder / "t").write_bytes(b"a\r\nb\r\nc\r\n")
    editor = InProcess(folder)
    document = editor.open("t", "a\nb\nc\n")
    assert await editor.outcomes(modified("t", b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\n")) == {"t": "applied"}
    assert document.text == "a\nB\nc\n"


async def test_an_open_latin_1_file_is_edited_and_a_closed_one_refused(folder: Path) -> None:
    base, ours = "é\nb\n".encode("latin-1"), "é\nB\n".encode("latin-1")
    (folder / "t").write_bytes(base)
    editor = InProcess(folder)
    assert await editor.outcomes(modified("t", base, ours)) == {"t": "by-hand"}
    document = editor.open("t", "é\nb\n")
    assert await editor.outcomes(modified("t", base, ours)) == {"t": "applied"}
    assert document.text == "é\nB\n"


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
async def test_utf_16_files_keep_their_mark_and_their_encoding(folder: Path, codec: str) -> None:
    base, ours = (text.encode(codec) for text in ("\ufeff\u00e9\nb\n", "\ufeff\u00e9\nB\n"))
    (folder / "t").write_bytes(base)
    editor = InProcess(folder)
    rows = await editor.apply(modified("t", base, ours))
    assert rows["t"]["outcome"] == "by-hand"
    assert rows["t"]["detail"] == f"the file is {codec}: open it first, so that its encoding is known"
    document = editor.open("t", "\u00e9\nb\n")
    assert await editor.outcomes(modified("t", base, ours)) == {"t": "applied"}
    assert document.text == "\u00e9\nB\n"


async def test_binary_files_are_by_hand(folder: Path) -> None:
    (folder / "t").write_bytes(b"\0\1")
    editor = InProcess(folder)
    rows = await editor.outcomes(modified("t", b"\0\1", b"\0\2"), created("n.bin", b"\0\1"))
    assert rows == {"n.bin": "by-hand", "t": "by-hand"}
    assert editor.sent == []


async def test_what_was_said_to_be_applied_is_not_sent_again_blindly(folder: Path) -> None:
    editor = InProcess(folder)
    editor.answer = lambda params: {"applied": True}
    change = modified("a.py", BASE, OURS)
    applier = Applier(editor.session, editor.session.folders[0], Past((), unseen={"a.py": BASE.encode()}))
    (row,) = await applier.apply([change])
    assert (row["outcome"], editor.sent) == ("unconfirmed", []), "the client may hold the edit unsaved"
    editor.answer = editor.apply_edit
    editor.open("a.py")
    (row,) = await Applier(editor.session, editor.session.folders[0], Past((), unseen={"a.py": BASE.encode()})).apply(
        [change]
    )
    assert row["outcome"] == "applied", "what an open document holds is known"


async def test_an_empty_file_that_was_not_made_is_not_said_to_be(folder: Path) -> None:
    editor = InProcess(folder)
    editor.answer = lambda params: {"applied": True}
    assert await editor.outcomes(created("new.py", "")) == {"new.py": "unconfirmed"}
    assert names_in(folder) == ["a.py"]


@pytest.mark.parametrize("answer", [{"applied": False}, {"applied": True}])
async def test_line_ends_alone_are_looked_at_exactly(folder: Path, answer: Any) -> None:
    mixed = BASE.replace("two\n", "two\r\n")
    (folder / "a.py").write_bytes(mixed.encode())
    editor = InProcess(folder)
    document = editor.open("a.py", mixed)
    editor.answer = lambda params: answer
    assert await editor.outcomes(modified("a.py", mixed, BASE)) == {"a.py": "rejected"}
    assert document.text == mixed
    editor.answer = editor.apply_edit
    assert await editor.outcomes(modified("a.py", mixed, BASE)) == {"a.py": "applied"}
    assert document.text == BASE


async def test_line_ends_that_the_editor_keeps_are_named(folder: Path) -> None:
    (folder / "a.py").write_bytes(BASE.replace("\n", "\r\n").encode())
    editor = InProcess(folder)
    document = editor.open("a.py", BASE.replace("\n", "\r\n"))

    def with_its_own_line_ends(params: Any) -> Any:
        editor.change(document, OURS.replace("\n", "\r\n"))
        return {"applied": True}

    editor.answer = with_its_own_line_ends
    rows = await editor.apply(modified("a.py", BASE.replace("\n", "\r\n"), OURS))
    assert (rows["a.py"]["outcome"], rows["a.py"]["detail"]) == (
        "applied",
        "with the line ends that the editor has there",
    )


async def test_nothing_is_written_through_a_link_made_meanwhile(folder: Path, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("outside")
    for name in ("a.py", "b.py"):
        (outside / name).write_text(BASE)
    (folder / "d").symlink_to(outside)
    (folder / "b.py").symlink_to(outside / "b.py")
    editor = InProcess(folder)
    changes = (modified("d/a.py", BASE, OURS), created("d/new.py", "n\n"), modified("b.py", BASE, OURS))
    assert await editor.outcomes(*changes, deleted("d/b.py", BASE)) == {
        "d/a.py": "conflict",
        "d/new.py": "conflict",
        "b.py": "conflict",
        "d/b.py": "conflict",
    }
    assert editor.sent == []


async def test_what_is_no_plain_file_any_more_stops_nothing(folder: Path) -> None:
    (folder / "a.py").unlink()
    os.mkfifo(folder / "a.py")
    (folder / "endless.py").symlink_to("/dev/zero")
    editor = InProcess(folder)
    rows = await editor.apply(modified("a.py", BASE, OURS), modified("endless.py", BASE, OURS))
    assert rows["a.py"]["detail"] == "it is no plain file any more"
    assert {row["outcome"] for row in rows.values()} == {"conflict"}
    assert editor.sent == []


# --- many files -------------------------------------------------------------------------------------------------


async def test_many_files_leave_the_editor_its_turn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    names = [f"{n}.py" for n in range(50)]
    for name in names:
        (folder / name).write_text(BASE)
    editor = InProcess(folder)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    outcomes = await editor.outcomes(*(modified(name, BASE, OURS) for name in names))
    other.cancel()
    assert set(outcomes.values()) == {"applied"} and len(outcomes) == 50
    assert turns >= 3 * len(names), "planning, looking for the texts, saying what became of each"
    assert len(editor.edits) == 1


async def test_what_is_typed_while_other_files_are_planned_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    (folder / "b.py").write_text(BASE)
    (folder / "c.py").write_text(BASE)
    editor = InProcess(folder)
    document = editor.open("a.py")

    async def type_on() -> None:
        editor.change(document, document.text + "typed\n")
        (folder / "b.py").write_text(BASE + "saved\n")

    typing = asyncio.create_task(type_on())
    changes = [modified(name, BASE, OURS) for name in ("a.py", "b.py", "c.py")]
    assert set((await editor.outcomes(*changes)).values()) == {"applied"}
    await typing
    assert document.text == OURS + "typed\n"
    assert (folder / "b.py").read_text() == OURS + "saved\n"
    (edit,) = editor.edits
    assert [each["textDocument"]["version"] for each in edit["documentChanges"]] == [2, None, None]
