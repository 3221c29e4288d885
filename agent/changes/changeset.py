"""From the differences of paths to the ChangeSet of a run."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable

from agent.types import ChangeKind, ChangeSet, FileChange, FileState, JsonObject, PathDelta
from agent.visible import visible

CACHES = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
"""Folders that tools leave behind; with `*.pyc` they are counted, not listed."""

MAX_NAMED = 20
"""A note names at most this many paths."""


def assemble(deltas: Iterable[PathDelta], notes: Iterable[str] = ()) -> ChangeSet:
    """Classify what differs between the snapshot and the private view.

    Caches are left out and counted. Whatever lies under a `.git` folder, or is a `.git` file, is left out,
    named in `omitted` and in a note. A file that differs in nothing but its times is no change. Folders are
    never changes themselves. The result is sorted by path.
    """
    n_generated = 0
    omitted: list[str] = []
    changes: list[FileChange] = []
    for delta in deltas:
        if is_git_internal(delta.path):
            omitted.append(delta.path)
        elif is_cache(delta.path):
            n_generated += 1
        elif (kind := _classify(delta.before, delta.after)) is not None:
            changes.append(
                FileChange(
                    path=delta.path, kind=kind, before=delta.before, after=delta.after, base_known=delta.base_known
                )
            )
    omitted.sort()
    return ChangeSet(
        changes=tuple(sorted(_with_renames(changes), key=lambda change: change.path)),
        n_generated=n_generated,
        omitted=tuple(omitted),
        notes=(*notes, *_omission_notes(omitted)),
    )


def changes_json(changeset: ChangeSet) -> list[JsonObject]:
    """The changes as `--json` and the protocol show them; flags by their codes, each once."""
    rows: list[JsonObject] = []
    for change in changeset.changes:
        row: JsonObject = {"path": printable(change.path), "kind": change.kind.value}
        if change.old_path is not None:
            row["old_path"] = printable(change.old_path)
        row["flags"] = list(dict.fromkeys(flag.code for flag in change.flags))
        row["applied_by_default"] = change.applied_by_default
        rows.append(row)
    return rows


def printable(path: str) -> str:
    r"""The path as valid Unicode: bytes that are not UTF-8 appear as `\xNN`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def shown(path: str) -> str:
    r"""The path on one line, safe to show: a line feed in a name is written `\n`, so that no name forges a line."""
    return visible(printable(path).replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t"))


def is_git_internal(path: str) -> bool:
    """Whether git itself reads the path: a part is `.git` (in any case: some file systems ignore it)."""
    return any(part.lower() == ".git" for part in path.split("/"))


def is_cache(path: str) -> bool:
    """Whether the path is a cache that Python tools leave."""
    return path.endswith(".pyc") or any(part in CACHES for part in path.split("/"))


def _classify(before: FileState | None, after: FileState | None) -> ChangeKind | None:
    if before == after:
        return None
    if after is None:
        return ChangeKind.DELETED
    if after.link is not None or (before is not None and before.link is not None):
        same_target = before is not None and before.link is not None and before.link == after.link
        return None if same_target else ChangeKind.LINK  # the mode of a link means nothing
    if before is None:
        return ChangeKind.CREATED
    if before.data == after.data and after.data is not None:
        return ChangeKind.MODE
    return ChangeKind.MODIFIED


def _with_renames(changes: list[FileChange]) -> list[FileChange]:
    """Join a deleted and a created file with the very same bytes, those of one name first."""
    gone: dict[bytes, list[FileChange]] = defaultdict(list)
    for change in sorted(changes, key=lambda change: change.path):
        if change.kind is ChangeKind.DELETED and change.base_known and change.before and change.before.data is not None:
            gone[change.before.data].append(change)
    made = [
        change
        for change in sorted(changes, key=lambda change: change.path)
        if change.kind is ChangeKind.CREATED and change.after and change.after.data in gone
    ]
    renames: dict[str, FileChange] = {}
    for same_name in (True, False):
        for change in made:
            assert change.after is not None
            assert change.after.data is not None
            sources = gone[change.after.data]
            if change.path in renames:
                continue
            at = next((i for i, s in enumerate(sources) if not same_name or _name(s) == _name(change)), None)
            if at is not None:
                renames[change.path] = sources.pop(at)
    sources_by_path = {source.path for source in renames.values()}
    return [
        _renamed(renames[change.path], change) if change.path in renames else change
        for change in changes
        if change.path not in sources_by_path
    ]


def _renamed(source: FileChange, target: FileChange) -> FileChange:
    return FileChange(
        path=target.path, kind=ChangeKind.RENAMED, before=source.before, after=target.after, old_path=source.path
    )


def _name(change: FileChange) -> str:
    return change.path.rpartition("/")[2]


def _omission_notes(omitted: list[str]) -> list[str]:
    if not omitted:
        return []
    named = ", ".join(shown(path) for path in omitted[:MAX_NAMED])
    more = f" and {len(omitted) - MAX_NAMED} more" if len(omitted) > MAX_NAMED else ""
    return [f"Changes under .git are never applied and were left out: {named}{more}."]
