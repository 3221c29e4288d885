"""The files of living runs and of waiting proposals are watched: an open review shows the merge with what is there now.

Nothing that is applied depends on this: every file is read again then.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable
from typing import Any

from lsprotocol import types

from agent.changes.changeset import printable
from agent.changes.renames import LostError
from lsp_server.application import Application
from lsp_server.buffers import Buffer
from lsp_server.capabilities import dig
from lsp_server.moved import find_moved
from lsp_server.protocol import FrogServer
from lsp_server.runs import RunRecord
from lsp_server.session import read_file
from lsp_server.uris import is_at_or_below, path_of
from lsp_server.watch import ClientWatch, FileWatch, WatchedFile, WatchFailedError
from lsp_server.watch_disk import PollWatch, SystemWatch

logger = logging.getLogger(__name__)

REFRESH_S = 0.5
"""A run touches files one by one; VS Code restarts its watching for each registration."""
DEBOUNCE_S = 0.3
"""Formatters and version control write many files, and one file many times."""
MAX_FILES = 1_000
"""More than anybody reviews; beyond it files are only read when they are applied."""
_CHANGED = 2


def register(server: FrogServer, application: Application) -> None:
    """Register the features of this file."""
    watching = Watching(application)

    def did_change(params: Any) -> None:
        changes = dig(params, "changes")
        for change in changes if isinstance(changes, list) else []:
            uri = dig(change, "uri")
            path = path_of(uri) if isinstance(uri, str) else None
            if path is not None:
                watching.take(path, dig(change, "type") != _CHANGED)

    def did_create_or_delete(params: Any) -> None:
        files = dig(params, "files")
        for file in files if isinstance(files, list) else []:
            uri = dig(file, "uri")
            path = path_of(uri) if isinstance(uri, str) else None
            if path is not None:
                watching.take(path, True)

    server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)(did_change)
    server.feature(types.WORKSPACE_DID_CREATE_FILES)(did_create_or_delete)
    server.feature(types.WORKSPACE_DID_DELETE_FILES)(did_create_or_delete)
    application.runs.on_changed.append(watching.refresh)
    application.session.buffers.listeners.add(watching.take_buffer)
    application.on_stop.append(watching.close)


class Watching:
    """What is watched, and what is done when it changes. All on the event loop."""

    def __init__(self, application: Application) -> None:
        self._application = application
        session = application.session
        capabilities = session.capabilities
        ways: list[Callable[[], FileWatch]] = [lambda: SystemWatch(self.take), lambda: PollWatch(self.take)]
        if capabilities.watched_files_registration:
            ways.insert(0, lambda: ClientWatch(session.client, relative_patterns=capabilities.relative_patterns))
        self._ways = ways
        self._way: FileWatch | None = None
        self._wanted: dict[str, WatchedFile] = {}
        self._digests: dict[str, bytes | None] = {}
        """What was last seen on disk of the files that are watched."""
        self._on_disk: set[str] = set()
        self._in_editor: set[str] = set()
        self._is_refreshing = False
        self._timer: asyncio.TimerHandle | None = None
        self._following = asyncio.Lock()
        self._is_closed = False

    # --- what to watch ----------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Something is another way with the runs: watch what is of interest now.

        What a run touches while it goes on can wait for more of it; what a review shows cannot.
        """
        if self._is_closed:
            return
        if any(file.path not in self._wanted for file in self._files(of_living=False)):
            self._application.spawn(self._refresh(0.0))
        elif not self._is_refreshing:
            self._is_refreshing = True
            self._application.spawn(self._refresh(REFRESH_S))

    async def _refresh(self, delay_s: float) -> None:
        if delay_s:
            await asyncio.sleep(delay_s)
            self._is_refreshing = False
        files = self._files()
        if len(files) > MAX_FILES:
            logger.info("of %d files the first %d are watched", len(files), MAX_FILES)
        wanted = {file.path: file for file in files[:MAX_FILES]}
        if wanted.keys() != self._wanted.keys() and not self._is_closed:
            self._wanted = wanted
            await self._follow()

    def _files(self, *, of_living: bool = True) -> list[WatchedFile]:
        found: dict[WatchedFile, None] = {}
        for record in self._application.runs.records.values():
            for relative in _names(record) if of_living or not record.is_alive else ():
                if (path := _path(record, relative)) is not None:
                    found[WatchedFile(path, record.folder.path)] = None
        return list(found)

    async def _follow(self) -> None:
        """Let the watching be as wanted, in another way where one fails."""
        async with self._following:
            files = frozenset(self._wanted.values())
            new = [path for path in self._wanted if path not in self._digests]
            self._digests = {path: digest for path, digest in self._digests.items() if path in self._wanted}
            self._digests |= await asyncio.to_thread(_digests, new)
            while not self._is_closed and (files or self._way is not None):
                self._way = self._way or self._ways[0]()
                try:
                    await self._way.watch(files)
                    for path, digest in (await asyncio.to_thread(_digests, new)).items():
                        if digest != self._digests.get(path, digest):  # it changed before it was watched
                            self.take(path, False)
                    return
                except WatchFailedError as error:
                    text = f"Files are watched in another way: {error}."
                    logger.warning("%s", text)
                    self._application.session.client.log(text, "info")
                    self._way.close()
                    self._way = None
                    del self._ways[0]

    # --- what changed -----------------------------------------------------------------------------------------

    def take(self, path: str, is_folder: bool) -> None:
        """A file, or what is below a folder, may have changed on disk."""
        if path in self._wanted:
            self._on_disk.add(path)
        elif is_folder:
            self._on_disk.update(p for p in self._wanted if is_at_or_below(p, path))
        self._wait()

    def take_buffer(self, buffer: Buffer) -> None:
        """An open document has another text."""
        if buffer.path in self._wanted:
            self._in_editor.add(buffer.path)
            self._wait()

    def _wait(self) -> None:
        if (self._on_disk or self._in_editor) and not self._is_closed:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(
                DEBOUNCE_S, lambda: self._application.spawn(self._tell())
            )

    async def _tell(self) -> None:
        records = [record for record in self._application.runs.records.values() if _names(record)]
        if any(record.lock.locked() for record in records):
            self._wait()  # what is just being applied is judged when it is in place
            return
        on_disk, self._on_disk = self._on_disk, set()
        in_editor, self._in_editor = self._in_editor, set()
        found = await asyncio.to_thread(_digests, sorted(on_disk))
        differs = {path for path, digest in found.items() if self._digests.get(path, b"") != digest}
        self._digests |= {path: digest for path, digest in found.items() if path in self._wanted}
        for record in records:
            names = [(relative, _path(record, relative)) for relative in _names(record)]
            for relative in [name for name, path in names if path in differs]:
                await self._note(record, relative)
            touched = frozenset(name for name, path in names if path in differs or path in in_editor)
            if touched:
                for listener in self._application.on_files_changed:
                    listener(record, touched)
        if on_disk:
            await self._follow()  # folders came or went: others are to be observed

    async def _note(self, record: RunRecord, relative: str) -> None:
        """Mark a file that changed on disk, and say so once."""
        path = _path(record, relative)
        data = None if path is None else await asyncio.to_thread(read_file, path)
        record.seems_at.pop(relative, None)
        before, after = _bytes(record, relative)
        if data is not None and data in (before, after):
            return
        name = printable(relative)
        if data is None and before is not None and path is not None:
            place = await asyncio.to_thread(find_moved, before, path, record.folder.path)
            if place is not None:
                record.seems_at[relative] = place
                self._say(record, f"{name} is gone; it seems to be {printable(place)} now", f"moved {relative}")
                return
        if _is_in_place(record, relative):
            return  # it is another file because of us
        self._say(record, f"{name} changed on disk since the run began; applying merges", relative)

    def _say(self, record: RunRecord, text: str, mark: str) -> None:
        if mark not in record.changed:
            record.changed.add(mark)
            self._application.session.client.log(text, "info")

    def close(self) -> None:
        """Watch nothing any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._way is not None:
            self._way.close()


def _names(record: RunRecord) -> list[str]:
    """The files of interest of a run, by their names in the snapshot."""
    proposal = record.proposal
    if record.is_waiting and proposal is not None:
        # Without a look at hunks, which takes long in a large proposal: this is asked at each step of any run.
        settled = {*proposal.applied_files, *proposal.discarded_files}
        left = [change for change in proposal.changes.changes if change.path not in settled]
        return [name for change in left for name in (change.path, change.old_path) if name is not None]
    return sorted(record.touched) if record.is_alive else []


def _path(record: RunRecord, relative: str) -> str | None:
    try:
        return os.path.join(record.folder.path, record.path_now(relative))
    except LostError:
        return None


def _bytes(record: RunRecord, relative: str) -> tuple[bytes | None, bytes | None]:
    """What a file was in the snapshot and what the proposal makes of it, None where that is no file."""
    for change in record.proposal.changes.changes if record.proposal is not None else ():
        before = change.before.data if change.before is not None else None
        after = change.after.data if change.after is not None else None
        if change.old_path == relative:
            return before, None
        if change.path == relative:
            return (before if change.old_path is None else None), after
    return None, None


def _is_in_place(record: RunRecord, relative: str) -> bool:
    """Whether a part of a proposal's file was applied already."""
    proposal = record.proposal
    if proposal is None:
        return False
    numbers = proposal.hunk_numbers().get(relative, frozenset())
    return relative in proposal.applied_files or not numbers.isdisjoint(proposal.applied_hunks)


def _digests(paths: list[str]) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for path in paths:
        data = read_file(path)
        found[path] = None if data is None else hashlib.blake2b(data, digest_size=16).digest()
    return found
