"""What applying would do to a file as it is now: the words of a review."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.changes.merge import Conflict


class Prospect(StrEnum):
    """What would become of the file."""

    CLEAN = "applies cleanly"
    MERGED = "merges with your edits"
    CONFLICT = "conflict"
    IN_PLACE = "already in place"
    BY_HAND = "by hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """`detail` is why, or the command that does it by hand; `conflicts` the stretches that both sides changed."""

    prospect: Prospect
    detail: str = ""
    conflicts: tuple[Conflict, ...] = ()
