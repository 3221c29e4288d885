"""The review document: what a person must know first, then the diff with its hunks numbered.

It is a diff: every line of ours begins with `#` and stands before a `diff --git` line, so whatever reads diffs reads
it, and nothing in it (a test's output, a model's words) can be taken for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent.changes.changeset import shown
from agent.changes.diff import Hunk, Section, sections
from agent.changes.merge import Conflict, conflict_block
from agent.changes.proposal import Proposal, ProposalState
from agent.types import ChangeSet, ExitReason, FileChange, TestOutcome
from agent.visible import visible

MAX_BINARY_CHARS = 64 * 1024
"""A longer binary patch is named, not shown; `frog-lsp fix --patch` has it whole."""

_REASONS = {
    ExitReason.AGENT: "the model ended by itself",
    ExitReason.MAX_TOKENS_PER_TURN: "a reply of the model was cut by the length limit",
    ExitReason.MAX_CONTEXT_LEN: "the context was full",
    ExitReason.MAX_TURNS: "the limit of steps was reached",
    ExitReason.MAX_TIME: "the time limit was reached",
    ExitReason.CANCELLED: "it was cancelled",
    ExitReason.LLM_QUERY_ERROR: "a query of the model failed",
    ExitReason.TOOL_ERROR: "the tools stopped working",
    ExitReason.STUCK: "the model repeated itself",
    ExitReason.JAIL_UNAVAILABLE: "the jail could not be had",
    ExitReason.MODEL_UNAVAILABLE: "the model could not be had",
}


def render(what: Proposal | ChangeSet, conflicts: Mapping[str, Sequence[Conflict]] | None = None) -> str:
    """The review of a proposal, or of changes alone. `conflicts`, by path, are shown as three-way blocks.

    Hunks keep the numbers of the whole diff; those that are in place already are left out and named on top.
    """
    proposal = what if isinstance(what, Proposal) else None
    changes = what.changes if isinstance(what, Proposal) else what
    shown = list(_open_sections(changes, proposal))
    head = [
        *(_about(proposal) if proposal else []),
        *_about_flags(changes),
        *_about_applied(proposal),
        *_about_omitted(changes),
        *_about_conflicts(conflicts or {}),
        *_about_size(shown, proposal),
    ]
    return "".join([*(_comment(line) for line in head), *(_section(section, hunks) for section, hunks in shown)])


def _comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in visible(text).split("\n"))


# --- on top ---------------------------------------------------------------------------------------------------


def _about(proposal: Proposal) -> Iterator[str]:
    yield f"Review of run {proposal.run_id}: {proposal.title}"
    yield f"Workspace: {shown(proposal.workspace)}"
    model = proposal.model
    demonstration = "; demonstration model, replace it with `frog-lsp model pull`" if model.demonstration else ""
    yield f"Model: {model.name} ({model.kind}{demonstration})"
    reason = _REASONS.get(proposal.exit_reason, "")
    yield f"Ended: {proposal.exit_reason} ({reason}), {proposal.n_steps} steps, {proposal.elapsed_s:.1f} s"
    yield f"Jail: {proposal.jail.backend}" + (f"; reduced: {proposal.jail.reduced}" if proposal.jail.reduced else "")
    if proposal.state is not ProposalState.PROPOSED:
        yield f"State: {proposal.state}"
    if proposal.error is not None:
        yield f"Error: {proposal.error.message}"
        if proposal.error.hint:
            yield f"  {proposal.error.hint}"
    yield from _about_tests(proposal)
    if proposal.final_message.strip():
        yield "What the model says of it (no evidence):"
        yield _indented(proposal.final_message.strip())
    for note in proposal.notes:
        yield f"Note: {note}"


def _about_tests(proposal: Proposal) -> Iterator[str]:
    if proposal.test_command is None or (proposal.tests_before is None and proposal.tests_after is None):
        yield "Tests: not checked"
        return
    yield f"Tests: {proposal.test_command}"
    for name, outcome in (("before", proposal.tests_before), ("after", proposal.tests_after)):
        yield f"  {name}: {_outcome(outcome)}"
        if outcome is not None and outcome.tail.strip():
            yield _indented(outcome.tail.rstrip(), "    | ")


def _outcome(outcome: TestOutcome | None) -> str:
    if outcome is None:
        return "not checked"
    if outcome.exit_code is None:
        return "stopped by the time limit"
    if outcome.exit_code < 0:
        return f"ended by signal {-outcome.exit_code}"
    return f"exit code {outcome.exit_code}" + (" (passed)" if outcome.exit_code == 0 else " (failed)")


def _about_flags(changes: ChangeSet) -> Iterator[str]:
    never = [change for change in changes.changes if _is_never(change)]
    held = [change for change in changes.changes if not change.applied_by_default and not _is_never(change)]
    other = [change for change in changes.changes if change.applied_by_default and change.flags]
    for title, group in (
        ("NEVER APPLIED:", never),
        ("APPLIED ONLY WHERE YOU NAME THE FILE (it runs by itself, or git ignores it):", held),
        ("LOOK AT:", other),
    ):
        if group:
            yield ""
            yield title
        for change in group:
            yield f"  {_name(change)}"
            for flag in change.flags:
                yield f"    {flag.code}: {flag.why}"


def _about_applied(proposal: Proposal | None) -> Iterator[str]:
    if proposal is None or not (proposal.applied_files or proposal.applied_hunks):
        return
    yield ""
    yield "IN PLACE ALREADY, not shown below:"
    if proposal.applied_files:
        yield "  files " + ", ".join(map(shown, proposal.applied_files))
    if proposal.applied_hunks:
        yield "  hunks " + ", ".join(map(str, proposal.applied_hunks))


def _about_omitted(changes: ChangeSet) -> Iterator[str]:
    if changes.omitted:
        yield ""
        yield "LEFT OUT, what git reads itself is never part of a proposal:"
        for path in changes.omitted:
            yield f"  {shown(path)}"


def _about_conflicts(conflicts: Mapping[str, Sequence[Conflict]]) -> Iterator[str]:
    for path, found in conflicts.items():
        yield ""
        yield f"CONFLICT in {shown(path)}, nothing of this file was applied:"
        for conflict in found:
            yield f"  line {conflict.theirs_line} of the file now"
            yield _indented(conflict_block(conflict).rstrip("\n"))


def _about_size(shown: list[tuple[Section, list[Hunk]]], proposal: Proposal | None) -> Iterator[str]:
    n_files = len({section.change.path for section, _ in shown})
    n_hunks = sum(len(hunks) for _, hunks in shown)
    yield ""
    yield f"{n_files} {'file' if n_files == 1 else 'files'}, {n_hunks} {'hunk' if n_hunks == 1 else 'hunks'}"
    if proposal is not None and n_files:
        yield f"Apply with `frog-lsp apply {proposal.run_id}`, drop with `frog-lsp discard {proposal.run_id}`."
    yield ""


def _indented(text: str, margin: str = "    ") -> str:
    return "\n".join(margin + line for line in text.split("\n"))


# --- the diff -------------------------------------------------------------------------------------------------


def _open_sections(changes: ChangeSet, proposal: Proposal | None) -> Iterator[tuple[Section, list[Hunk]]]:
    for section in sections(changes):
        hunks = list(section.hunks)
        if proposal is not None:
            hunks = [hunk for hunk in hunks if hunk.number not in proposal.applied_hunks]
            if section.change.path in proposal.applied_files or (section.hunks and not hunks):
                continue
        yield section, hunks


def _section(section: Section, hunks: list[Hunk]) -> str:
    change = section.change
    codes = ", ".join(dict.fromkeys(flag.code for flag in change.flags))
    text = ""
    if codes:
        when = "never applied" if _is_never(change) else "applied only where named"
        text += _comment(f"{_name(change)}: {codes}" + ("" if change.applied_by_default else f"; {when}"))
    text += section.header
    if len(section.binary) > MAX_BINARY_CHARS:
        old, new = _sides(section.header)
        text += f"Binary files {old} and {new} differ\n"
    else:
        text += section.binary
    return text + "".join(_numbered(hunk) for hunk in hunks)


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


def _is_never(change: FileChange) -> bool:
    return any(flag.level == "never" for flag in change.flags)


def _name(change: FileChange) -> str:
    if change.old_path is not None:
        return f"{shown(change.old_path)} -> {shown(change.path)} ({change.kind})"
    return f"{shown(change.path)} ({change.kind})"
