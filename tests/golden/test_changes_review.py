"""Review documents, whole, as people and editors get them.

To accept a change that is meant: `pytest --snapshot-update` on this file, then read the difference.
"""

from __future__ import annotations

from dataclasses import replace

from syrupy.assertion import SnapshotAssertion

from agent.changes.changeset import assemble
from agent.changes.diff import patch
from agent.changes.merge import merge
from agent.changes.outlook import Outlook, Prospect
from agent.changes.proposal import Proposal
from agent.changes.review import render
from agent.jail.risk import flag
from agent.types import ExitReason, FileState, JailInfo, ModelInfo, PathDelta, TestOutcome
from tests.unit.test_changes_proposals import proposal

SUM = b"""\
def add(a, b):
    return a - b


def total(numbers):
    result = 0
    for number in numbers:
        result = add(result, number)
    return result


def mean(numbers):
    return total(numbers) / len(numbers)


def spread(numbers):
    return max(numbers) - min(numbers)
"""
FIXED = (
    SUM.replace(b"a - b", b"a + b")
    .replace(b"/ len(numbers)", b"/ len(numbers) if numbers else 0.0")
    .replace(b"- min(numbers)", b"- min(numbers) if numbers else 0.0")
)
MINE = SUM.replace(b"return a - b", b"return sum((a, b))")


def test_a_change_of_every_level_of_risk(snapshot: SnapshotAssertion) -> None:
    assert render(proposal()) == snapshot


def test_a_conflict_tests_flags_and_a_part_that_is_settled(snapshot: SnapshotAssertion) -> None:
    deltas = [
        PathDelta(path="src/sums.py", before=FileState(data=SUM), after=FileState(data=FIXED)),
        PathDelta(path="conftest.py", before=None, after=FileState(data=b"import sums\n")),
        PathDelta(path="notes.md", before=FileState(data=b"# Sums\n"), after=FileState(data=b"# Sums\n\nThey add.\n")),
        PathDelta(path="tools/check.sh", before=None, after=FileState(data=b"#!/bin/sh\npytest -q\n", mode=0o755)),
    ]
    changes = flag(assemble(deltas), "/home/me/sums", lambda path: False)
    kept = Proposal(
        run_id="20260131-142501-3fa2c1",
        title="Fix in src/sums.py, line 2: add subtracts",
        workspace="/home/me/sums",
        folder="file:///home/me/sums",
        created_s=0.0,
        exit_reason=ExitReason.MAX_TURNS,
        final_message="add() subtracted; mean() and spread() of nothing are 0 now.",
        changes=changes,
        patch=patch(changes),
        model=ModelInfo(kind="worker", name="tadpole", demonstration=True),
        jail=JailInfo(backend="files", reduced="no shell: user namespaces are switched off on this machine"),
        n_steps=150,
        elapsed_s=312.4,
        test_command="python -m pytest -q",
        tests_before=TestOutcome(exit_code=1, tail="E   assert 1 == 3\n1 failed, 4 passed in 0.05s\n"),
        tests_after=TestOutcome(exit_code=0, tail="5 passed in 0.04s\n"),
        notes=("The context was lowered to 32768 tokens: that is what fits into the memory.",),
    )
    found = merge(SUM, MINE, FIXED)
    assert found.data is None
    outlooks = {
        "conftest.py": Outlook(prospect=Prospect.CLEAN),
        "notes.md": Outlook(prospect=Prospect.MERGED),
        "src/sums.py": Outlook(
            prospect=Prospect.CONFLICT, detail="the same lines changed meanwhile (line 2)", conflicts=found.conflicts
        ),
        "tools/check.sh": Outlook(prospect=Prospect.CLEAN, detail="then by hand: chmod +x tools/check.sh"),
    }
    settled = replace(kept.with_discarded(hunks=[4]), model=kept.model)
    assert render(settled, outlooks) == snapshot
