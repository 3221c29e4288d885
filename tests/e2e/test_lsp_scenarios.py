"""The scenario folders through the real server, with each client as it was seen to behave.

Two things are looked at: the whole tree on disk once the person has saved everything, and all that the server said
(`__snapshots__`, one file a client; `pytest --snapshot-update` writes them anew).
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from tests.e2e.fake_clients import FAKES, Preview, ShownDiff, ToldAle, UntickedPreview
from tests.e2e.fake_editor import FakeEditor
from tests.e2e.lsp_client import to_uri
from tests.e2e.lsp_session import own_env
from tests.e2e.test_fix_scenarios import SCENARIOS, tree

pytestmark = [pytest.mark.slow, pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

NAMES = sorted(path.name for path in SCENARIOS.glob("fix_*"))
LINES = "".join(f"line {n}\n" for n in range(1, 13))
TWO_FILES = {"a.py": LINES, "b.py": LINES}


def edit_turn(*edits: tuple[str, str, str]) -> list[dict[str, Any]]:
    """A script that edits: path, old, new."""
    keys = ("file_path", "old_string", "new_string")
    calls = [{"name": "Edit", "arguments": dict(zip(keys, edit, strict=True))} for edit in edits]
    return [{"calls": calls}, {"content": "Done."}]


def files(texts: Mapping[str, str]) -> dict[str, tuple[str, bytes | str]]:
    """The tree of these texts, as `tree` gives it."""
    return {name: ("file", text.encode()) for name, text in texts.items()}


class TextFile(SingleFileSnapshotExtension):
    """A snapshot that is a plain text file."""

    file_extension = "txt"
    _write_mode = WriteMode.TEXT


@dataclass
class Play:
    """Plays scenarios in one session of one client: one folder each, all known to the server from the start."""

    editor: FakeEditor
    folders: dict[str, Path]
    script: Path
    problems: list[str] = field(default_factory=list)
    before_apply: Callable[[], None] = lambda: None
    """What happens between the end of the run and the person's saying Apply."""

    async def fix(self, name: str, script: Any, *, opens: tuple[str, ...] = ()) -> list[str]:
        """From a diagnostic to the end of applying; what the server then said of the files."""
        editor, folder = self.editor, self.folders[name]
        editor.transcript.add(f"== {name}")
        self.script.write_text(json.dumps(script))
        for relative in opens:
            editor.buffer_at(to_uri(folder / relative))
        uri = self.open_first(folder)
        spot = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}
        (action,) = await editor.actions(uri, diagnostics=[{"range": spot, "message": "Fix it."}])
        command = action["command"] if isinstance(action["command"], dict) else action
        n_heard = len(editor.notifications)

        def said(start: str) -> list[str]:
            heard = editor.notifications[n_heard:]
            texts = [params["message"] for method, params in heard if method == "window/showMessage"]
            return [text for text in texts if text.startswith(start)]

        def n_questions() -> int:
            return sum(method == "window/showMessageRequest" for method, _ in editor.requests)

        def answer(params: Any) -> Any:
            self.before_apply()
            return editor.answer_question(params)

        n_asked = n_questions()
        editor.handlers["window/showMessageRequest"] = answer
        run = await editor.give(command["command"], command["arguments"][0])
        row = await editor.until_over(run["runId"])
        if row["state"] in ("nothing", "failed"):
            await editor.until(lambda: said("FrogNano "))
            return []
        await editor.until(lambda: n_questions() > n_asked)
        if editor.questions == "answered":
            first = (await editor.until(lambda: said("FrogNano: ")))[0]
            n_messages = 2 if "waiting for your answer" in first else 1
            await editor.until(lambda: len(said("FrogNano: ")) >= n_messages)
            messages = said("FrogNano: ")
        else:
            if editor.questions == "refused":
                await editor.until(lambda: said("FrogNano proposes "))
            self.before_apply()
            result = await editor.give("frog.apply", {"runId": run["runId"]})
            messages = [result["message"]]
            if waiting := [row["path"] for row in result["files"] if row["outcome"] == "asked"]:
                await editor.until(lambda: said("Not done: "))
                again = await editor.give("frog.apply", {"runId": run["runId"], "files": waiting})
                messages.append(again["message"])
        self.apply_by_hand(folder, messages)
        return messages

    def open_first(self, folder: Path) -> str:
        """Open the first text file, as the person does who asks for a fix there."""
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            data = path.read_bytes()
            if b"\0" not in data:
                try:
                    return self.editor.buffer_at(to_uri(path)).uri
                except UnicodeDecodeError:
                    continue
        raise AssertionError("a scenario has a text file")

    def apply_by_hand(self, folder: Path, messages: list[str]) -> None:
        """The person saves, then applies the patch that the server left for what the editor cannot do."""
        self.editor.save_all()
        for message in messages:
            if found := re.search(r"Patch: (\S+)", message):
                subprocess.run(["git", "apply", found[1]], cwd=folder, check=True, timeout=30)

    def compare(self, name: str, expected: dict[str, tuple[str, bytes | str]]) -> None:
        """The tree on disk, but for what this editor does to each file that it saves."""
        found = tree(self.folders[name])
        for path in self.editor.saved:
            relative = path.removeprefix(f"{self.folders[name]}/")
            if relative in expected and path != relative:
                kind, data = expected[relative]
                assert isinstance(data, bytes)
                expected[relative] = (kind, self.editor.as_saved(data))
        if found != expected:
            self.problems.append(f"{name}:\n  found    {found}\n  expected {expected}")


