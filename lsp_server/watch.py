"""Being told when one of a few files changes: by the client, by the system, or by asking the disk.

One port, `FileWatch`. The client's own watching is the best there is: it sees what the editor sees, on a remote
machine too. Without it watchdog observes the folders of the files (`watch_disk`), and where the system has no
watches left the files are looked at every second.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from lsp_server.client import Client, NoAnswerError
from lsp_server.uris import uri_of

logger = logging.getLogger(__name__)

METHOD = "workspace/didChangeWatchedFiles"
_CREATE, _CHANGE, _DELETE = 1, 2, 4
_IN_GLOBS = re.compile(r"[*?\[\]{}\\]")

OnChange = Callable[[str, bool], None]
"""Told, on the event loop, of a path that changed; true where it is a folder, so that all below it may have."""


@dataclass(frozen=True, slots=True, order=True)
class WatchedFile:
    """A file, there or not, by its absolute path; `root` is the workspace folder that it lies in."""

    path: str
    root: str

    def folders(self) -> Iterator[str]:
        """The folders above the file, the nearest first, `root` last."""
        folder = self.path
        while folder != self.root and folder.startswith(self.root.rstrip("/") + "/"):
            folder = folder.rpartition("/")[0] or "/"
            yield folder


class WatchFailedError(Exception):
    """This way to watch cannot be had; the message says why."""


class FileWatch(Protocol):
    """Tells when one of some files changes. May tell of others, and more than once."""

    async def watch(self, files: frozenset[WatchedFile]) -> None:
        """From now on watch these, and as little else as may be. Raises WatchFailedError."""
        ...

    def close(self) -> None:
        """Watch nothing any more. Never waits."""
        ...


class ClientWatch:
    """`workspace/didChangeWatchedFiles`, registered for what is watched and for nothing else.

    The events come as notifications to `features.watched_files`.
    """

    def __init__(self, client: Client, *, relative_patterns: bool) -> None:
        self._client = client
        self._relative_patterns = relative_patterns
        self._registered: dict[str, frozenset[WatchedFile]] = {}
        """The registrations that the client has, by their ids, with their files."""
        self._n_registered = 0

    async def watch(self, files: frozenset[WatchedFile]) -> None:
        """Register the files that are new; a registration goes once none of its files is wanted."""
        new = files.difference(*self._registered.values())
        if new:
            self._n_registered += 1
            name = f"frog-watched-files-{self._n_registered}"
            options = {"watchers": watchers(new, relative_patterns=self._relative_patterns)}
            registration = {"id": name, "method": METHOD, "registerOptions": options}
            try:
                await self._client.request("client/registerCapability", {"registrations": [registration]})
            except NoAnswerError as error:
                raise WatchFailedError(str(error)) from error
            self._registered[name] = new
        over = [name for name, watched in self._registered.items() if watched.isdisjoint(files)]
        if over:
            for name in over:
                del self._registered[name]
            try:  # the misspelt key is that of the protocol
                gone = {"unregisterations": [{"id": name, "method": METHOD} for name in over]}
                await self._client.request("client/unregisterCapability", gone)
            except NoAnswerError as error:
                logger.info("%s: the client may tell of files that nobody waits for", error)

    def close(self) -> None:
        """The registration goes with the connection."""


def watchers(files: Iterable[WatchedFile], *, relative_patterns: bool) -> list[dict[str, Any]]:
    """The FileSystemWatchers of files; of the folders above them (they may be moved), without the workspace folder."""
    folders = {folder for file in files for folder in file.folders() if folder != file.root}
    kinds = dict.fromkeys(sorted(folders), _CREATE | _DELETE)
    kinds |= dict.fromkeys(sorted({file.path for file in files}), _CREATE | _CHANGE | _DELETE)
    return [{"globPattern": _glob(path, relative_patterns), "kind": kind} for path, kind in kinds.items()]


def _glob(path: str, relative_patterns: bool) -> str | dict[str, str]:
    """A glob that matches a path and little else.

    Clients do not agree on how to quote in a glob: what means something becomes `?`, which matches more, and the
    events are compared with the paths.
    """
    folder, _, name = path.rpartition("/")
    if relative_patterns:
        return {"baseUri": uri_of(folder or "/"), "pattern": _IN_GLOBS.sub("?", name)}
    return _IN_GLOBS.sub("?", path)
