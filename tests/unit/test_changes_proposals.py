"""Kept proposals survive restarts, crashes and full disks, and belong to their user alone."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.changes.changeset import assemble
from agent.changes.diff import hunks, patch
from agent.changes.proposals import Proposal, ProposalState, ProposalStore
from agent.errors import ProposalError, UsageError
from agent.jail.risk import flag
from agent.types import (
    ChangeKind,
    ChangeSet,
    ExitReason,
    FileChange,
    FileState,
    Issue,
    JailInfo,
    ModelInfo,
    PathDelta,
    RunError,
    RunResult,
    RunSpec,
    TestOutcome,
    Usage,
)

LONG = b"".join(b"line %d\n" % i for i in range(60))
EDITED = LONG.replace(b"line 5\n", b"five\n").replace(b"line 30\n", b"thirty\n").replace(b"line 55\n", b"fifty\n")
MODIFIED = FileChange(path="a.txt", kind=ChangeKind.MODIFIED, before=FileState(data=LONG), after=FileState(data=EDITED))


def changes() -> ChangeSet:
    deltas = [
        PathDelta(path="a.txt", before=FileState(data=LONG), after=FileState(data=EDITED, mode=0o755)),
        PathDelta(path="b\udcff.py", before=None, after=FileState(data=b"\x00\xff")),
        PathDelta(path="conftest.py", before=FileState(data=b"x\n"), after=None),
        PathDelta(path="link", before=None, after=FileState(data=None, mode=0o777, link="a.txt")),
        PathDelta(path=".git/config", before=None, after=FileState(data=b"")),
    ]
    return flag(assemble(deltas, ["a note"]), "/w", lambda path: False)


def proposal(run_id: str = "20260101-120000-abcd", made: ChangeSet | None = None) -> Proposal:
    made = changes() if made is None else made
    spec = RunSpec(run_id=run_id, workspace="/w", issue=Issue(text="Fix it\nplease"))
    result = RunResult(
        run_id=run_id, exit_reason=ExitReason.AGENT, final_message="Done – fixed.", n_steps=3, usage=Usage(),
        elapsed_s=1.5, model=ModelInfo(kind="worker", name="tadpole", demonstration=True),
        jail=JailInfo(backend="namespaces"), changes=made, patch=patch(made), test_command="pytest",
        tests_before=TestOutcome(exit_code=1, tail="1 failed"), tests_after=TestOutcome(exit_code=None, tail=""),
        trajectory="/s/t.jsonl", notes=("n",), error=RunError(kind="tool_error", message="m", hint="h"),
    )  # fmt: skip
    return Proposal.of(spec, result, "file:///w")


@pytest.fixture
def store(tmp_path: Path) -> ProposalStore:
    return ProposalStore(tmp_path / "state")


def test_what_is_saved_is_loaded_by_another_process(store: ProposalStore) -> None:
    kept = proposal()
    path = store.save(kept)
    assert ProposalStore(store.folder).load(kept.run_id) == kept
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["proposal.json"]


def test_the_beginning_of_an_id_is_enough_where_one_run_has_it(store: ProposalStore) -> None:
    store.save(proposal("20260101-a"))
    store.save(proposal("20260101-b"))
    assert store.load("20260101-b").run_id == "20260101-b"
    with pytest.raises(ProposalError, match="Several runs") as caught:
        store.load("2026")
    assert caught.value.hint
    for unknown in ("", "x", "../20260101-a", "/"):
        with pytest.raises(ProposalError, match="no proposal") as caught:
            store.load(unknown)
        assert "frog-lsp runs" in caught.value.hint
    store.save(proposal("2026"))
    assert store.load("2026").run_id == "2026", "a whole id is no beginning"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"{}", b'{"format": 2}', b'{"format": 1}', b"\xff", b"[" * 9000]
)
def test_a_damaged_file_harms_nothing_else(store: ProposalStore, data: bytes) -> None:
    good = proposal("good")
    store.save(good)
    path = store.save(proposal("bad"))
    path.write_bytes(data)
    assert list(store.list()) == [good]
    with pytest.raises(ProposalError, match="cannot be read"):
        store.load("bad")
    assert store.discard("bad") is None
    assert list(store.list()) == [good]
    with pytest.raises(ProposalError, match="no proposal"):
        store.load("bad")


@pytest.mark.parametrize(
    "forge",
    [
        lambda value: value.update(run_id="../../elsewhere"),
        lambda value: value.update(run_id="another"),
        lambda value: value.update(created_s=float("nan")),
        lambda value: value.update(title=5),
        lambda value: value.update(trajectory=["x"]),
        lambda value: value.update(applied_hunks=["1"]),
        lambda value: value["tests"].update(command=["true"]),
        lambda value: value["changes"][0].update(path="../outside.py"),
        lambda value: value["changes"][0].update(path="/outside.py"),
        lambda value: value["changes"][0].update(path="a/./b.py"),
        lambda value: value["changes"][0].update(path=".git/hooks/pre-commit"),
        lambda value: value["changes"][0].update(path="a\0b"),
        lambda value: value["changes"][0].update(old_path=["x"]),
        lambda value: value["changes"][0].update(after=None),
        lambda value: value["changes"][0].update(before=None),
        lambda value: value["changes"][0].update(flags=[{"code": 5, "level": "note", "why": ""}]),
        lambda value: value["changes"][0].update(flags=[{"code": "c", "level": "what", "why": ""}]),
    ],
)
def test_a_forged_file_is_not_read(store: ProposalStore, forge: Callable[[Any], None]) -> None:
    good = proposal("good")
    store.save(good)
    path = store.save(proposal("bad", ChangeSet(changes=(MODIFIED,))))
    assert store.load("bad").changes.changes == (MODIFIED,)
    value = json.loads(path.read_text())
    forge(value)
    path.write_text(json.dumps(value))
    with pytest.raises(ProposalError, match="cannot be read"):
        store.load("bad")
    assert list(store.list()) == [good]


def test_a_file_of_another_user_is_not_read(store: ProposalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(proposal("r"))
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ProposalError, match="cannot be read"):
        store.load("r")


def test_a_crash_in_mid_write_leaves_the_old_state(store: ProposalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = proposal()
    store.save(kept)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProposalError, match="No space left") as caught:
        store.save(replace(kept, title="other"))
    assert "room" in caught.value.hint
    assert store.load(kept.run_id) == kept
    assert os.listdir(store.runs / kept.run_id) == ["proposal.json"]


def test_a_bad_id_never_leaves_the_folder(store: ProposalStore) -> None:
    for run_id in ("../x", "a/b", "", ".", "..", ".hidden"):
        with pytest.raises(ProposalError, match="no id"):
            store.save(replace(proposal(), run_id=run_id))


def test_discarding_keeps_the_line_and_drops_the_content(store: ProposalStore) -> None:
    store.save(proposal())
    store.discard("2026")
    [row] = store.list()
    assert row.state is ProposalState.DISCARDED
    assert row.title == "Fix it"
    assert row.changes.changes == ()
    assert b"thirty" not in (store.runs / row.run_id / "proposal.json").read_bytes()


def test_old_ones_are_forgotten(store: ProposalStore) -> None:
    now_s = time.time()
    store.save(replace(proposal("old"), created_s=now_s - 31 * 86_400))
    store.save(replace(proposal("new"), created_s=now_s))
    path = store.save(proposal("torn"))
    path.write_bytes(b"{")
    os.utime(path.parent, (0, 0))
    assert store.forget(older_than_days=30) == 2
    assert [kept.run_id for kept in store.list()] == ["new"]
    assert store.forget(older_than_days=0) == 1
    assert ProposalStore(Path("/nonexistent")).forget() == 0


def test_two_processes_cannot_hold_one_proposal(store: ProposalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(proposal())
    monkeypatch.setattr("agent.changes.proposals.LOCK_TIMEOUT_S", 0.1)
    with store.lock("2026"), pytest.raises(ProposalError, match="another frog-lsp"), store.lock("2026"):
        pass


def test_what_remains_keeps_its_numbers() -> None:
    kept = proposal()
    numbers = [hunk.number for hunk in hunks(kept.changes) if hunk.path == "a.txt"]
    assert numbers == [1, 2, 3]
    part = kept.with_applied([], [2])
    assert part.state is ProposalState.PARTLY_APPLIED
    assert [change.path for change in part.remaining().changes] == ["a.txt", "b\udcff.py", "conftest.py", "link"]
    left = part.remaining().changes[0].after
    assert left is not None
    assert b"thirty" not in (left.data or b"")
    assert b"fifty" in (left.data or b"")
    whole = part.with_applied(["conftest.py", "link"], [1, 3])
    assert [change.path for change in whole.remaining().changes] == ["b\udcff.py"]
    assert whole.state is ProposalState.APPLIED, "what is never applied does not keep it open"
    assert kept.with_applied([], []).state is ProposalState.PROPOSED
    assert kept.with_applied(["link"], [], conflict=True).state is ProposalState.CONFLICT


def test_first_states() -> None:
    assert proposal().state is ProposalState.PROPOSED
    empty = proposal(made=ChangeSet())
    assert empty.state is ProposalState.FAILED


def test_what_is_discarded_is_out_for_good(store: ProposalStore) -> None:
    kept = proposal()
    store.save(kept)
    after = store.discard(kept.run_id, hunks=[2, 4])
    assert after == store.load(kept.run_id), "it survives a restart"
    assert after is not None
    assert (after.state, after.discarded_hunks, after.discarded_files) == ("proposed", (2, 4), ("conftest.py",))
    assert [change.path for change in after.remaining().changes] == ["a.txt", "b\udcff.py", "link"]
    [part] = after.chosen(files=["a.txt"]).changes
    assert part.after is not None
    assert part.after.data == EDITED.replace(b"thirty\n", b"line 30\n")
    assert store.discard(kept.run_id, hunks=[2]) == after, "twice is once"


def test_what_cannot_be_discarded_or_is_gone_already() -> None:
    part = proposal().with_applied(["link"], [1, 5]).with_discarded(hunks=[2])
    for files, numbers, words in (
        (None, [1], "Hunk 1 is in place"),
        (None, [9], "no hunk 9"),
        (None, [0], "no hunk 0"),
        (["nope"], None, "does not change nope"),
        (["link"], None, "link is in place"),
    ):
        with pytest.raises(UsageError, match=words) as caught:
            part.with_discarded(files, numbers)
        assert caught.value.hint
    for files, numbers in ((None, [2]), (["conftest.py"], None)):
        with pytest.raises(UsageError, match="was discarded"):
            part.with_discarded(files=["conftest.py"]).chosen(files, numbers)
    assert part.with_discarded(files=[]) == part.with_discarded(hunks=[]) == part


def test_a_proposal_ends_when_its_last_part_is_discarded() -> None:
    kept = proposal()
    gone = kept.with_discarded(files=["a.txt", "link"]).with_discarded(hunks=[4])
    assert (gone.state, gone.changes, gone.patch) == (ProposalState.DISCARDED, ChangeSet(), "")
    assert kept.with_discarded() == replace(kept, state=ProposalState.DISCARDED, changes=ChangeSet(), patch="")
    part = kept.with_applied([], [1, 3]).with_discarded(files=["link", "conftest.py"])
    assert part.state is ProposalState.PARTLY_APPLIED
    assert part.with_discarded(hunks=[2]).state is ProposalState.APPLIED
    assert part.with_discarded(files=["a.txt"]).state is ProposalState.APPLIED


def test_a_file_of_an_earlier_version_has_discarded_nothing(store: ProposalStore) -> None:
    kept = proposal()
    path = store.save(kept)
    value = json.loads(path.read_bytes())
    del value["discarded_files"], value["discarded_hunks"]
    path.write_text(json.dumps(value))
    assert store.load("2026") == kept
