"""How far a proposal goes beyond its issue: files that the issue does not speak of, and changes larger than a fix."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from agent.changes.lines import line_edits, split_lines
from agent.types import ChangeSet, FileChange, Flag

LARGE_FILES = 17
LARGE_LINES = 330
"""Ten times what a fix of one issue takes: 1.7 files and 33 lines are the means of the reference fixes in SWE-bench."""

_WORD = re.compile(r"[\w./-]+")


def scope_flags(changes: ChangeSet, issue: str, is_ignored: Iterable[str]) -> dict[str, list[Flag]]:
    """Flags by path. What git ignores counts neither as a file nor by its lines.

    A file is beside the issue where the issue names others of the changed files, and it is neither named, nor in
    the folder of a named one, nor a test of one.
    """
    ignored = set(is_ignored)
    counted = [change for change in changes.changes if change.path not in ignored]
    flags: dict[str, list[Flag]] = {change.path: [] for change in changes.changes}
    for path, named in _beside(counted, issue):
        why = f"the issue speaks of {named}, not of this: look at why it had to change"
        flags[path].append(Flag(code="beside-issue", level="note", why=why))
    for path, why in _large(counted):
        flags[path].append(Flag(code="large-change", level="note", why=why))
    return flags


def _beside(changes: list[FileChange], issue: str) -> Iterator[tuple[str, str]]:
    """(path, a file that the issue names) of each change beside it."""
    words = {word.strip(".").lower() for word in _WORD.findall(issue)}
    words |= {part for word in words for part in word.split(".")} | {posixpath.basename(word) for word in words}
    named = [change.path for change in changes if _is_named(change.path, words)]
    near = {posixpath.dirname(path) for path in named}
    stems = {_stem(path) for path in named}
    for change in changes if named else ():
        is_near = posixpath.dirname(change.path) in near
        if not (change.path in named or is_near or stems & set(re.split(r"[_.-]", _stem(change.path)))):
            yield change.path, named[0]


def _is_named(path: str, words: set[str]) -> bool:
    stem = _stem(path)
    return path.lower() in words or posixpath.basename(path).lower() in words or (len(stem) > 3 and stem in words)


def _stem(path: str) -> str:
    return posixpath.basename(path).partition(".")[0].lower()


def _large(changes: list[FileChange]) -> Iterator[tuple[str, str]]:
    """(path, why) of each change of a run that changes many files, or that makes up much of many lines."""
    if len(changes) > LARGE_FILES:
        for change in changes:
            yield change.path, f"one of {len(changes)} files that the run changes: a fix of one issue takes one or two"
        return
    lines = {change.path: _changed_lines(change) for change in changes}
    total = sum(lines.values())
    for path, n_lines in lines.items():
        if total > LARGE_LINES and n_lines * len(lines) >= total:
            yield path, f"{n_lines:,} of {total:,} changed lines: a fix of one issue takes some thirty"


def _changed_lines(change: FileChange) -> int:
    before, after = ((state and state.data) or b"" for state in (change.before, change.after))
    if b"\0" in before or b"\0" in after:
        return 0
    old, new = split_lines(before), split_lines(after)
    return sum(max(edit.old_hi - edit.old_lo, edit.new_hi - edit.new_lo) for edit in line_edits(old, new))
