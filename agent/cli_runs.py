"""`frog-lsp runs`, `review`, `apply`, `discard` and `replay`: what is kept of runs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.applying import applied_json, apply_proposal, describe_outcome, discard_proposal
from agent.changes.changeset import changes_json, printable
from agent.changes.outlook import Outlook
from agent.changes.proposals import Proposal, ProposalState, ProposalStore
from agent.cli import EXIT_CONFLICT
from agent.cli_parser import EXIT_ERROR, EXIT_OK, positive_int, print_json, say, write_stdout
from agent.defaults import load_defaults
from agent.errors import ProposalError, UsageError
from agent.trajectory import forget_trajectories, peek_trajectory, read_trajectory, trajectories_dir
from agent.types import Issue, JsonObject
from agent.visible import visible, visible_diff, visible_line


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, whatever happens")


def add_arguments_runs(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp runs`."""
    parser.add_argument("--forget", nargs="*", metavar="ID", help="delete these runs, or all, with their trajectories")
    _add_json(parser)


def run_runs(arguments: argparse.Namespace) -> int:
    """List what is kept, the newest first, or forget it."""
    if arguments.forget is not None:
        n_forgotten = _forget(arguments.forget)
        if arguments.json:
            print_json({"forgotten": n_forgotten, "error": None})
        else:
            say(f"{n_forgotten} {'run was' if n_forgotten == 1 else 'runs were'} forgotten.\n")
        return EXIT_OK
    keep_days = load_defaults().keep_days
    ProposalStore().forget(older_than_days=keep_days)
    forget_trajectories(older_than_days=keep_days)
    rows = _rows()
    if arguments.json:
        print_json({"runs": rows, "error": None})
        return EXIT_OK
    lines = [
        f"{row['run_id']:<22} {row['state'] or '-':<14} {_n_files(row):<10} {visible_line(row['title'], 30)}"
        for row in rows
    ]
    write_stdout("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
    if not rows:
        say("No runs are kept.\n")
    return EXIT_OK


def _n_files(row: JsonObject) -> str:
    n = len(row["files"])
    return f"{n:>3} file" if n == 1 else f"{n:>3} files"


def _rows() -> list[JsonObject]:
    """Proposals, and trajectories of runs that left none."""
    rows = {proposal.run_id: _row(proposal) for proposal in ProposalStore().list()}
    for path in trajectories_dir().glob("*.jsonl") if trajectories_dir().is_dir() else ():
        if path.stem not in rows:
            rows[path.stem] = _trajectory_row(path)
    return sorted(rows.values(), key=lambda row: (-float(row["created_s"]), str(row["run_id"])))


def _row(proposal: Proposal) -> JsonObject:
    return {
        "run_id": proposal.run_id,
        "state": str(proposal.state),
        "title": proposal.title,
        "workspace": printable(proposal.workspace),
        "exit_reason": str(proposal.exit_reason),
        "files": [printable(change.path) for change in proposal.changes.changes],
        "created_s": proposal.created_s,
        "trajectory": proposal.trajectory,
    }


def _trajectory_row(path: Path) -> JsonObject:
    title, workspace, reason, state, created_s = "", "", None, "", path.stat().st_mtime
    try:
        header, outcome = peek_trajectory(path)
        title, workspace = Issue(text=str(header.get("issue", ""))).title, str(header.get("workspace", ""))
        created_s = float(header.get("started_at") or created_s)
        reason = None if outcome is None else str(outcome.get("exit_reason"))
        # without its last line the run was killed, or goes on right now
        if outcome is None:
            state = "unfinished"
        else:
            state = "cancelled" if reason == "cancelled" else "failed" if outcome.get("error") else "nothing"
    except (UsageError, ValueError, TypeError):
        state = "unreadable"
    return {
        "run_id": path.stem,
        "state": state,
        "title": title,
        "workspace": workspace,
        "exit_reason": reason,
        "files": [],
        "created_s": created_s,
        "trajectory": str(path),
    }


def _forget(run_ids: list[str]) -> int:
    """Delete proposals and trajectories; gives how many runs. No ids: all of them."""
    store = ProposalStore()
    known = [str(row["run_id"]) for row in _rows()]
    chosen = known if not run_ids else []
    for run_id in run_ids:
        found = [name for name in known if name == run_id] or [name for name in known if name.startswith(run_id)]
        if len(found) != 1 or not run_id:
            what = "several runs begin" if found else "no run begins"
            raise ProposalError(f"{what} with {run_id!r}", "`frog-lsp runs` lists what is kept.")
        chosen += found
    for run_id in chosen:
        (trajectories_dir() / f"{run_id}.jsonl").unlink(missing_ok=True)
        try:
            store.delete(run_id)
        except ProposalError:
            continue  # it left a trajectory alone
    return len(set(chosen))


def add_arguments_review(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp review`."""
    parser.add_argument("run_id", metavar="ID", help="a run, or the beginning of its id")
    _add_json(parser)


def run_review(arguments: argparse.Namespace) -> int:
    """Show a proposal: what a person must know, then the diff with its hunks numbered."""
    proposal = ProposalStore().load(arguments.run_id)
    from agent.changes.preview import foresee_on_disk

    outlooks = foresee_on_disk(proposal)
    if arguments.json:
        print_json(_row(proposal) | _review_json(proposal, outlooks) | {"error": None})
        return EXIT_OK
    from agent.changes.review import render

    text = render(proposal, outlooks)
    if not sys.stdout.isatty():
        write_stdout(visible_diff(text).encode("utf-8", "backslashreplace"))
        return EXIT_OK
    from rich.console import Console

    from agent.cli_run import print_diff

    print_diff(Console(highlight=False, markup=False, emoji=False), visible(text))
    return EXIT_OK


def _review_json(proposal: Proposal, outlooks: Mapping[str, Outlook]) -> JsonObject:
    return {
        "outlooks": [
            {"path": printable(path), "prospect": str(outlook.prospect), "detail": outlook.detail}
            for path, outlook in outlooks.items()
        ],
        "discarded": {
            "files": [printable(path) for path in proposal.discarded_files],
            "hunks": list(proposal.discarded_hunks),
        },
        "final_message": proposal.final_message,
        "changes": changes_json(proposal.changes),
        "patch": proposal.patch,
        "notes": list(proposal.notes),
    }


def add_arguments_apply(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp apply`."""
    parser.add_argument("run_id", metavar="ID", help="a run, or the beginning of its id")
    parser.add_argument("--files", nargs="+", metavar="FILE", help="these files alone, flagged ones too")
    parser.add_argument("--hunks", nargs="+", metavar="N", type=positive_int, help="these hunks of the review alone")
    parser.add_argument("--apply-flagged", action="store_true", help="also what is flagged as running by itself")
    _add_json(parser)


def run_apply(arguments: argparse.Namespace) -> int:
    """Apply a proposal to the real workspace; 4 where a file is in conflict, 1 where one could not be written."""
    outcome = apply_proposal(
        arguments.run_id, files=arguments.files, hunks=arguments.hunks, with_flagged=arguments.apply_flagged
    )
    say(describe_outcome(outcome))
    if arguments.json:
        print_json(applied_json(outcome))
    if outcome.conflicts:
        return EXIT_CONFLICT
    return EXIT_ERROR if outcome.failed else EXIT_OK


def add_arguments_discard(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp discard`."""
    parser.add_argument("run_id", metavar="ID", help="a run, or the beginning of its id")
    parser.add_argument("--files", nargs="+", metavar="FILE", help="these files alone; the rest stays a proposal")
    parser.add_argument("--hunks", nargs="+", metavar="N", type=positive_int, help="these hunks of the review alone")
    _add_json(parser)


def run_discard(arguments: argparse.Namespace) -> int:
    """Discard a proposal or a part of it. One that cannot be read is deleted."""
    run_id, state = discard_proposal(arguments.run_id, files=arguments.files, hunks=arguments.hunks)
    if arguments.json:
        print_json({"run_id": run_id, "state": str(state), "error": None})
    elif state is ProposalState.DISCARDED:
        say(f"The proposal of run {run_id} is discarded.\n")
    else:
        say(f"That part is discarded; the rest of run {run_id} is {state}.\n")
    return EXIT_OK


def add_arguments_replay(parser: argparse.ArgumentParser) -> None:
    """The arguments of `frog-lsp replay`."""
    parser.add_argument("file", metavar="FILE", help="a trajectory, or the id of a run")
    parser.add_argument("--full", action="store_true", help="whole thoughts and observations")
    _add_json(parser)


def run_replay(arguments: argparse.Namespace) -> int:
    """Show a trajectory again, as it looked while the run went on."""
    from agent.replay import describe, trajectory_json

    path = Path(arguments.file)
    kept = trajectories_dir() / f"{arguments.file}.jsonl"
    trajectory = read_trajectory(kept if not path.exists() and "/" not in arguments.file and kept.exists() else path)
    if arguments.json:
        value: dict[str, Any] = trajectory_json(trajectory)
        print_json(value | {"error": None})
        return EXIT_OK
    started = trajectory.header.get("started_at")
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(started)) if isinstance(started, int | float) else ""
    write_stdout(describe(trajectory, when=when, full=arguments.full).encode("utf-8", "backslashreplace"))
    return EXIT_OK
