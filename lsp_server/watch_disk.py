"""Watching without the client: watchdog on the folders of the files, or a look at each file every second."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any

from lsp_server.watch import OnChange, WatchedFile, WatchFailedError

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver, ObservedWatch

logger = logging.getLogger(__name__)

MAX_FOLDERS = 32
"""Each observed folder costs a thread, with older watchdogs one of the user's 128 inotify instances, too."""
POLL_S = 1.0


class SystemWatch:
    """watchdog, which is imported when there is something to watch. Folders are never observed with what is below.

    Its threads hand over to the loop; the two tables that they read are replaced, never changed.
    """

    def __init__(self, on_change: OnChange) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._observer: BaseObserver | None = None
        self._watches: dict[str, ObservedWatch] = {}
        """By the real path: inotify would watch a link itself. Touched by `_observe` alone."""
        self._moved: set[str] = set()
        """Folders that came, went or were moved: what is observed under their names may be something else."""
        self._folders: dict[str, list[str]] = {}
        """The names of the folders above the files, by real path."""
        self._of_interest: frozenset[str] = frozenset()
        """The files, and the folders above them."""
        self._is_closed = False

    async def watch(self, files: frozenset[WatchedFile]) -> None:
        """Observe the folders that there are above the files."""
        moved, self._moved = self._moved, set()
        try:
            await asyncio.to_thread(self._observe, files, moved)
        except OSError as error:
            self.close()
            raise WatchFailedError(f"the system watches no more files ({error.strerror or error})") from error
        except WatchFailedError:
            self.close()
            raise

    def _observe(self, files: frozenset[WatchedFile], moved: set[str]) -> None:
        """On a thread of the pool: starting and stopping an emitter may wait."""
        above = {folder for file in files for folder in file.folders()}
        by_real: dict[str, list[str]] = {}
        for folder in above:
            if os.path.isdir(folder):
                by_real.setdefault(os.path.realpath(folder), []).append(folder)
        if len(by_real) > MAX_FOLDERS:
            raise WatchFailedError(f"the files lie in {len(by_real)} folders")
        stale = {real for real in self._watches if any(real == m or real.startswith(m + "/") for m in moved)}
        self._folders, self._of_interest = by_real, frozenset(above | {file.path for file in files})
        if (by_real.keys() == self._watches.keys() and not stale) or self._is_closed:
            return
        from watchdog import events
        from watchdog.observers import Observer

        if self._observer is None:
            self._observer = Observer()
            self._observer.start()
        for real in (self._watches.keys() - by_real.keys()) | stale:
            with contextlib.suppress(KeyError):
                self._observer.unschedule(self._watches.pop(real))
        handler = events.FileSystemEventHandler()
        handler.dispatch = self._dispatch  # type: ignore[method-assign]
        kinds: list[type[events.FileSystemEvent]] = [
            events.FileCreatedEvent,
            events.FileModifiedEvent,
            events.FileMovedEvent,
            events.FileDeletedEvent,
            events.DirCreatedEvent,
            events.DirMovedEvent,
            events.DirDeletedEvent,
        ]
        for real in by_real.keys() - self._watches.keys():
            with contextlib.suppress(FileNotFoundError):  # gone again
                self._watches[real] = self._observer.schedule(handler, real, event_filter=kinds)

    def _dispatch(self, event: Any) -> None:
        for real in {os.fsdecode(event.src_path), os.fsdecode(event.dest_path)} - {""}:
            parent, _, name = real.rpartition("/")
            paths = [f"{folder.rstrip('/')}/{name}" for folder in self._folders.get(parent or "/", ())]
            for path in paths + (self._folders.get(real, []) if event.is_directory else []):
                if path in self._of_interest:
                    with contextlib.suppress(RuntimeError):  # the loop is closed
                        self._loop.call_soon_threadsafe(self._take, path, real, bool(event.is_directory))

    def _take(self, path: str, real: str, is_folder: bool) -> None:
        if is_folder:
            self._moved.add(real)
        self._on_change(path, is_folder)

    def close(self) -> None:
        """Tell the threads to end; they are daemons and are not waited for."""
        self._is_closed = True
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()


class PollWatch:
    """A look at each file every second. Of these files alone: watchdog's own polling lists whole folders."""

    def __init__(self, on_change: OnChange) -> None:
        self._on_change = on_change
        self._seen: dict[str, tuple[int, ...] | None] = {}
        self._task: asyncio.Task[None] | None = None

    async def watch(self, files: frozenset[WatchedFile]) -> None:
        """Look at these."""
        paths = {file.path for file in files}
        new = await asyncio.to_thread(_look, paths - self._seen.keys())
        self._seen = {path: seen for path, seen in self._seen.items() if path in paths} | new
        if self._seen and self._task is None:
            self._task = asyncio.create_task(self._poll())
        elif not self._seen:
            self.close()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            for path, now in (await asyncio.to_thread(_look, set(self._seen))).items():
                if path in self._seen and self._seen[path] != now:
                    self._seen[path] = now
                    self._on_change(path, False)

    def close(self) -> None:
        """Stop looking."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()


def _look(paths: set[str]) -> dict[str, tuple[int, ...] | None]:
    found: dict[str, tuple[int, ...] | None] = {}
    for path in paths:
        try:
            stat = os.stat(path)
        except (OSError, ValueError):
            found[path] = None
        else:
            found[path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return found
