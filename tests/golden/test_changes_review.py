"""The review document and the patch of one proposal, whole, as people and editors get them.

To accept a change that is meant: `python -m tests.golden.test_changes_review`, then read the difference.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.changes.review import render
from tests.unit.test_changes_proposals import proposal

GOLDEN = Path(__file__).with_name("review.diff")


def document() -> str:
    """The review of a proposal with a change of every level of risk."""
    return render(replace(proposal(), created_s=0.0))


def test_the_review_document() -> None:
    assert document().encode() == GOLDEN.read_bytes()


if __name__ == "__main__":
    GOLDEN.write_bytes(document().encode())
