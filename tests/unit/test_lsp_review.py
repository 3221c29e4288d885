"""Reviews and decisions in one process: real proposals on disk, real documents, an editor that answers as it should."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from unidiff import PatchSet

from agent.changes.diff import patch
from agent.changes.proposal import Proposal
from agent.changes.proposals import ProposalStore
from agent.errors import ProposalError
from agent.jail.risk import flag
from agent.types import ChangeKind, ChangeSet, ExitReason, FileChange, FileState, JailInfo, ModelInfo
from lsp_server.lenses import lenses
from lsp_server.progress import ProgressTokens
from lsp_server.proposals.proposals import Proposals
from lsp_server.review import review_path, run_of_review, virtual_uri
from lsp_server.runs import RunManager, RunRecord
from lsp_server.session import RefusedError
from tests.e2e.lsp_client import FULL, to_uri
from tests.unit.test_lsp_apply import InProcess, created, deleted, modified, quick, state

__all__ = ["quick"]

RUN = "20260131-142501-3fa2c1"
LONG = "".join(f"line {n}\n" for n in range(40))
SHOUTED = LONG.replace("line 3\n", "LINE 3\n").replace("line 30\n", "LINE 30\n")
ABLE: dict[str, Any] = {**FULL, "workspace": {**FULL["workspace"], "codeLens": {"refreshSupport": True}}}


class NoLauncher:
    """No run is started here."""

    def make(self, spec: Any, on_event: Any, idle_unload_s: float) -> Any:
        raise AssertionError("nothing is to be run")

    async def close(self) -> None:
        """Nothing is open."""


class Reviewer(InProcess):
    """An editor with the proposals of its workspace."""

    def __init__(self, folder: Path, capabilities: dict[str, Any] = ABLE) -> None:
        super().__init__(folder, capabilities)
        self.asked: list[tuple[str, Any]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.runs = RunManager(self.session, ProgressTokens(), NoLauncher(), lambda record: None)
        self.proposals = Proposals(self.session, self.runs, self.spawn)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def settle(self) -> None:
        while any(not task.done() for task in self.tasks):
            await asyncio.gather(*self.tasks)

    def ask(self, method: str, params: Any) -> asyncio.Future[Any]:
        if method == "workspace/applyEdit":
            return super().ask(method, params)
        self.asked.append((method, params))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result({"success": True})
        return future

    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]

    async def keep(self, *changes: FileChange) -> RunRecord:
        made = flag(ChangeSet(changes=tuple(sorted(changes, key=lambda c: c.path))), str(self.folder), lambda p: False)
        ProposalStore().save(
            Proposal(
                run_id=RUN, title="Shout", workspace=str(self.folder), folder=to_uri(self.folder), created_s=1.0,
                exit_reason=ExitReason.AGENT, final_message="", changes=made, patch=patch(made),
                model=ModelInfo(kind="scripted", name="s"), jail=JailInfo(backend="files"),
            )
        )  # fmt: skip
        return self.proposals.kept.record(RUN)

    async def review(self) -> str:
        result = await self.proposals.reviews.show(RUN)
        assert result["path"] == str(review_path(RUN))
        return text_of(result["path"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "long.txt").write_text(LONG)
    return workspace


def text_of(path: str) -> str:
    return Path(path).read_text()


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rows(text: str) -> dict[str, str]:
    """What the review says of each file."""
    lines = text[text.index("# FILES") :].split("\n")[1:]
    found: dict[str, str] = {}
    for line in lines:
        if not line.startswith("#   "):
            break
        name, _, rest = line[4:].partition(" (")
        found[name] = rest.partition("  ")[2].strip().partition("  ")[2].strip()
    return found


def titles(found: list[dict[str, Any]]) -> list[str]:
    return [lens["command"]["title"] for lens in found]


# --- the preview ------------------------------------------------------------------------------------------------


async def test_a_review_says_what_applying_would_do_now_and_does_nothing(folder: Path) -> None:
    editor = Reviewer(folder)
    for name in ("merged", "clash", "gone", "done", "old", "moved", "run", "disk"):
        (folder / name).write_text("1\n2\n3\n")
    (folder / "mine").write_text("mine\n")
    await editor.keep(
        modified("long.txt", LONG, SHOUTED),
        modified("merged", "1\n2\n3\n", "1\n2\nthree\n"),
        modified("clash", "1\n2\n3\n", "one\n2\n3\n"),
        modified("gone", "1\n2\n3\n", "one\n2\n3\n"),
        modified("done", "0\n2\n3\n", "1\n2\n3\n"),
        deleted("old", "1\n2\n3\n"),
        FileChange(
            path="new", kind=ChangeKind.RENAMED, before=state("1\n2\n3\n"), after=state("1\n2\n3\n"), old_path="moved"
        ),
        FileChange(path="run", kind=ChangeKind.MODE, before=state("1\n2\n3\n"), after=state("1\n2\n3\n", 0o755)),
        FileChange(path="l", kind=ChangeKind.LINK, before=None, after=FileState(data=None, mode=0o777, link="run")),
        created("mine", "made\n"),
        created("made", "made\n"),
        created("conftest.py", "import os\n"),
        modified(".vscode/x\udcff", "a\n", "b\n"),
        modified("disk", "1\n2\n3\n", "one\n2\n3\n"),
    )
    editor.change(editor.open("merged"), "one\n2\n3\n")
    editor.change(editor.open("clash"), "eins\n2\n3\n")
    (folder / "disk").write_text("1\n2\n3\n4\n")
    (folder / "gone").unlink()
    before = bytes_in(folder)
    said = rows(await editor.review())
    assert said.pop(".vscode/x\\xff").startswith("never applied: ")
    assert said.pop("conftest.py") == "applies cleanly; only where you name the file, see below"
    assert said == {
        "long.txt": "applies cleanly",
        "merged": "merges with your edits",
        "clash": "CONFLICT: the same lines changed meanwhile (line 1)",
        "gone": "CONFLICT: the file was deleted meanwhile",
        "done": "already in place",
        "old": "applies cleanly; you are asked first",
        "moved -> new": "applies cleanly; you are asked first",
        "run": "by hand: chmod +x run",
        "l": "by hand: ln -sfn run l",
        "mine": "CONFLICT: the file was made meanwhile, with another content",
        "made": "applies cleanly",
        "disk": "merges with your edits",
    }
    assert editor.sent == []
    assert bytes_in(folder) == before


async def test_a_conflict_is_a_block_of_three_sides_and_applies_nothing(folder: Path) -> None:
    editor = Reviewer(folder)
    await editor.keep(modified("long.txt", LONG, SHOUTED))
    document = editor.open("long.txt")
    editor.change(document, "first\n" + LONG.replace("line 3\n", "mine\n"))
    text = await editor.review()
    assert (
        "# CONFLICT in long.txt: nothing of this file is applied, but for hunks elsewhere in it by number\n"
        "#   <<<<<<< yours, the file now, line 5\n#   mine\n"
        "#   ||||||| base, when the run began, line 4\n#   line 3\n"
        "#   =======\n#   LINE 3\n#   >>>>>>> proposal, line 4\n"
    ) in text
    assert [len(file) for file in PatchSet(text)] == [2]
    result = await editor.proposals.decisions.apply(RUN)
    assert [row["outcome"] for row in result["files"]] == ["conflict"]
    assert document.text == "first\n" + LONG.replace("line 3\n", "mine\n")
    result = await editor.proposals.decisions.apply(RUN, hunks=[2])
    assert (result["state"], result["applied"]) == ("partly-applied", True)
    assert "the rest stays a proposal" in result["message"]
    assert document.text == "first\n" + LONG.replace("line 3\n", "mine\n").replace("line 30\n", "LINE 30\n")
    await editor.settle()


async def test_a_file_that_the_user_renamed_is_found(folder: Path) -> None:
    editor = Reviewer(folder)
    record = await editor.keep(modified("long.txt", LONG, SHOUTED))
    (folder / "long.txt").rename(folder / "new name.txt")
    record.renames = record.renames.then("long.txt", "new name.txt")
    assert rows(await editor.review()) == {"long.txt": "applies cleanly; it is new name.txt now"}
    assert (await editor.proposals.decisions.apply(RUN))["state"] == "applied"
    assert (folder / "new name.txt").read_text() == SHOUTED
    await editor.settle()


async def test_what_could_not_be_written_to_disk_is_not_forgotten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = Reviewer(folder)
    await editor.keep(modified("long.txt", LONG, SHOUTED))
    with monkeypatch.context() as full:

        def no_room(self: ProposalStore, proposal: Proposal) -> Path:
            raise ProposalError("The disk is full.")

        full.setattr(ProposalStore, "save", no_room)
        assert (await editor.proposals.decisions.apply(RUN, hunks=[2]))["state"] == "partly-applied"
        (row,) = await editor.proposals.kept.records()
        assert row.state == "partly-applied", "and not what the disk still says"
        _, proposal = await editor.proposals.kept.with_proposal(RUN)
        assert proposal.applied_hunks == (2,)
    await editor.proposals.decisions.discard(RUN, hunks=[1])
    kept = ProposalStore().load(RUN)
    assert (kept.applied_hunks, kept.discarded_hunks) == ((2,), (1,)), "written as soon as there is room"
    await editor.settle()


async def test_a_name_that_reads_as_another_is_shown_is_itself(folder: Path) -> None:
    editor = Reviewer(folder)
    for name in ("bad\\xff", "bad\udcff"):
        (folder / name).write_text("1\n")
    await editor.keep(modified("bad\\xff", "1\n", "2\n"), modified("bad\udcff", "1\n", "2\n"))
    assert (await editor.proposals.decisions.apply(RUN, files=["bad\\xff"]))["applied"] is True
    assert bytes_in(folder)["bad\\xff"] == b"2\n"
    assert bytes_in(folder)["bad\udcff"] == b"1\n"
    await editor.settle()


# --- parts ------------------------------------------------------------------------------------------------------


async def test_parts_are_applied_and_discarded_and_the_numbers_stay(folder: Path) -> None:
    editor = Reviewer(folder)
    (folder / "b.txt").write_text("b\n")
    await editor.keep(modified("long.txt", LONG, SHOUTED), modified("b.txt", "b\n", "B\n"), created("c.txt", "c\n"))
    decisions = editor.proposals.decisions
    await editor.review()
    assert (await decisions.discard(RUN, hunks=[3])) == {"runId": RUN, "state": "proposed"}
    assert (await decisions.apply(RUN, files=["b.txt"]))["state"] == "partly-applied"
    await editor.settle()
    text = review_path(RUN).read_text()
    assert "# hunk 1 of b.txt is in place already:" in text
    assert "# hunk 3 of long.txt was discarded:" in text
    assert [(file.path, len(file)) for file in PatchSet(text)] == [("c.txt", 1), ("long.txt", 1)]
    assert "@@ hunk 4\n" in text
    later = Reviewer(folder)
    result = await later.proposals.decisions.apply(RUN)
    assert (result["state"], result["applied"]) == ("applied", True)
    assert (folder / "long.txt").read_text() == LONG.replace("line 30\n", "LINE 30\n")
    assert (folder / "c.txt").read_text() == "c\n"
    await later.settle()


@pytest.mark.parametrize(
    ("verb", "files", "hunks", "words"),
    [
        ("apply", None, [9], "no hunk 9"),
        ("apply", ["nope.py"], None, "does not change nope.py"),
        ("apply", None, [2], "Hunk 2 was discarded"),
        ("discard", None, [0], "no hunk 0"),
        ("discard", None, [-1], "no hunk -1"),
        ("discard", ["../ws/long.txt"], None, "does not change ../ws/long.txt"),
        ("discard", None, [1], "Hunk 1 is in place already"),
    ],
)
async def test_bad_parts_are_refused(
    folder: Path, verb: str, files: list[str] | None, hunks: list[int] | None, words: str
) -> None:
    editor = Reviewer(folder)
    (folder / "b.txt").write_text("b\n")
    await editor.keep(modified("long.txt", LONG, SHOUTED), modified("b.txt", "b\n", "B\n"))
    await editor.proposals.decisions.apply(RUN, hunks=[1])
    await editor.proposals.decisions.discard(RUN, hunks=[2])
    kept = ProposalStore().load(RUN)
    with pytest.raises(RefusedError, match=words):
        await getattr(editor.proposals.decisions, verb)(RUN, files, hunks)
    assert ProposalStore().load(RUN) == kept
    await editor.settle()


async def test_what_the_command_line_did_meanwhile_counts(folder: Path) -> None:
    editor = Reviewer(folder)
    await editor.keep(modified("long.txt", LONG, SHOUTED), created("c.txt", "c\n"))
    ProposalStore().discard(RUN, hunks=[1])
    assert rows(await editor.review())["c.txt"] == "discarded"
    await editor.proposals.decisions.apply(RUN)
    assert not (folder / "c.txt").exists()
    ProposalStore().discard(RUN)
    with pytest.raises(RefusedError, match="discarded"):
        await editor.proposals.reviews.show(RUN)
    await editor.settle()


@pytest.mark.parametrize("is_discarded", [False, True])
async def test_a_delete_is_asked_for_and_not_done_where_it_was_discarded(folder: Path, is_discarded: bool) -> None:
    editor = Reviewer(folder)
    (folder / "old").write_text("old\n")
    await editor.keep(modified("long.txt", LONG, SHOUTED), deleted("old", "old\n"))
    answered = asyncio.Event()

    async def answer(text: str, answers: list[str]) -> str:
        assert text == "FrogNano also wants to delete old."
        await answered.wait()
        return answers[0]

    editor.session.client.ask = answer  # type: ignore[method-assign]
    result = await editor.proposals.decisions.apply(RUN)
    assert [row["outcome"] for row in result["files"]] == ["applied", "asked"]
    if is_discarded:
        assert (await editor.proposals.decisions.discard(RUN, files=["old"]))["state"] == "applied"
    answered.set()
    await editor.settle()
    assert (folder / "old").exists() == is_discarded
    assert ProposalStore().load(RUN).state == "applied"


async def test_what_is_on_disk_never_changes_a_proposal_that_is_being_applied(folder: Path) -> None:
    editor = Reviewer(folder)
    await editor.keep(modified("long.txt", LONG, SHOUTED), created("e.txt", ""))
    reviewed: list[asyncio.Task[str]] = []
    editor.before_answer = lambda: reviewed.append(asyncio.create_task(editor.review()))
    result = await editor.proposals.decisions.apply(RUN)
    assert (result["state"], result["applied"]) == ("applied", True)
    assert len(await asyncio.gather(*reviewed)) == 2
    kept = ProposalStore().load(RUN)
    assert (kept.applied_files, kept.applied_hunks) == (("e.txt", "long.txt"), (1, 2))
    await editor.settle()


async def test_discarding_the_last_part_ends_it(folder: Path) -> None:
    editor = Reviewer(folder)
    record = await editor.keep(modified("long.txt", LONG, SHOUTED))
    await editor.review()
    await editor.proposals.decisions.discard(RUN, hunks=[1])
    assert (await editor.proposals.decisions.discard(RUN, hunks=[2]))["state"] == "discarded"
    await editor.settle()
    assert not review_path(RUN).exists()
    assert record.proposal is None
    assert ProposalStore().load(RUN).state == "discarded"


async def test_a_proposal_that_could_not_be_kept_is_applied_from_memory(folder: Path) -> None:
    editor = Reviewer(folder)
    await editor.keep(modified("long.txt", LONG, SHOUTED))
    ProposalStore().delete(RUN)
    assert (await editor.proposals.decisions.apply(RUN, hunks=[1]))["state"] == "partly-applied"
    assert ProposalStore().load(RUN).applied_hunks == (1,), "now there was room"
    await editor.settle()


# --- refreshing -------------------------------------------------------------------------------------------------


async def test_a_review_is_written_again_after_a_file_changed(folder: Path) -> None:
    editor = Reviewer(folder)
    await editor.keep(modified("long.txt", LONG, SHOUTED))
    await editor.proposals.refresh_review(RUN)
    assert not review_path(RUN).exists(), "nobody has asked for one"
    await editor.review()
    (folder / "long.txt").write_text(LONG + "more\n")
    await editor.settle()
    editor.asked.clear()
    await editor.proposals.refresh_review(RUN)
    await editor.proposals.refresh_review(RUN)
    await editor.settle()
    assert rows(review_path(RUN).read_text()) == {"long.txt": "merges with your edits"}
    assert editor.methods() == ["workspace/codeLens/refresh"], "once: the second time nothing was new"
    await editor.proposals.refresh_review("20250101-000000-000000")


async def test_no_refresh_for_a_client_that_takes_none(folder: Path) -> None:
    editor = Reviewer(folder, FULL)
    await editor.keep(modified("long.txt", LONG, SHOUTED))
    await editor.review()
    await editor.proposals.decisions.apply(RUN)
    await editor.settle()
    assert editor.methods() == ["window/showDocument"]


async def test_a_virtual_document_where_the_client_shows_them(folder: Path) -> None:
    editor = Reviewer(folder)
    await editor.keep(modified("long.txt", LONG, SHOUTED))
    reviews = editor.proposals.reviews
    reviews.shows_virtual = True
    result = await reviews.show(RUN)
    assert (result["uri"], result["shown"]) == (f"frog-review:/{RUN}.diff", True)
    assert await reviews.text(RUN) == review_path(RUN).read_text()
    await editor.proposals.decisions.apply(RUN, hunks=[1])
    await editor.settle()
    assert ("workspace/textDocumentContent/refresh", {"uri": virtual_uri(RUN)}) in editor.asked
    assert "hunk 1 of long.txt is in place already" in await reviews.text(RUN)
    await editor.proposals.decisions.discard(RUN)
    assert await reviews.text(RUN) == "# the run has no proposal: it is discarded\n"
    await editor.settle()


# --- lenses -----------------------------------------------------------------------------------------------------


async def test_lenses_stand_over_open_hunks(folder: Path) -> None:
    editor = Reviewer(folder)
    await editor.keep(
        modified("long.txt", LONG, SHOUTED), created("conftest.py", "x\n"), modified("\udcff", "a\n", "b\n")
    )
    text = await editor.review()
    found = lenses(text, RUN, await editor.proposals.reviews.open_hunks(RUN))
    assert titles(found) == [
        "Apply all", "Discard", "Apply hunk 1 in spite of: python-startup", "Discard hunk 1", "Apply hunk 2",
        "Discard hunk 2", "Apply hunk 3", "Discard hunk 3", "Discard hunk 4",
    ]  # fmt: skip
    arguments = [lens["command"]["arguments"] for lens in found]
    assert arguments[:3] == [[{"runId": RUN}]] * 2 + [[{"runId": RUN, "hunks": [1], "files": ["conftest.py"]}]]
    assert arguments[4] == arguments[5] == [{"runId": RUN, "hunks": [2]}]
    assert [lens["command"]["command"] for lens in found[4:6]] == ["frog.apply", "frog.discard"]
    lines = text.split("\n")
    assert [lens["range"]["start"]["line"] for lens in found[:2]] == [0, 0]
    for lens in found[2:]:
        number = lens["command"]["title"].split()[2]
        assert lines[lens["range"]["start"]["line"]].endswith(f"@@ hunk {number}")
    await editor.proposals.decisions.apply(RUN, hunks=[2])
    await editor.proposals.decisions.discard(RUN, hunks=[1])
    left = lenses(text, RUN, await editor.proposals.reviews.open_hunks(RUN))
    assert [title for title in titles(left) if "hunk" in title] == ["Apply hunk 3", "Discard hunk 3", "Discard hunk 4"]
    await editor.settle()


def test_a_hunk_has_its_lenses_once_wherever_its_header_is_repeated() -> None:
    change = modified("a", "a\n", "b\n")
    text = "@@ -1 +1 @@ hunk 1\n-a\n+b\r@@ -1 +1 @@ hunk 1\n+@@ -1 +1 @@ hunk 1\n# @@ -1 +1 @@ hunk 1\n"
    found = lenses(text, RUN, {1: change})
    assert [(lens["range"]["start"]["line"], lens["command"]["title"]) for lens in found[2:]] == [
        (0, "Apply hunk 1"),
        (0, "Discard hunk 1"),
    ]


def test_only_reviews_are_reviews(folder: Path, tmp_path: Path) -> None:
    reviews = review_path(RUN).parent
    good = to_uri(review_path(RUN))
    assert run_of_review(good) == RUN
    assert run_of_review(good.replace("-", "%2D").replace("file://", "FILE://localhost")) == RUN
    assert run_of_review(to_uri(reviews) + f"/../reviews/./{RUN}.diff") == RUN
    assert run_of_review(virtual_uri(RUN)) == run_of_review(f"frog-review:///{RUN}.diff") == RUN
    for uri in (
        "", "x", f"{good}.txt", good.replace(".diff", ".DIFF"), to_uri(reviews.parent / f"{RUN}.diff"),
        to_uri(reviews / "deep" / f"{RUN}.diff"), to_uri(tmp_path / f"{RUN}.diff"), to_uri(reviews / ".diff"),
        to_uri(reviews / "..diff"), to_uri(reviews) + "/%2e%2e%2f..%2fx.diff", to_uri(reviews) + "/a%00.diff",
        f"frog-review:/../{RUN}.diff", f"frog-review:/x/{RUN}.diff", f"frog-review://host/{RUN}.diff",
        f"frog-review:/{RUN}.diff?x", "frog-review:/%2e%2e%2fx.diff", "frog-review:/.diff", "frog-review:/..diff",
        f"frog-review:{RUN}.diff", "frog-review://[", f"untitled:{RUN}.diff",
    ):  # fmt: skip
        assert run_of_review(uri) is None, uri
