"""The changes as a patch in git's format, its hunks, and parts of it.

The patch is exact to the byte: line ends and their absence stay, and what is not UTF-8 travels as a binary
patch, since a patch is a string. Write it with `newline=""` or as UTF-8 bytes, never through a text layer that
translates line ends. Hunks are numbered from 1 over the whole patch; only what git writes with `@@` is a hunk,
so binary files, pure renames and modes are taken by their files alone.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from agent.changes.changeset import shown
from agent.changes.gitformat import binary_patch, blob_id, is_text, quote_path
from agent.changes.lines import Edit, line_edits, split_at_newline
from agent.errors import UsageError
from agent.types import ChangeKind, ChangeSet, FileChange, FileState

N_CONTEXT = 3
"""Unchanged lines around an edit, as git's default."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One `@@` part of the patch. Starts count lines from 1; `text` begins with the `@@` line and ends in a newline."""

    number: int
    path: str
    old_start: int
    n_old: int
    new_start: int
    n_new: int
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """One `diff --git` part. A file that becomes a link, or a link a file, has two: gone, then made."""

    change: FileChange
    header: str
    hunks: tuple[Hunk, ...] = ()
    binary: str = ""

    @property
    def text(self) -> str:
        """The section as it stands in the patch."""
        return self.header + self.binary + "".join(hunk.text for hunk in self.hunks)


def patch(changeset: ChangeSet) -> str:
    """The whole ChangeSet as a git patch, `""` when there is none. Special files have no form in it."""
    return "".join(section.text for section in sections(changeset))


def hunks(changeset: ChangeSet) -> list[Hunk]:
    """All hunks, in the order of the patch."""
    return [hunk for section in sections(changeset) for hunk in section.hunks]


@lru_cache(maxsize=8)
def sections(changeset: ChangeSet) -> tuple[Section, ...]:
    """The parts of the patch, hunks numbered from 1 over all of them.

    The last few are kept: each question about hunks asks here, and the differences take seconds to find in a large
    proposal.
    """
    made: list[Section] = []
    number = 1
    for change in changeset.changes:
        for section in _sections_of(change, number):
            made.append(section)
            number += len(section.hunks)
    return tuple(made)


def select(
    changeset: ChangeSet, files: Collection[str] | None = None, hunks: Collection[int] | None = None
) -> ChangeSet:
    """The part that lies in `files` (None: any; old names of renames count) and in `hunks` (None: all).

    A file that is created, deleted, or turned into or from a link is taken whole with any of its hunks. Part of a
    modified file is its base with those hunks alone; its mode goes along when all its hunks do. With `hunks`, what
    has no hunk (binary, rename, mode) is left. Raises UsageError for a file or a hunk that is not there.
    """
    if files is not None:
        files = {posixpath.normpath(name) for name in files}
        known = {name for c in changeset.changes for name in (c.path, c.old_path) if name is not None}
        if missing := sorted(files - known):
            raise UsageError(
                f"This proposal does not change {shown(missing[0])}.", "Name a file that the review lists."
            )
    own: dict[str, list[Hunk]] = {}
    for section in sections(changeset):
        own.setdefault(section.change.path, []).extend(section.hunks)
    n_hunks = sum(map(len, own.values()))
    if hunks is not None and (outside := sorted(n for n in set(hunks) if not 1 <= n <= n_hunks)):
        raise UsageError(f"There is no hunk {outside[0]}.", f"The diff has {n_hunks} hunks, numbered from 1.")
    taken: list[FileChange] = []
    for change in changeset.changes:
        if files is not None and change.path not in files and change.old_path not in files:
            continue
        if hunks is None:
            taken.append(change)
            continue
        all_of_it = own.get(change.path, [])
        chosen = [hunk for hunk in all_of_it if hunk.number in hunks]
        if chosen:
            taken.append(change if len(chosen) == len(all_of_it) else _part(change, chosen))
    return dataclasses.replace(changeset, changes=tuple(taken))


def _part(change: FileChange, chosen: list[Hunk]) -> FileChange:
    if change.kind is not ChangeKind.MODIFIED or change.before is None or change.after is None:
        return change
    old = split_at_newline(change.before.data or b"")
    new = split_at_newline(change.after.data or b"")
    pieces: list[bytes] = []
    at = 0
    for edit in line_edits(old, new):
        if not any(_covers(hunk, edit) for hunk in chosen):
            continue
        pieces += [*old[at : edit.old_lo], *new[edit.new_lo : edit.new_hi]]
        at = edit.old_hi
    data = b"".join([*pieces, *old[at:]])
    return dataclasses.replace(change, after=FileState(data=data, mode=change.before.mode))


def _covers(hunk: Hunk, edit: Edit) -> bool:
    """Whether the edit lies in the hunk: on either side its lines are within the hunk's."""
    lo = hunk.old_start - 1 if hunk.n_old else hunk.old_start
    new_lo = hunk.new_start - 1 if hunk.n_new else hunk.new_start
    return (
        lo <= edit.old_lo
        and edit.old_hi <= lo + hunk.n_old
        and new_lo <= edit.new_lo
        and edit.new_hi <= new_lo + hunk.n_new
    )


# --- one change -----------------------------------------------------------------------------------------------


