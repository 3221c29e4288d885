"""`frog-lsp review`, `discard` and `apply` on a proposal that is kept: they agree, and look at the files of now."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.changes.changeset import assemble
from agent.changes.diff import patch
from agent.changes.proposal import Proposal
from agent.changes.proposals import ProposalStore
from agent.jail.risk import flag
from agent.types import ExitReason, FileState, JailInfo, ModelInfo, PathDelta
from tests.frog import Frog

RUN = "20260131-142501-3fa2c1"
LONG = "".join(f"line {n}\n" for n in range(40))
SHOUTED = LONG.replace("line 3\n", "LINE 3\n").replace("line 30\n", "LINE 30\n")


def state(text: str) -> FileState:
    return FileState(data=text.encode())


@pytest.fixture
def frog(tmp_path: Path) -> Frog:
    return Frog(tmp_path / "home")


@pytest.fixture
def project(frog: Frog, tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    for name in ("clash.txt", "gone.txt", "long.txt", "old.txt"):
        (folder / name).write_text(LONG)
    deltas = [
        PathDelta(path="clash.txt", before=state(LONG), after=state(SHOUTED)),
        PathDelta(path="conftest.py", before=None, after=state("x\n")),
        PathDelta(path="gone.txt", before=state(LONG), after=state(SHOUTED)),
        PathDelta(path="long.txt", before=state(LONG), after=state(SHOUTED)),
        PathDelta(path="old.txt", before=state(LONG), after=None),
    ]
    changes = flag(assemble(deltas), str(folder), lambda path: False)
    ProposalStore(frog.home / "state" / "frog-lsp").save(
        Proposal(
            run_id=RUN, title="Shout", workspace=str(folder), folder=str(folder), created_s=time.time(),
            exit_reason=ExitReason.AGENT, final_message="", changes=changes, patch=patch(changes),
            model=ModelInfo(kind="scripted", name="s"), jail=JailInfo(backend="files"),
        )
    )  # fmt: skip
    return folder


@pytest.mark.slow
def test_review_discard_and_apply_agree(frog: Frog, project: Path) -> None:
    (project / "clash.txt").write_text(LONG.replace("line 3\n", "mine\n"))
    (project / "gone.txt").unlink()
    (project / "long.txt").write_text(LONG + "mine\n")
    review = frog("review", RUN, "--json").json
    assert {row["path"]: row["prospect"] for row in review["outlooks"]} == {
        "clash.txt": "conflict",
        "conftest.py": "applies cleanly",
        "gone.txt": "conflict",
        "long.txt": "merges with your edits",
        "old.txt": "applies cleanly",
    }
    text = frog("review", RUN).out
    assert "#   <<<<<<< yours, the file now, line 4\n#   mine\n" in text
    discarded = frog("discard", RUN, "--hunks", "7", "--files", "long.txt", "--json").json
    assert (discarded["run_id"], discarded["state"], discarded["error"]) == (RUN, "proposed", None)
    assert "# hunk 7 of long.txt was discarded:" in frog("review", RUN).out
    applied = frog("apply", RUN, "--json")
    assert applied.code == 4
    assert applied.json["applied"] == ["long.txt", "old.txt"]
    assert [row["path"] for row in applied.json["conflicts"]] == ["clash.txt", "gone.txt"]
    assert (project / "long.txt").read_text() == LONG.replace("line 3\n", "LINE 3\n") + "mine\n"
    for arguments, words in (
        (("apply", RUN, "--hunks", "7"), "Hunk 7 was discarded"),
        (("discard", RUN, "--hunks", "6"), "Hunk 6 is in place already"),
        (("discard", RUN, "--hunks", "99"), "no hunk 99"),
        (("discard", RUN, "--files", "nope"), "does not change nope"),
    ):
        answer = frog(*arguments, "--json")
        assert (answer.code, answer.json["error"]["kind"]) == (2, "usage"), answer.out
        assert words in answer.json["error"]["message"]
    assert frog("discard", RUN, "--files", "clash.txt", "conftest.py", "gone.txt", "--json").json["state"] == "applied"
