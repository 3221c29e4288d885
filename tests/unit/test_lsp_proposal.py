"""`frog.proposal`: a proposal as data, for a client with a review of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.types import ChangeKind, FileChange, FileState
from lsp_server.session import RefusedError
from tests.e2e.lsp_client import to_uri
from tests.unit.test_lsp_apply import created, deleted, modified
from tests.unit.test_lsp_review import LONG, RUN, SHOUTED, Reviewer, folder

__all__ = ["folder"]


async def test_files_hunks_and_what_applying_would_do(folder: Path) -> None:
    editor = Reviewer(folder)
    for name in ("clash", "old"):
        (folder / name).write_text("1\n2\n3\n")
    await editor.keep(
        modified("clash", "1\n2\n3\n", "one\n2\n3\n"),
        created("conftest.py", "import os\n"),
        modified("long.txt", LONG, SHOUTED),
        deleted("old", "1\n2\n3\n"),
        FileChange(path="raw", kind=ChangeKind.CREATED, before=None, after=FileState(data=b"\xff\0\xfe", mode=0o644)),
    )
    document = editor.open("clash")
    editor.change(document, "eins\n2\n3\n")
    made = await editor.proposals.reviews.describe(RUN)
    assert (made["runId"], made["title"], made["folder"]) == (RUN, "Shout", to_uri(folder))
    assert made["model"] == {"kind": "scripted", "name": "s", "demonstration": False}
    assert made["jail"] == {"backend": "files", "reduced": None}
    assert made["tests"] == {"command": None, "before": None, "after": None}
    files = {file["path"]: file for file in made["files"]}
    assert list(files) == ["clash", "conftest.py", "long.txt", "old", "raw"]
    assert {path: (file["kind"], file["prospect"]) for path, file in files.items()} == {
        "clash": ("modified", "conflict"),
        "conftest.py": ("created", "clean"),
        "long.txt": ("modified", "clean"),
        "old": ("deleted", "clean"),
        "raw": ("created", "by-hand"),
    }
    assert files["clash"]["uri"] == document.uri
    assert files["clash"]["conflict"] == (
        "<<<<<<< yours, the file now, line 1\neins\n||||||| base, when the run began, line 1\n1\n"
        "=======\none\n>>>>>>> proposal, line 1\n"
    )
    flagged = files["conftest.py"]
    assert (flagged["appliedByDefault"], [flag["level"] for flag in flagged["flags"]]) == (False, ["runs"])
    assert (files["long.txt"]["before"], files["long.txt"]["after"]) == (LONG, SHOUTED)
    assert [(hunk["number"], hunk["oldStart"], hunk["oldLines"]) for hunk in files["long.txt"]["hunks"]] == [
        (3, 1, 7),
        (4, 28, 7),
    ]
    assert files["long.txt"]["hunks"][0]["text"].startswith("@@ -1,7 +1,7 @@\n line 0\n")
    assert (files["old"]["before"], files["old"]["after"]) == ("1\n2\n3\n", None)
    assert (files["raw"]["before"], files["raw"]["after"], files["raw"]["hunks"]) == (None, None, [])
    assert editor.sent == []


async def test_what_is_settled_says_so_and_numbers_stay(folder: Path) -> None:
    editor = Reviewer(folder)
    (folder / "b.txt").write_text("b\n")
    await editor.keep(modified("b.txt", "b\n", "B\n"), modified("long.txt", LONG, SHOUTED))

    async def states() -> dict[str, tuple[str, list[tuple[int, str]]]]:
        made = await editor.proposals.reviews.describe(RUN)
        return {
            file["path"]: (file["state"], [(hunk["number"], hunk["state"]) for hunk in file["hunks"]])
            for file in made["files"]
        }

    decisions = editor.proposals.decisions
    assert await states() == {"b.txt": ("open", [(1, "open")]), "long.txt": ("open", [(2, "open"), (3, "open")])}
    await decisions.apply(RUN, hunks=[3])
    await decisions.discard(RUN, files=["b.txt"])
    assert await states() == {
        "b.txt": ("discarded", [(1, "discarded")]),
        "long.txt": ("open", [(2, "open"), (3, "applied")]),
    }
    await decisions.discard(RUN, hunks=[2])
    assert (await states())["long.txt"] == ("applied", [(2, "discarded"), (3, "applied")])
    await decisions.discard(RUN)
    with pytest.raises(RefusedError, match="it is discarded"):
        await editor.proposals.reviews.describe(RUN)
    await editor.settle()
