"""The review document: what a person must know first, then the diff with its hunks numbered.

It is a diff: every line of ours begins with `#` and stands before a `diff --git` line or at the end, so whatever
reads diffs reads it, and nothing in it (a test's output, a model's words) can be taken for one. The diff holds what
may still be applied, from the text that the run saw; what is in place or discarded already is shown behind `#`.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.changes.changeset import shown
from agent.changes.diff import Hunk, Section, sections
from agent.changes.proposal import Proposal, is_never_applied
from agent.changes.review_summary import Outlooks, count, indented, name_of, summary
from agent.types import ChangeSet
from agent.visible import visible

MAX_BINARY_CHARS = 64 * 1024
"""A longer binary patch is named, not shown; `frog-lsp fix --patch` has it whole."""


def render(what: Proposal | ChangeSet, outlooks: Outlooks | None = None) -> str:
    """The review of a proposal, or of changes alone.

    `outlooks` says, by path, what applying would do to a file now; conflicts are shown as three-way blocks. Hunks
    keep the numbers of the whole diff.
    """
    proposal = what if isinstance(what, Proposal) else None
    changes = what.changes if isinstance(what, Proposal) else what
    parts = [_Part(section, proposal) for section in sections(changes)]
    n_files = len({part.section.change.path for part in parts if part.is_open})
    n_hunks = sum(len(part.open_hunks) for part in parts if part.is_open)
    head = [
        *summary(changes, proposal, outlooks or {}),
        "",
        f"{count(n_files, 'file')}, {count(n_hunks, 'hunk')}" + (" below" if proposal is not None else ""),
        *(_commands(proposal) if proposal is not None and n_files else []),
        "",
    ]
    body = "#\n".join("".join(part.text()) for part in parts)
    return "".join([*map(_comment, head), body])


def _commands(proposal: Proposal) -> Iterator[str]:
    yield f"Apply with `frog-lsp apply {proposal.run_id}`, drop with `frog-lsp discard {proposal.run_id}`;"
    yield "`--hunks 1 3` and `--files a.py` take a part."


def _comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in visible(text).split("\n"))


class _Part:
    """One section of the diff, and what of it is settled."""

    def __init__(self, section: Section, proposal: Proposal | None) -> None:
        self.section = section
        path = section.change.path
        is_applied = proposal is not None and path in proposal.applied_files
        is_discarded = proposal is not None and path in proposal.discarded_files
        self._words = "was discarded" if is_discarded and not is_applied else "is in place already"
        self._settled: dict[int, str] = {}
        for hunk in section.hunks if proposal is not None else ():
            if proposal is not None and hunk.number in proposal.discarded_hunks:
                self._settled[hunk.number] = "was discarded"
            elif proposal is not None and (is_applied or hunk.number in proposal.applied_hunks):
                self._settled[hunk.number] = "is in place already"
            elif is_discarded:
                self._settled[hunk.number] = "was discarded"
        self.open_hunks = [hunk for hunk in section.hunks if hunk.number not in self._settled]
        self.is_open = bool(self.open_hunks) if section.hunks else not (is_applied or is_discarded)

    def text(self) -> Iterator[str]:
        """What is settled, as comments; then the section with its open hunks."""
        change = self.section.change
        for hunk in self.section.hunks:
            if hunk.number in self._settled:
                yield _comment(f"hunk {hunk.number} of {shown(change.path)} {self._settled[hunk.number]}:")
                yield _comment(indented(hunk.text.rstrip("\n")) + "\n")
        if not self.is_open:
            if not self.section.hunks:
                yield _comment(f"{name_of(change)} {self._words}")
            return
        if codes := ", ".join(dict.fromkeys(flag.code for flag in change.flags)):
            when = "; never applied" if is_never_applied(change) else "; applied only where named"
            yield _comment(f"{name_of(change)}: {codes}" + ("" if change.applied_by_default else when))
        yield self.section.header
        yield _binary(self.section)
        for hunk in self.open_hunks:
            yield _numbered(hunk)


def _binary(section: Section) -> str:
    if len(section.binary) <= MAX_BINARY_CHARS:
        return section.binary
    old, new = _sides(section.header)
    return f"Binary files {old} and {new} differ\n"


def _sides(header: str) -> tuple[str, str]:
    """The two names of a binary file as git's plain diff has them."""
    lines = header.split("\n")
    names = lines[0].removeprefix("diff --git ")
    half = len(names) // 2
    old, new = names[:half], names[half + 1 :]
    is_new = any(line.startswith("new file") for line in lines)
    is_gone = any(line.startswith("deleted file") for line in lines)
    return ("/dev/null" if is_new else old), ("/dev/null" if is_gone else new)


def _numbered(hunk: Hunk) -> str:
    head, _, body = hunk.text.partition("\n")
    return f"{head} hunk {hunk.number}\n{body}"