async def play(
    kind: type[FakeEditor],
    tmp_path: Path,
    make: Callable[[Path], dict[str, Path]],
    act: Callable[[Play], Any],
    **options: Any,
) -> Play:
    """A session of a client over the folders that `make` makes."""
    folders = make(tmp_path)
    script = tmp_path / "turns.json"
    home = tmp_path / "home"
    editor = kind(own_env(home))
    editor.transcript.places = [*((str(path) + "/", "") for path in folders.values()), (str(home), "HOME"),
                                (str(tmp_path), "TMP")]  # fmt: skip
    settings = {"model": {"kind": "scripted", "path": str(script)}, **options}
    editor.handlers["workspace/configuration"] = lambda params: [None] * len(params["items"])
    async with editor.started():
        await editor.initialize(
            *folders.values(), capabilities=editor.capabilities, options=settings, clientInfo=editor.info
        )
        await editor.run("frog.runs", {})
        played = Play(editor, folders, script)
        await act(played)
        await editor.request("shutdown")
        editor.notify("exit")
        assert await asyncio.wait_for(editor.process.wait(), 10) == 0
    return played


def scenario_folders(root: Path) -> dict[str, Path]:
    for name in NAMES:
        shutil.copytree(SCENARIOS / name / "input", root / name, symlinks=True)
    for name in ("typed_meanwhile", "made_meanwhile"):
        two_files(root, name)
    return {name: root / name for name in (*NAMES, "typed_meanwhile", "made_meanwhile")}


def two_files(root: Path, name: str = "two_files") -> dict[str, Path]:
    (root / name).mkdir()
    for relative, text in TWO_FILES.items():
        (root / name / relative).write_text(text)
    return {name: root / name}


async def type_meanwhile(played: Play) -> None:
    """Somebody types at the top of both documents in the moment in which the edit arrives."""
    editor, folder = played.editor, played.folders["typed_meanwhile"]
    typed: list[str] = []

    def type_once() -> None:
        if not typed:
            typed.append("typed\n")
            for relative in TWO_FILES:
                buffer = editor.documents[to_uri(folder / relative)]
                editor.change(buffer, typed[0] + buffer.text)

    editor.types_first = type_once
    script = edit_turn(("a.py", "line 6", "SIX"), ("b.py", "line 6", "SIX"), ("b.py", "line 12\n", "TWELVE\nmore\n"))
    await played.fix("typed_meanwhile", script, opens=("a.py", "b.py"))
    editor.types_first = lambda: None
    fixed = {name: "".join(typed) + text.replace("line 6", "SIX") for name, text in TWO_FILES.items()}
    fixed["b.py"] = fixed["b.py"].replace("line 12\n", "TWELVE\nmore\n")
    played.compare("typed_meanwhile", files(fixed))


async def make_meanwhile(played: Play) -> None:
    """Somebody makes the very file that the run made, with another content: it stays as it is."""
    path = played.folders["made_meanwhile"] / "new.py"
    played.before_apply = lambda: path.write_text("mine\n") and None
    script = edit_turn(("a.py", "line 6", "SIX"))
    script[0]["calls"].append({"name": "Write", "arguments": {"file_path": "new.py", "content": "run\n"}})
    await played.fix("made_meanwhile", script)
    played.before_apply = lambda: None
    fixed = {**TWO_FILES, "a.py": LINES.replace("line 6", "SIX"), "new.py": "mine\n"}
    played.compare("made_meanwhile", files(fixed))


@pytest.mark.parametrize("client", sorted(FAKES))
async def test_scenarios(client: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    async def act(played: Play) -> None:
        for name in NAMES:
            await played.fix(name, json.loads((SCENARIOS / name / "script.json").read_text()))
            played.compare(name, tree(SCENARIOS / name / "expected"))
        await type_meanwhile(played)
        await make_meanwhile(played)

    played = await play(FAKES[client], tmp_path, scenario_folders, act)
    assert not played.problems, "\n".join(played.problems)
    assert played.editor.transcript.render() == snapshot(extension_class=TextFile)


@pytest.mark.parametrize(
    ("kind", "says", "is_in", "options"),
    [
        (Preview, "FrogNano: applied: b.py; not as expected, look at it: a.py", ("SIX", "six"), {}),
        (UntickedPreview, "FrogNano: not applied: a.py, b.py", (), {}),
        (ShownDiff, "FrogNano: not applied: a.py, b.py", (), {}),
        (ToldAle, "FrogNano: applied: a.py, b.py", ("SIX", "TEN", "six"), {"client": {"appliesEdits": True}}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
async def test_what_the_client_says_is_not_believed(
    kind: type[FakeEditor], says: str, is_in: tuple[str, ...], options: dict[str, Any], tmp_path: Path
) -> None:
    """`applied: true` for a part, for nothing, and no answer at all: what is said is what is there."""
    heard: list[str] = []

    async def act(played: Play) -> None:
        script = edit_turn(("a.py", "line 6", "SIX"), ("a.py", "line 10", "TEN"), ("b.py", "line 6", "six"))
        heard.extend(await played.fix("two_files", script, opens=("a.py", "b.py")))
        texts = dict(TWO_FILES)
        for name, old, new in (("a.py", "line 6", "SIX"), ("a.py", "line 10", "TEN"), ("b.py", "line 6", "six")):
            if new in is_in:
                texts[name] = texts[name].replace(old, new)
        played.compare("two_files", files(texts))

    played = await play(kind, tmp_path, two_files, act, **options)
    (message,) = heard
    assert message.startswith(says)
    assert not played.problems, "\n".join(played.problems)
