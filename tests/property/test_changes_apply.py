"""Applying gives the changed tree; with edits of the user in between, nothing of theirs is lost."""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.changes.apply import apply_to_disk
from agent.changes.diff import hunks
from agent.changes.proposals import Proposal
from agent.jail.risk import flag
from agent.types import ChangeSet, ExitReason, FileState, JailInfo, ModelInfo
from tests.property.test_changes_diff import Tree, contents, delta, edited, read, write

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def proposal(root: str, changes: ChangeSet) -> Proposal:
    return Proposal(
        run_id="r", title="t", workspace=root, folder=root, created_s=0.0, exit_reason=ExitReason.AGENT,
        final_message="", changes=flag(changes, root, lambda path: False), patch="",
        model=ModelInfo(kind="scripted", name="s"), jail=JailInfo(backend="files"),
    )  # fmt: skip


def make(root: str, tree: Tree) -> None:
    write(root, tree)
    for name, state in tree.items():
        assert state.link is not None or os.path.isfile(os.path.join(root, name))


@SLOW
@given(edited())
def test_an_untouched_workspace_becomes_the_changed_tree(pair: tuple[Tree, Tree]) -> None:
    before, after = pair
    with tempfile.TemporaryDirectory() as root:
        make(root, before)
        outcome = apply_to_disk(proposal(root, delta(before, after)), include_flagged=True)
        assert outcome.conflicts == outcome.failed == ()
        now = read(root)
        for path, _ in outcome.skipped:  # links that would lead out
            now.pop(path, None)
            assert after.pop(path).link is not None
        assert now == after


@SLOW
@given(edited(), st.data())
def test_what_the_user_did_meanwhile_is_there_afterwards(pair: tuple[Tree, Tree], data: st.DataObject) -> None:
    before, after = pair
    with tempfile.TemporaryDirectory() as root:
        make(root, before)
        mine: Tree = {}
        for name in data.draw(st.sets(st.sampled_from(sorted(before)), max_size=2)) if before else ():
            mine[name] = FileState(data=b"a line of mine %d\n" % len(mine) + data.draw(contents))
            if os.path.islink(os.path.join(root, name)):
                os.unlink(os.path.join(root, name))
        write(root, mine)
        apply_to_disk(proposal(root, delta(before, after)), include_flagged=True)
        everything = [state.data or b"" for state in read(root).values()]
        for i in range(len(mine)):
            assert any(b"a line of mine %d\n" % i in text for text in everything)


@SLOW
@given(contents, contents, st.data())
def test_hunks_one_after_the_other_give_the_whole(before: bytes, after: bytes, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as root:
        write(root, {"f": FileState(data=before)})
        kept = proposal(root, delta({"f": FileState(data=before)}, {"f": FileState(data=after)}))
        numbers = [hunk.number for hunk in hunks(kept.changes)]
        for number in data.draw(st.permutations(numbers)):
            outcome = apply_to_disk(kept, hunks=[number])
            assert outcome.conflicts == outcome.failed == ()
            kept = outcome.proposal
        assert read(root)["f"].data == (after if numbers else before)
        if numbers:
            assert kept.state == "applied"
            assert kept.remaining().changes == ()
