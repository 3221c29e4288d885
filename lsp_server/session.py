"""One connection: what the client can do, its folders, its settings, its open documents, its trust."""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import dataclass
from typing import Any

from agent.config import load_user_config
from agent.errors import UsageError
from lsp_server.buffers import Buffer, BufferStore
from lsp_server.capabilities import Capabilities, dig
from lsp_server.client import Client
from lsp_server.layers import Reading, asks_for_replay, read, read_trust, without_user_keys
from lsp_server.settings import Settings
from lsp_server.texts import NotCarriedError, codec_of_buffer
from lsp_server.uris import child_uri, is_at_or_below, path_of, relative_to, respelled, scheme_of, uri_of


@dataclass(frozen=True, slots=True)
class Folder:
    """A workspace folder. `uri` is the client's spelling."""

    uri: str
    path: str
    name: str

    @property
    def real(self) -> str:
        """Where it lies, links followed: two folders of a workspace may be one."""
        return os.path.realpath(self.path)


@dataclass(frozen=True, slots=True)
class Place:
    """A document in a folder; `relative` is its posix path in the folder, `""` for the folder itself."""

    folder: Folder
    relative: str
    path: str


class RefusedError(Exception):
    """Something that we will not do; the message is the reason, for a person."""


class Session:
    """All state of a connection. Changed on the event loop only."""

    def __init__(self, client: Client, capabilities: Capabilities, initialize_params: Any) -> None:
        self.client = client
        self.capabilities = capabilities
        self.buffers = BufferStore()
        self.configured = asyncio.Event()
        """Set once the client's own settings have been asked for, and came or did not come."""
        self.problem: str | None = None
        """Why no run can succeed (no model, no jail), once that was looked at: see `doctor.find_problem`."""
        self.process_id = dig(initialize_params, "processId")
        self.settings_problems: tuple[str, ...] = ()
        """What is wrong with the settings, a sentence each, for a person."""
        self._options = dig(initialize_params, "initializationOptions")
        self._asked: Any = None
        self._folder_settings: dict[str, Any] = {}
        self._spellings: dict[str, str] = {}
        self.folders: list[Folder] = []
        self.set_folders(_folders_of(initialize_params))
        self.resolve_settings()

    # --- settings and trust -----------------------------------------------------------------------------------

    def resolve_settings(self, asked: Any = None, per_folder: dict[str, Any] | None = None) -> None:
        """Read all layers anew: the user's file, `initializationOptions`, what the client answered."""
        self._asked = asked if asked is not None else self._asked
        self._folder_settings = per_folder if per_folder is not None else self._folder_settings
        problems: list[str] = []
        try:
            user: Any = load_user_config()
        except UsageError as error:
            user = None
            problems.append(error.message)
        self._layers = (user, self._options, self._asked)
        readings = [self._read(own) for own in (None, *self._folder_settings.values())]
        self.settings = readings[0].settings
        for reading in readings:
            problems += reading.problems
        self.settings_problems = tuple(dict.fromkeys(problems))
        self.distrust = read_trust(self._options, self._asked)

    def settings_for(self, folder: Folder) -> Settings:
        """The settings of a run in a folder: the folder's own never say anything of the model, the jail, the agent."""
        return self._read(self._folder_settings.get(folder.path)).settings

    def _read(self, own: Any) -> Reading:
        # Only what starts the server may ask for the model that plays a script.
        return read(*self._layers, without_user_keys(own), replay=asks_for_replay(self._options))

    # --- folders and documents --------------------------------------------------------------------------------

    def set_folders(self, folders: list[Folder]) -> None:
        """The folders of the workspace, those of one path once."""
        self.folders = list({folder.path: folder for folder in folders}.values())
        self._unfit = {folder.path: _unfit(folder.path) for folder in self.folders}

    def change_folders(self, added: Any, removed: Any) -> list[Folder]:
        """`workspace/didChangeWorkspaceFolders`; the folders that are gone."""
        gone = {folder.path for folder in _parse_folders(removed)}
        before = self.folders
        self.set_folders([f for f in before if f.path not in gone] + _parse_folders(added))
        paths = {folder.path for folder in self.folders}
        return [folder for folder in before if folder.path not in paths]

    def follow_rename(self, old_uri: str, new_uri: str) -> tuple[str, str] | None:
        """A file or folder was renamed: open documents, spellings and workspace folders follow.

        The two paths; None where either is no file of this machine, or nothing was renamed.
        """
        old, new = path_of(old_uri), path_of(new_uri)
        if old is None or new is None or old == new:
            return None
        self.buffers.rename(old, new, new_uri)
        spellings = self._spellings
        for path in [path for path in spellings if is_at_or_below(path, old)]:
            below = path[len(old) :]
            spellings[new + below] = respelled(spellings.pop(path), below, new_uri)
        if any(is_at_or_below(folder.path, old) for folder in self.folders):
            self._folder_settings = {
                new + path[len(old) :] if is_at_or_below(path, old) else path: value
                for path, value in self._folder_settings.items()
            }
            self.set_folders([self._moved(folder, old, new, new_uri) for folder in self.folders])
        return old, new

    @staticmethod
    def _moved(folder: Folder, old: str, new: str, new_uri: str) -> Folder:
        if not is_at_or_below(folder.path, old):
            return folder
        below = folder.path[len(old) :]
        name = os.path.basename(new) if folder.name == os.path.basename(folder.path) and not below else folder.name
        return Folder(respelled(folder.uri, below, new_uri), new + below, name)

    def remember_spelling(self, uri: str) -> None:
        """A client that named a file once gets the same string back."""
        if (path := path_of(uri)) is not None:
            self._spellings[path] = uri

    def uri_for(self, folder: Folder, relative: str) -> str:
        """The URI to name a file by: the client's own string where it ever gave one."""
        buffer = self.buffer_of(folder, relative)
        if buffer is not None:
            return buffer.uri
        return self._spellings.get(os.path.join(folder.path, relative)) or child_uri(folder.uri, relative)

    def buffer_of(self, folder: Folder, relative: str) -> Buffer | None:
        """The open document of a file of a folder, also where it was opened through a link."""
        path = os.path.join(folder.path, relative)
        if (buffer := self.buffers.at(path)) is not None:
            return buffer
        real = os.path.realpath(path)
        return next((b for b in self.buffers if b.path is not None and os.path.realpath(b.path) == real), None)

    def folder_at(self, path: str) -> Folder | None:
        """The workspace folder that lies there, as it is spelled or else through links."""
        if (folder := next((f for f in self.folders if f.path == path), None)) is not None:
            return folder
        real = os.path.realpath(path)
        return next((f for f in self.folders if f.real == real), None)

    def place_of(self, uri: str) -> Place:
        """Where a document, or a folder as a whole, lies. Raises RefusedError with the reason against a run."""
        scheme = scheme_of(uri)
        if "notebook" in scheme or uri.partition("#")[0].partition("?")[0].endswith(".ipynb"):
            raise RefusedError("notebooks are not supported: an edit could not be reviewed cell by cell")
        if scheme == "untitled":
            raise RefusedError("the document has no name yet: save it first")
        path = path_of(uri)
        if path is None and scheme == "file":
            raise RefusedError("the URI names no file on this machine")
        if path is None:
            raise RefusedError(f"only files on this machine can be worked on, not {scheme or 'this kind of'} documents")
        place = self._place_of_path(path)
        if place is None:
            if not self.folders:
                raise RefusedError("no folder is open: open the project's folder in the editor")
            raise RefusedError("the file is outside the folders of the workspace")
        return place

    def _place_of_path(self, path: str) -> Place | None:
        """In the innermost folder; through links only where no folder holds the path as it is spelled."""
        for find in (_below, _below_through_links):
            found = [(folder, find(folder, path)) for folder in self.folders]
            places = [Place(folder, relative, path) for folder, relative in found if relative is not None]
            if places:
                return max(places, key=lambda place: len(place.folder.path))
        return None

    def snapshot_buffers(self, folder: Folder) -> tuple[dict[str, bytes], list[str]]:
        """The open documents below a folder that are not as on disk, encoded as they would be saved; and notes on
        those that could not be encoded."""
        buffers: dict[str, bytes] = {}
        notes: list[str] = []
        for buffer in self.buffers:
            if buffer.path is None or buffer.uri.endswith(".ipynb"):
                continue
            # A folder that lies in this one is part of what the run sees, though it has runs of its own.
            relative = _below(folder, buffer.path) or _below_through_links(folder, buffer.path)
            if not relative:
                continue
            disk = read_file(buffer.path)
            try:
                data = codec_of_buffer(buffer.text, disk).to_bytes(buffer.text)
            except NotCarriedError as error:
                notes.append(f"The run sees {relative} as it is on disk: {error}.")
                continue
            if data != disk:
                buffers[relative] = data
        return buffers, notes

    def refusal(self, folder: Folder) -> str | None:
        """Why no run may start in a folder, None where one may. From memory: nothing is read from disk."""
        own = read_trust(self._folder_settings.get(folder.path))  # a folder may take trust away, never give it
        return self.distrust or own or self._unfit.get(folder.path)


