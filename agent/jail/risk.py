"""What a reviewer must be told of each change: what would run it, and when.

Three levels: "never" is not applied by any means of ours, "runs" runs by itself and is applied only where a
person names the file, "used" runs when somebody uses it. "note" is for what the eye may miss.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
import sys
from collections.abc import Callable, Collection, Iterator

from agent.changes.gitformat import is_text
from agent.changes.lines import line_edits, split_lines
from agent.jail.risk_content import content_flags, skips_tests
from agent.jail.risk_paths import WELL_KNOWN_MODULES, matching_rules
from agent.jail.risk_scope import scope_flags
from agent.types import ChangeKind, ChangeSet, FileChange, FileState, Flag

MASS_DELETION_FILES = 10
"""From this many deleted files on, each carries a flag: more than a fix of one issue removes."""

SIZE_JUMP_BYTES = 256 * 1024
"""A file that grows by this much, and to ten times its size, is no edit by hand."""

SHADOWING_FOLDERS = frozenset({"", "src", "lib", "python", "test", "tests", "bin", "scripts", "tools"})
"""Folders that commonly lie on Python's path; the workspace itself is the empty one."""

_TEST_PATH = re.compile(
    r"(?:^|/)(?:tests?|spec|specs|__tests__)/|(?:^|/)test_[^/]*\.py$|(?:_test|\.test|\.spec|_spec|Tests?)\.\w+$"
)
_TEST_CASE = re.compile(
    r"^\s*(?:(?:async\s+)?def\s+test|class\s+Test|(?:it|test)\s*\(|func\s+Test|#\[test\])", re.MULTILINE
)


def flag(
    changeset: ChangeSet,
    workspace: str,
    is_ignored: Callable[[str], bool],
    installed: Collection[str] = (),
    issue: str = "",
) -> ChangeSet:
    """The same changes, each with the flags that apply. Nothing is read and nothing is left out.

    `workspace` is the absolute path of the real one (a link that leaves it is never applied), `is_ignored` tells
    what git ignores, `installed` names the top-level modules of the project's environment where they are known,
    `issue` is the text of the issue that was to be fixed.
    """
    n_deleted = sum(change.kind is ChangeKind.DELETED for change in changeset.changes)
    shadowed = sys.stdlib_module_names | WELL_KNOWN_MODULES | set(installed)
    ignored = {change.path for change in changeset.changes if is_ignored(change.path)}
    by_scope = scope_flags(changeset, issue, ignored)
    changes = []
    for change in changeset.changes:
        flags = [
            *_path_flags(change),
            *_state_flags(change, workspace),
            *_python_flags(change, shadowed),
            *_kind_flags(change, n_deleted),
            *_ignored_flags(change, ignored),
            *_text_flags(change),
            *by_scope[change.path],
        ]
        unique: dict[str, Flag] = {}
        for known in [*change.flags, *flags]:
            unique.setdefault(known.code, known)
        ordered = sorted(unique.values(), key=lambda known: _LEVELS.index(known.level))
        changes.append(dataclasses.replace(change, flags=tuple(ordered)))
    return dataclasses.replace(changeset, changes=tuple(changes))


_LEVELS = ("never", "runs", "used", "note")


def _names(change: FileChange) -> list[str]:
    return [change.path] if change.old_path is None else [change.path, change.old_path]


def _path_flags(change: FileChange) -> Iterator[Flag]:
    for name in _names(change):
        parts = name.split("/")
        if not name or name.startswith("/") or ".." in parts or "\0" in name:
            yield Flag(code="outside", level="never", why="the path does not lie in the workspace")
        if any("\ud800" <= character <= "\udfff" for character in name):
            yield Flag(
                code="name", level="never", why="the name is not UTF-8: editors and git tools read it differently"
            )
        elif not name.isprintable():
            yield Flag(code="odd-name", level="note", why="the name holds characters that are not shown")
        for rule in matching_rules(name):
            yield Flag(code=rule.code, level=rule.level, why=rule.why)


def _state_flags(change: FileChange, workspace: str) -> Iterator[Flag]:
    after = change.after
    if after is None:
        return
    if after.data is None and after.link is None:
        why = "it is a pipe, a socket or a device, or was too large to keep: there is nothing that could be applied"
        yield Flag(code="special-file", level="never", why=why)
    if after.link is not None:
        if leaves_workspace(change.path, after.link, workspace):
            why = f"the link points out of the workspace, to {_shown(after.link)}: whatever writes to it writes there"
            yield Flag(code="link-outside", level="never", why=why)
        yield Flag(code="link", level="note", why=f"a link to {_shown(after.link)}: what opens it opens that")
    if after.mode & 0o6000 and after.link is None:
        yield Flag(code="setuid", level="never", why="the file would run with the rights of its owner for everybody")
    had_bit = change.before is not None and change.before.link is None and change.before.mode & 0o111
    if after.link is None and after.mode & 0o111 and not had_bit:
        yield Flag(code="executable", level="used", why="it becomes executable: it runs when somebody calls it by name")


