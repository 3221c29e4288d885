"""Progress on stderr, in bytes or in steps: a bar where a person looks, a line at each tenth where not."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from quant.sizes import size_text


class ByteProgress:
    """Use as a context; `update` takes (bytes done, bytes in all)."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._shown = -1
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
        self._task = self._bar.add_task(title, total=None) if self._bar else None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int, title: str | None = None) -> None:
        """Show that `done` of `total` bytes are done."""
        if title is not None and title != self._title:
            self._title, self._shown = title, -1
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=self._title, completed=done, total=total)
            return
        tenth = 10 * done // total if total else 0
        if tenth > self._shown:
            self._shown = tenth
            self.note(f"{self._title}: {10 * tenth} % of {size_text(total)}")

    def note(self, text: str) -> None:
        """Say a line without spoiling the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


class CountProgress:
    """Steps of things done one after another. Use as a context; `update` takes (what, steps done, steps in all)."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._shown: dict[str, int] = {}
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` steps of `what` are done."""
        if self._bar is not None:
            if what not in self._tasks:
                self._tasks[what] = self._bar.add_task(what, total=total)
            self._bar.update(self._tasks[what], completed=done, total=total)
            return
        tenth = 10 * done // total if total else 0
        if tenth > self._shown.get(what, -1):
            self._shown[what] = tenth
            sys.stderr.write(f"{what}: {done:,} of {total:,}\n")
            sys.stderr.flush()