def _sections_of(change: FileChange, number: int) -> Iterator[Section]:
    before, after = change.before, change.after
    if _is_special(before) or _is_special(after):
        return
    if before is not None and after is not None and (before.link is None) != (after.link is None):
        gone = _section(change, change.path, change.path, before, None, number)
        yield gone
        yield _section(change, change.path, change.path, None, after, number + len(gone.hunks))
        return
    yield _section(change, change.old_path or change.path, change.path, before, after, number)


def _is_special(state: FileState | None) -> bool:
    return state is not None and state.data is None and state.link is None


def _section(
    change: FileChange, old_path: str, path: str, before: FileState | None, after: FileState | None, number: int
) -> Section:
    old_name, new_name = quote_path("a/" + old_path), quote_path("b/" + path)
    old, new = _content(before), _content(after)
    header = [f"diff --git {old_name} {new_name}\n", *_mode_lines(before, after)]
    if old_path != path:
        header += [
            "similarity index 100%\n",
            f"rename from {quote_path(old_path)}\n",
            f"rename to {quote_path(path)}\n",
        ]
    if old == new and before is not None and after is not None:
        return Section(change, "".join(header))
    is_binary = not (is_text(old) and is_text(new))
    n_digits = 40 if is_binary else 12
    ids = f"{blob_id(None if before is None else old)[:n_digits]}..{blob_id(None if after is None else new)[:n_digits]}"
    same_mode = before is not None and after is not None and git_mode(before) == git_mode(after)
    header.append(f"index {ids} {git_mode(before):o}\n" if same_mode and before else f"index {ids}\n")
    if old == new:  # an empty file, made or gone
        return Section(change, "".join(header))
    if is_binary:
        return Section(change, "".join(header), binary=binary_patch(old, new))
    header.append(f"--- {_marked(old_name) if before is not None else '/dev/null'}\n")
    header.append(f"+++ {_marked(new_name) if after is not None else '/dev/null'}\n")
    return Section(change, "".join(header), tuple(_hunks(path, old, new, number)))


def _content(state: FileState | None) -> bytes:
    if state is None:
        return b""
    if state.link is not None:
        return state.link.encode("utf-8", "surrogateescape")
    return state.data or b""


def git_mode(state: FileState) -> int:
    """The mode of the path as git keeps it: a link, an executable file or a plain file."""
    if state.link is not None:
        return 0o120000
    return 0o100755 if state.mode & 0o100 else 0o100644


def _mode_lines(before: FileState | None, after: FileState | None) -> list[str]:
    if before is None and after is not None:
        return [f"new file mode {git_mode(after):o}\n"]
    if after is None and before is not None:
        return [f"deleted file mode {git_mode(before):o}\n"]
    assert before is not None
    assert after is not None
    if git_mode(before) != git_mode(after):
        return [f"old mode {git_mode(before):o}\n", f"new mode {git_mode(after):o}\n"]
    if before.mode != after.mode and before.data == after.data and before.link is None:
        # git keeps the executable bit alone; it reads this line and changes nothing.
        return [f"old mode {0o100000 | before.mode:o}\n", f"new mode {0o100000 | after.mode:o}\n"]
    return []


def _marked(name: str) -> str:
    """git ends a name that holds a space with a tab, so that the end of the name is plain."""
    return name + "\t" if " " in name and not name.startswith('"') else name


def _hunks(path: str, old_data: bytes, new_data: bytes, number: int) -> Iterator[Hunk]:
    old, new = split_at_newline(old_data), split_at_newline(new_data)
    for group in _groups(line_edits(old, new)):
        lead = min(N_CONTEXT, group[0].old_lo)
        old_lo, new_lo = group[0].old_lo - lead, group[0].new_lo - lead
        trail = min(N_CONTEXT, len(old) - group[-1].old_hi)
        old_hi, new_hi = group[-1].old_hi + trail, group[-1].new_hi + trail
        body: list[str] = []
        at = old_lo
        for edit in group:
            body += _lines(" ", old[at : edit.old_lo])
            body += _lines("-", old[edit.old_lo : edit.old_hi])
            body += _lines("+", new[edit.new_lo : edit.new_hi])
            at = edit.old_hi
        body += _lines(" ", old[at:old_hi])
        n_old, n_new = old_hi - old_lo, new_hi - new_lo
        old_start, new_start = old_lo + (n_old > 0), new_lo + (n_new > 0)
        head = f"@@ -{_range(old_start, n_old)} +{_range(new_start, n_new)} @@\n"
        yield Hunk(number, path, old_start, n_old, new_start, n_new, head + "".join(body))
        number += 1


def _groups(edits: Iterable[Edit]) -> Iterator[list[Edit]]:
    """Edits whose context lines would touch share a hunk."""
    group: list[Edit] = []
    for edit in edits:
        if group and edit.old_lo - group[-1].old_hi > 2 * N_CONTEXT:
            yield group
            group = []
        group.append(edit)
    if group:
        yield group


def _range(start: int, n: int) -> str:
    return f"{start}" if n == 1 else f"{start},{n}"


def _lines(sign: str, lines: list[bytes]) -> list[str]:
    return [
        sign + line.decode("utf-8") + ("" if line.endswith(b"\n") else "\n\\ No newline at end of file\n")
        for line in lines
    ]