def leaves_workspace(path: str, target: str, workspace: str) -> bool:
    """Whether a link at `path` points out of the workspace, or might: `..` after a name may pass through a link."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    named = [i for i, part in enumerate(parts) if part != ".."]
    if named and ".." in parts[named[0] :]:
        return True
    root = posixpath.normpath(workspace)
    end = posixpath.normpath(posixpath.join(root, posixpath.dirname(path), target))
    return end != root and not end.startswith(root.rstrip("/") + "/")


def _python_flags(change: FileChange, shadowed: Collection[str]) -> Iterator[Flag]:
    """A new module that hides one of the standard library or of the environment."""
    if change.kind not in (ChangeKind.CREATED, ChangeKind.RENAMED, ChangeKind.LINK):
        return
    folder, _, name = change.path.rpartition("/")
    module = name.split(".", 1)[0] if name.endswith((".py", ".so", ".pyd", ".pyc")) else None
    if module == "__init__":
        folder, _, module = folder.rpartition("/")
    elif module is None and change.kind is ChangeKind.LINK:
        module = name
    if module not in shadowed:
        return
    if folder in SHADOWING_FOLDERS:
        why = f"Python may import it in place of the module `{module}` whenever it starts in this project"
        yield Flag(code="shadows-module", level="runs", why=why)
    else:
        why = f"it is named like the module `{module}`: a script that is run in its folder imports it instead"
        yield Flag(code="named-like-module", level="used", why=why)


def _kind_flags(change: FileChange, n_deleted: int) -> Iterator[Flag]:
    before, after = _data(change.before), _data(change.after)
    if any(state is not None and not is_text(state) for state in (before, after)):
        yield Flag(code="binary", level="note", why="it is not text: the review cannot show what it holds")
    if after is not None:
        n_before = len(before or b"")
        if len(after) - n_before >= SIZE_JUMP_BYTES and len(after) >= 10 * n_before:
            yield Flag(code="size-jump", level="note", why=f"it grows from {n_before:,} to {len(after):,} bytes")
        if before and not after:
            yield Flag(code="emptied", level="note", why="all its content is removed")
    if change.kind is ChangeKind.DELETED:
        if n_deleted >= MASS_DELETION_FILES:
            yield Flag(code="mass-deletion", level="note", why=f"one of {n_deleted} files that the run deleted")
        if _TEST_PATH.search(change.path):
            yield Flag(
                code="test-deleted", level="note", why="a test file is deleted: what it checked is checked no more"
            )
    if not change.base_known:
        why = "the file changed during the run before its base was kept: it is applied only where nothing can be lost"
        yield Flag(code="base-unknown", level="note", why=why)


def _ignored_flags(change: FileChange, ignored: Collection[str]) -> Iterator[Flag]:
    if change.path in ignored:
        why = "git ignores it, so no later review sees it; it is applied only where it is named"
        yield Flag(code="ignored", level="note", why=why)


def _text_flags(change: FileChange) -> Iterator[Flag]:
    before, after = _data(change.before), _data(change.after)
    if not after or change.kind in (ChangeKind.RENAMED, ChangeKind.MODE):
        return
    old_lines, new_lines = split_lines(before or b""), split_lines(after)
    added = [
        line.decode("utf-8", "replace")
        for edit in line_edits(old_lines, new_lines)
        for line in new_lines[edit.new_lo : edit.new_hi]
    ]
    if not change.before and added:
        added[0] = added[0].removeprefix("\ufeff")
    old_text = (before or b"").decode("utf-8", "replace")
    if is_text(after):
        yield from content_flags(added, old_text)
    elif b"\x1b" in after and b"\0" not in after:
        yield Flag(code="escape", level="note", why="holds the ESC character: a terminal that prints the file obeys it")
    if _TEST_PATH.search(change.path) and before is not None:
        n_before = len(_TEST_CASE.findall(old_text))
        n_after = len(_TEST_CASE.findall(after.decode("utf-8", "replace")))
        if n_after < n_before:
            why = f"it had {n_before} tests and has {n_after}: what the others checked is checked no more"
            yield Flag(code="test-deleted", level="note", why=why)
    if _TEST_PATH.search(change.path) and skips_tests(added):
        yield Flag(code="test-skipped", level="note", why="a test is skipped or expected to fail: it checks no more")


def _data(state: FileState | None) -> bytes | None:
    return None if state is None else state.data


def _shown(target: str) -> str:
    return repr(target.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
