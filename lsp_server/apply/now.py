"""The files of a run as they are at this moment: the open document where there is one, else the disk."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from agent.changes.renames import LostError
from lsp_server.buffers import Buffer
from lsp_server.session import Folder, Session, read_file
from lsp_server.texts import Codec, codec_of_buffer


@dataclass(frozen=True, slots=True)
class FileNow:
    """One path of the workspace at one moment. `text` and `version` are those of its open document.

    `relative` is where the file lies now, which is what commands and edits name.
    """

    relative: str
    path: str
    uri: str
    is_there: bool
    disk: bytes | None
    link: str | None = None
    mode: int | None = None
    text: str | None = None
    version: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether the client has the document open: then its text counts, not the disk."""
        return self.text is not None

    def content(self) -> tuple[bytes | None, Codec | None]:
        """What counts as the file's bytes, and for an open document its codec. Raises NotCarriedError."""
        if self.text is None:
            return self.disk, None
        codec = codec_of_buffer(self.text, self.disk)
        return codec.to_bytes(self.text), codec


Mark = tuple[object, ...]
"""What tells whether a file is still as it was looked at."""


class FolderNow:
    """The folder of a run. Every path of a proposal is looked up here.

    `path_now` gives the path that a file of the run has since, where the user renamed it. It raises LostError for a
    file that is not in the folder any more, and so do the methods.
    """

    def __init__(self, session: Session, folder: Folder, path_now: Callable[[str], str] = str) -> None:
        self._session = session
        self._folder = folder
        self._path_now = path_now

    def look(self, relative: str) -> FileNow:
        """The file of a change, read now. Raises LostError."""
        relative = self._path_now(relative)
        path = os.path.join(self._folder.path, relative)
        if os.path.realpath(os.path.dirname(path)) != os.path.normpath(os.path.join(self._folder.real, relative, "..")):
            raise LostError("a folder on the way to it is a link now")
        buffer = self._session.buffer_of(self._folder, relative)
        return FileNow(
            relative,
            path,
            self._session.uri_for(self._folder, relative),
            is_there(path),
            read_file(path),
            *_link_and_mode(path),
            buffer.text if buffer is not None else None,
            buffer.version if buffer is not None else None,
        )

    def marker(self) -> Callable[[str], Mark]:
        """For many files at one moment: what is another one when `look` may find something else; none is read."""
        folders: dict[str, str] = {}
        opened = {os.path.realpath(b.path): b for b in self._session.buffers if b.path is not None}

        def mark(relative: str) -> Mark:
            try:
                relative = self._path_now(relative)
            except LostError as lost:
                return (str(lost),)
            path = os.path.join(self._folder.path, relative)
            folder, name = os.path.split(path)
            if folder not in folders:
                folders[folder] = os.path.realpath(folder)
            real = os.path.join(folders[folder], name)
            disk = None
            with contextlib.suppress(OSError):
                info = os.lstat(path)
                disk = info.st_dev, info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns
                real = os.path.realpath(path) if stat.S_ISLNK(info.st_mode) else real
            buffer = self._session.buffers.at(path) or opened.get(real)
            return relative, folders[folder], disk, (buffer.version, buffer.text) if buffer is not None else None

        return mark

    def uri(self, relative: str) -> str | None:
        """What the client calls the file of a change, None where it is not in the folder any more."""
        with contextlib.suppress(LostError):
            return self._session.uri_for(self._folder, self._path_now(relative))
        return None

    def buffer(self, relative: str) -> Buffer | None:
        """The open document of a change's file."""
        with contextlib.suppress(LostError):
            return self._session.buffer_of(self._folder, self._path_now(relative))
        return None


def _link_and_mode(path: str) -> tuple[str | None, int | None]:
    try:
        info = os.lstat(path)
        link = os.readlink(path) if stat.S_ISLNK(info.st_mode) else None
    except OSError:
        return None, None
    return link, stat.S_IMODE(info.st_mode)


def is_there(path: str) -> bool:
    """Whether the path names anything, a dangling link included."""
    return os.path.lexists(path)


def make_folder_of(path: str) -> None:
    """Make the folders above a new file; where that fails, saving it will say so."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)


def same_text(a: str, b: str) -> bool:
    r"""Whether two texts are the same but for the kind of their line ends, which some clients make uniform."""
    return a == b or a.replace("\r\n", "\n").replace("\r", "\n") == b.replace("\r\n", "\n").replace("\r", "\n")
