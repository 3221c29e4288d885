"""What `fix` and `demo` share: execute a run in a terminal, sum it up, show its diff, offer to apply it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

import psutil
from rich.console import Console
from rich.text import Text

from agent.changes.changeset import shown
from agent.changes.review import render
from agent.cli_show import EXIT_SENTENCES, Presenter, describe_place, describe_test, duration
from agent.run import Run
from agent.types import ChangeSet, FileChange, RunResult, RunSpec
from agent.visible import visible

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MOST_DIFF_LINES = 2_000
_MOST_TEST_LINES = 12
_NOT_CHECKED = "Tests: not checked"
_LETTERS = {"created": "A", "modified": "M", "deleted": "D", "renamed": "R", "mode": "m", "link": "L"}


def execute(spec: RunSpec, console: Console, on_hard_stop: Callable[[], None]) -> RunResult:
    """Do a run and show its steps. The first Ctrl-C cancels it; the second kills every child and ends the process."""
    presenter = Presenter(console)
    try:
        return asyncio.run(_execute(spec, presenter, on_hard_stop))
    finally:
        presenter.close()


async def _execute(spec: RunSpec, presenter: Presenter, on_hard_stop: Callable[[], None]) -> RunResult:
    run = Run(spec, presenter.show)
    loop = asyncio.get_running_loop()
    presenter.wait("starting the model and the jail")
    with _signals(lambda: loop.call_soon_threadsafe(run.cancel), on_hard_stop):
        return await run.execute()


@contextlib.contextmanager
def _signals(cancel: Callable[[], object], on_hard_stop: Callable[[], None]) -> Iterator[None]:
    n_seen = 0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal n_seen
        n_seen += 1
        if n_seen == 1:
            cancel()
        elif n_seen == 2:  # further ones come while this one is at work, in this very thread
            try:
                _kill_children()
                on_hard_stop()
            finally:
                os._exit(130)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _kill_children() -> None:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()


def summarize(console: Console, result: RunResult) -> None:
    """Say how the run ended, what was checked and what was not."""
    console.print()
    sentence = f"{EXIT_SENTENCES[result.exit_reason]} after {_count(result.n_steps, 'step')}"
    console.print(Text(f"{sentence}, {duration(result.elapsed_s)}.", "bold"))
    if result.final_message:
        _block(console, "it says", visible(result.final_message).strip(), "dim")
    if result.error is not None:
        _block(console, "error", visible(f"{result.error.message}\n{result.error.hint}").strip(), "red")
    if result.test_command is None or (result.tests_before is None and result.tests_after is None):
        why = next((note for note in result.notes if note.startswith(_NOT_CHECKED)), _NOT_CHECKED)
        _block(console, "tests", visible(why.removeprefix("Tests: ")), "yellow")
    else:
        after = describe_test(result.tests_after) if result.changes.changes else "not checked, nothing was changed"
        _block(console, "tests", f"{visible(result.test_command)}", "default")
        _block(console, "", f"before: {describe_test(result.tests_before)} · after: {after}", "default")
        if result.tests_after is not None and result.tests_after.exit_code != 0:
            tail = visible(result.tests_after.tail).rstrip().split("\n")[-_MOST_TEST_LINES:]
            _block(console, "", "\n".join(tail), "dim")
    tokens = result.usage
    _block(console, "tokens", f"{tokens.prompt_tokens:,} read, {tokens.completion_tokens:,} written", "dim")
    for note in (note for note in result.notes if not note.startswith(_NOT_CHECKED)):
        _block(console, "note", visible(note), "yellow")
    if result.trajectory is not None:
        _block(console, "record", describe_place(result.trajectory), "dim")
    if not result.changes.changes:
        console.print(Text("No proposal: nothing was changed.", "bold"))
        return
    console.print(Text(f"\nThe proposal changes {_count(len(result.changes.changes), 'file')}:", "bold"))
    for change in result.changes.changes:
        _show_change(console, change)


def _show_change(console: Console, change: FileChange) -> None:
    name = shown(change.path) if change.old_path is None else f"{shown(change.old_path)} → {shown(change.path)}"
    line = Text(f"  {_LETTERS[change.kind.value]} {name}", "default" if change.applied_by_default else "yellow")
    if not change.applied_by_default:
        line.append("  not applied by default", "yellow")
    console.print(line, overflow="fold")
    for flag in change.flags:
        style = "red" if flag.level in ("never", "runs") else "dim"
        console.print(Text(f"      {flag.code}: {visible(flag.why)}", style), overflow="fold")


def show_diff(console: Console, changes: ChangeSet) -> None:
    """Show the diff, hunks numbered, with colours where the console has them."""
    console.print()
    lines = visible(render(changes)).split("\n")
    while lines and lines[0].startswith("#"):  # the summary above has said it
        del lines[0]
    print_diff(console, "\n".join(lines))


def print_diff(console: Console, text: str) -> None:
    """Print a diff that is safe to show, with colours where the console has them."""
    lines = text.rstrip("\n").split("\n")
    for line in lines[:_MOST_DIFF_LINES]:
        console.print(Text(line, _diff_style(line)), overflow="fold")
    if len(lines) > _MOST_DIFF_LINES:
        console.print(Text(f"… {len(lines) - _MOST_DIFF_LINES} more lines: see `frog-lsp review`", "yellow"))


def _diff_style(line: str) -> str:
    for prefix, style in (("+++", "bold"), ("---", "bold"), ("+", "green"), ("-", "red"), ("@@", "cyan"), ("#", "dim")):
        if line.startswith(prefix):
            return style
    return "bold" if line.startswith("diff ") else "default"


def _block(console: Console, label: str, text: str, style: str) -> None:
    """Print a label and, beside it, text wrapped to the width."""
    margin = 10
    for index, line in enumerate(text.split("\n")):
        for number, part in enumerate(Text(line, style).wrap(console, max(20, console.width - margin)) or [Text()]):
            part.rstrip()
            row = Text().append(f"  {label:<8}" if index == number == 0 else " " * margin, "bold")
            console.print(row.append_text(part))


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
