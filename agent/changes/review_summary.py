"""The top of a review document: what a person must know before reading the diff. Lines without their `#`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from agent.changes.changeset import shown
from agent.changes.merge import conflict_block
from agent.changes.outlook import Outlook, Prospect
from agent.changes.proposal import Proposal, ProposalState, is_never_applied
from agent.errors import sentences
from agent.types import ChangeSet, ExitReason, FileChange, TestOutcome

Outlooks = Mapping[str, Outlook]

ENDINGS = {
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
"""Why a run ended, in words."""

_STATES = {
    ProposalState.PARTLY_APPLIED: "partly applied; the rest stays a proposal",
    ProposalState.CONFLICT: "in conflict; what is not in place stays a proposal",
    ProposalState.APPLIED: "applied",
    ProposalState.DISCARDED: "discarded",
}
_WIDEST = 36
"""Longer names push the columns of their own line only."""


def summary(changes: ChangeSet, proposal: Proposal | None, outlooks: Outlooks) -> list[str]:
    """All of it, for a proposal or for changes alone."""
    return [
        *(_about(proposal) if proposal else []),
        *(_about_files(proposal, outlooks) if proposal else []),
        *_about_conflicts(outlooks),
        *_about_flags(changes),
        *_about_omitted(changes),
    ]


def name_of(change: FileChange) -> str:
    """The change on one line: its path or both, and its kind."""
    if change.old_path is not None:
        return f"{shown(change.old_path)} -> {shown(change.path)} ({change.kind})"
    return f"{shown(change.path)} ({change.kind})"


def indented(text: str, margin: str = "  ") -> str:
    """Every line behind the margin."""
    return "\n".join(margin + line for line in text.split("\n"))


def count(n: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def numbers(chosen: Iterable[int]) -> str:
    """`2`, or `1-3, 5`."""
    runs: list[list[int]] = []
    for number in sorted(chosen):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


# --- the run --------------------------------------------------------------------------------------------------


def _about(proposal: Proposal) -> Iterator[str]:
    yield f"FrogNano proposes: {proposal.title}"
    yield ""
    yield _row("Run", f"{proposal.run_id} in {shown(proposal.workspace)}")
    yield _row("Model", _model(proposal))
    reason = ENDINGS[proposal.exit_reason]
    spent = f"after {count(proposal.n_steps, 'step')} and {proposal.elapsed_s:.1f} s"
    yield _row("Ended", f"{reason} ({proposal.exit_reason}), {spent}")
    jail = proposal.jail
    yield _row("Jail", jail.backend + (f"; REDUCED: {jail.reduced}" if jail.reduced else ""))
    if proposal.state in _STATES:
        yield _row("State", _STATES[proposal.state])
    if proposal.error is not None:
        yield _row("Error", sentences(proposal.error.message, proposal.error.hint))
    yield from _about_tests(proposal)
    for note in proposal.notes:
        yield _row("Note", note)
    if proposal.final_message.strip():
        yield ""
        yield "THE MODEL SAYS (which is no evidence)"
        yield indented(proposal.final_message.strip())


def _row(label: str, text: str) -> str:
    first, *more = text.split("\n")
    return "\n".join([f"{label:<8} {first}", *(f"{'':<8} {line}" for line in more)])


def _model(proposal: Proposal) -> str:
    model = proposal.model
    if not model.demonstration:
        return f"{model.name} ({model.kind})"
    return f"{model.name} ({model.kind}), a DEMONSTRATION model: `frog-lsp model pull` gets the real one"


def _about_tests(proposal: Proposal) -> Iterator[str]:
    if proposal.test_command is None:
        yield _row("Tests", "not checked, there is no test command")
        return
    if proposal.tests_before is None and proposal.tests_after is None:
        yield _row("Tests", f"not checked: {proposal.test_command}")
        return
    yield _row("Tests", proposal.test_command)
    for name, outcome in (("before", proposal.tests_before), ("after", proposal.tests_after)):
        yield _row(f"  {name}", _outcome(outcome))
        if outcome is not None and outcome.tail.strip():
            yield indented(outcome.tail.rstrip(), "         | ")


def _outcome(outcome: TestOutcome | None) -> str:
    if outcome is None:
        return "not checked"
    if outcome.exit_code is None:
        return "stopped by the time limit"
    if outcome.exit_code < 0:
        return f"ended by signal {-outcome.exit_code}"
    return f"{'passed' if outcome.exit_code == 0 else 'failed'}, exit code {outcome.exit_code}"


# --- the files ------------------------------------------------------------------------------------------------


def _about_files(proposal: Proposal, outlooks: Outlooks) -> Iterator[str]:
    numbers_of = proposal.hunk_numbers()
    rows: list[tuple[str, str, str]] = []
    for change in proposal.changes.changes:
        own = numbers_of.get(change.path, frozenset())
        what = _what_would_be(change, own, proposal, outlooks.get(change.path))
        rows.append((name_of(change), _hunks(own) if own else "no hunk", what))
    if rows:
        yield ""
        yield "FILES, and what applying would do to them now"
    width = max((len(name) for name, _, _ in rows if len(name) <= _WIDEST), default=0)
    hunks_width = max((len(hunks) for _, hunks, _ in rows), default=0)
    for name, hunks, what in rows:
        yield f"  {name:<{width}}  {hunks:<{hunks_width}}  {what}".rstrip()


def _hunks(chosen: Collection[int]) -> str:
    return f"{'hunk' if len(chosen) == 1 else 'hunks'} {numbers(chosen)}"


def _what_would_be(change: FileChange, own: frozenset[int], proposal: Proposal, outlook: Outlook | None) -> str:
    never = next((flag for flag in change.flags if flag.level == "never"), None)
    if never is not None:
        return f"never applied: {never.why}"
    placed, dropped = own & set(proposal.applied_hunks), own & set(proposal.discarded_hunks)
    if not placed and (change.path in proposal.discarded_files or (own and dropped == own)):
        return "discarded"
    parts = [_in_words(outlook)] if outlook is not None else []
    parts += [f"{_hunks(placed)} in place"] if placed and placed != own else []
    parts += [f"{_hunks(dropped)} discarded"] if dropped else []
    parts += ["only where you name the file, see below"] if not change.applied_by_default else []
    return "; ".join(parts)


def _in_words(outlook: Outlook) -> str:
    is_stopped = outlook.prospect in (Prospect.CONFLICT, Prospect.BY_HAND)
    words = "CONFLICT" if outlook.prospect is Prospect.CONFLICT else str(outlook.prospect)
    return f"{words}{': ' if is_stopped else '; '}{outlook.detail}" if outlook.detail else words


def _about_conflicts(outlooks: Outlooks) -> Iterator[str]:
    for path, outlook in outlooks.items():
        if outlook.conflicts:
            yield ""
            yield f"CONFLICT in {shown(path)}: nothing of this file is applied, but for hunks elsewhere in it by number"
        for conflict in outlook.conflicts:
            yield indented(conflict_block(conflict).rstrip("\n"))


def _about_flags(changes: ChangeSet) -> Iterator[str]:
    never = [change for change in changes.changes if is_never_applied(change)]
    held = [change for change in changes.changes if not change.applied_by_default and not is_never_applied(change)]
    other = [change for change in changes.changes if change.applied_by_default and change.flags]
    for title, group in (
        ("NEVER APPLIED", never),
        ("APPLIED ONLY WHERE YOU NAME THE FILE: it runs by itself, or git ignores it", held),
        ("LOOK AT", other),
    ):
        if group:
            yield ""
            yield title
        for change in group:
            yield f"  {name_of(change)}"
            for flag in change.flags:
                yield f"    {flag.code}: {flag.why}"


def _about_omitted(changes: ChangeSet) -> Iterator[str]:
    if changes.omitted:
        yield ""
        yield "LEFT OUT: what git reads itself is never part of a proposal"
        for path in changes.omitted:
            yield f"  {shown(path)}"
