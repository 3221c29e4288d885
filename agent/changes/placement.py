"""One change put in its place in the real workspace, merged with what the user did there meanwhile."""

from __future__ import annotations

import os
from dataclasses import replace

from agent.changes.changeset import shown
from agent.changes.merge import Conflict, merge
from agent.changes.tree import Entry, Tree
from agent.types import ChangeKind, FileChange, FileState


class InTheWay(Exception):
    """The file was left as it is: it changed meanwhile. `conflicts` holds the stretches, where lines are the cause."""

    def __init__(self, reason: str, conflicts: tuple[Conflict, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.conflicts = conflicts


def put(tree: Tree, change: FileChange) -> None:
    """Make the change true. Raises InTheWay, ChangedMeanwhileError (read it again) and OSError."""
    if change.kind is ChangeKind.RENAMED:
        _rename(tree, change)
        return
    now = tree.read(change.path)
    if not _is_due(change, now):
        return
    if change.after is None:
        assert now is not None
        _delete(tree, change, now)
    elif now is None:
        tree.create(change.path, change.after)
        _verify(tree, change.path, change.after)
    elif change.kind is ChangeKind.MODE:
        tree.set_mode(change.path, _merged_mode(now.state.mode, change))
    else:
        _replace(tree, change, now)


def foresee(tree: Tree, change: FileChange) -> tuple[bool, bool]:
    """Whether `put` would change anything now, and whether what is there is as the run saw it; nothing is written.

    Raises InTheWay as `put` would, and OSError.
    """
    if change.kind is ChangeKind.RENAMED:
        return _source_of(tree, change) is not None, True
    now = tree.read(change.path)
    is_as_before = now is None or change.before is None or _has(now, change.before)
    return _is_due(change, now), is_as_before


def leads_outside(path: str, target: str, workspace: str) -> bool:
    """Whether a link at `path` would lead out of the workspace, through the links that are there now, or might."""
    named = [part for part in target.split("/") if part not in ("", ".")]
    if ".." in named[next((i for i, part in enumerate(named) if part != ".."), len(named)) :]:
        return True
    root = os.path.realpath(workspace)
    end = os.path.realpath(os.path.join(root, os.path.dirname(path), target))
    return end != root and not end.startswith(root.rstrip("/") + "/")


def _has(now: Entry | None, state: FileState) -> bool:
    """Whether the path has this content (or target); its mode is looked at apart."""
    if now is None or (now.state.data is None and now.state.link is None):
        return False
    return (now.state.data, now.state.link) == (state.data, state.link)


def _is_due(change: FileChange, now: Entry | None) -> bool:
    """Whether anything is to be done to what is there now. Raises InTheWay."""
    if change.after is None:
        if now is not None and not (change.before and change.base_known and _has(now, change.before)):
            raise InTheWay("it changed since the run began, so it is not deleted")
        return now is not None
    if change.kind is ChangeKind.MODE:
        if now is None or now.state.data is None:
            raise InTheWay("it is gone, or no plain file any more")
        return _merged_mode(now.state.mode, change) != now.state.mode
    if change.before is None:
        if now is not None and not _has(now, change.after):
            raise InTheWay("something else was made there meanwhile")
        return now is None
    if now is None:
        raise InTheWay("it was deleted meanwhile")
    target = _target(change, now)
    return not (_has(now, target) and now.state.mode == target.mode)


def _delete(tree: Tree, change: FileChange, now: Entry) -> None:
    tree.remove(change.path, now)
    if tree.read(change.path) is not None:
        raise InTheWay("something was made there right after it was deleted")


def _rename(tree: Tree, change: FileChange) -> None:
    assert change.old_path is not None
    assert change.before is not None
    assert change.after is not None
    old = _source_of(tree, change)
    if old is None:
        return
    if _are_nested(change.old_path, change.path):
        _move_into_own_place(tree, change.old_path, old, change.path)
    else:
        tree.rename(change.old_path, old, change.path)
    if change.before.mode != change.after.mode:
        tree.set_mode(change.path, _merged_mode(old.state.mode, change))
    _verify(tree, change.path, change.after)


def _source_of(tree: Tree, change: FileChange) -> Entry | None:
    """The file to rename, None where that is done already. Raises InTheWay."""
    assert change.old_path is not None
    assert change.before is not None
    assert change.after is not None
    old = tree.read(change.old_path)
    is_nested = old is not None and _are_nested(change.old_path, change.path)
    now = None if is_nested else tree.read(change.path)
    if old is None and _has(now, change.after):
        return None
    if old is None:
        raise InTheWay(f"{shown(change.old_path)} is gone")
    if now is not None:
        raise InTheWay("something else was made there meanwhile")
    if not _has(old, change.before):
        raise InTheWay(f"{shown(change.old_path)} changed since the run began, so it is not moved")
    return old


def _are_nested(path: str, other: str) -> bool:
    return path.startswith(other + "/") or other.startswith(path + "/")


def _move_into_own_place(tree: Tree, old_path: str, old: Entry, path: str) -> None:
    """`a` becomes `a/b`, or `a/b` becomes `a`: it has to be away before the other can be."""
    tree.remove(old_path, old)
    try:
        tree.create(path, old.state)
    except OSError:
        tree.create(old_path, old.state)
        raise


def _replace(tree: Tree, change: FileChange, now: Entry) -> None:
    target = _target(change, now)
    if _has(now, target) and target.data is not None:
        tree.set_mode(change.path, target.mode)
        return
    tree.replace(change.path, now, target)
    _verify(tree, change.path, target)


def _target(change: FileChange, now: Entry) -> FileState:
    """What is to be at the path: the run's edits put into what is there now. Raises InTheWay."""
    assert change.before is not None
    assert change.after is not None
    mode = _merged_mode(now.state.mode, change)
    if _has(now, change.after):
        return replace(now.state, mode=mode)
    if not change.base_known:
        raise InTheWay("it changed during the run before its base was kept")
    if change.before.data is None or change.after.data is None:  # a link before or after: no text to merge
        if not _has(now, change.before):
            raise InTheWay("it changed since the run began")
        return replace(change.after, mode=change.after.mode & 0o777)
    if now.state.data is None:
        raise InTheWay("it is no plain file any more")
    merged = merge(change.before.data, now.state.data, change.after.data)
    if merged.data is None:
        lines = ", ".join(str(conflict.theirs_line) for conflict in merged.conflicts)
        raise InTheWay(f"the same lines changed meanwhile (line {lines})", merged.conflicts)
    return FileState(data=merged.data, mode=mode)


def _merged_mode(now: int, change: FileChange) -> int:
    """The mode now with the bits that the run changed; never more than the permissions proper."""
    before = change.before.mode if change.before is not None else now
    after = change.after.mode if change.after is not None else now
    if (change.before is not None and change.before.link is not None) or change.kind is ChangeKind.LINK:
        return after & 0o777
    changed = (before ^ after) & 0o777
    return (now & ~changed) | (after & changed)


def _verify(tree: Tree, path: str, wanted: FileState) -> None:
    if not _has(tree.read(path), wanted):
        raise InTheWay("something else changed it right after it was written; look at it")