def _below(folder: Folder, path: str) -> str | None:
    """The path in the folder, `""` for the folder itself, None where it is not in it."""
    return "" if path == folder.path else relative_to(folder.path, path)


def _below_through_links(folder: Folder, path: str) -> str | None:
    real = os.path.realpath(path)
    return "" if real == folder.real else relative_to(folder.real, real)


def _unfit(path: str) -> str | None:
    """Why a folder is no project."""
    real = os.path.realpath(path)
    if real == "/":
        return "the whole file system is not a project: open a folder below it"
    if real == os.path.realpath(os.path.expanduser("~")):
        return "the home folder is not a project: open a folder below it"
    return None


def read_file(path: str, max_bytes: int | None = None) -> bytes | None:
    """The bytes of a regular file, None where there is none to read, or where it has more than `max_bytes`.

    Never waits for a FIFO, and never reads a device, which may have no end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            info = os.fstat(descriptor)
            is_read = stat.S_ISREG(info.st_mode) and (max_bytes is None or info.st_size <= max_bytes)
            return file.read() if is_read else None
    except (OSError, ValueError):
        return None


def _folders_of(params: Any) -> list[Folder]:
    folders = _parse_folders(dig(params, "workspaceFolders"))
    if folders:
        return folders
    root_uri, root_path = dig(params, "rootUri"), dig(params, "rootPath")
    if isinstance(root_uri, str):
        return _parse_folders([{"uri": root_uri}])
    if isinstance(root_path, str) and os.path.isabs(root_path):
        return _parse_folders([{"uri": uri_of(root_path)}])
    return []


def _parse_folders(value: Any) -> list[Folder]:
    folders: list[Folder] = []
    for item in value if isinstance(value, list) else []:
        uri, name = dig(item, "uri"), dig(item, "name")
        path = path_of(uri) if isinstance(uri, str) else None
        if isinstance(uri, str) and path is not None:
            folders.append(Folder(uri, path, name if isinstance(name, str) and name else os.path.basename(path)))
    return folders
