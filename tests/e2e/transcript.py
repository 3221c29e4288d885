"""What a server said to a client, a line a message, without what differs from run to run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

JAIL = re.compile(r"(?<=jail: )\w+")
RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
ASIDE = frozenset(
    {
        "client/registerCapability",
        "client/unregisterCapability",
        "workspace/configuration",
        "workspace/codeLens/refresh",
        "workspace/textDocumentContent/refresh",
    }
)
"""What comes at any time, as the server's files and settings do, and is no part of a run."""
_KINDS = {1: "error", 2: "warning", 3: "info", 4: "log"}


@dataclass(eq=False)
class Entry:
    """One thing said; `answer` is what the other side answered, for a request."""

    text: str
    answer: Any = None
    is_request: bool = False


class Transcript:
    """Messages in the order in which they came; answers stand with their questions, whenever they came."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._asked: dict[Any, Entry] = {}
        self._aside: set[str] = set()
        self.places: list[tuple[str, str]] = []
        """Paths of this machine and what stands for them, the longest first."""

    def add(self, text: str) -> Entry:
        """A line of the client's own: a heading, a command."""
        entry = Entry(text)
        self.entries.append(entry)
        return entry

    def hear(self, message: dict[str, Any]) -> None:
        """A message of the server. Answers to the client's requests are noted by whoever asked."""
        if "method" not in message:
            return
        if message["method"] in ASIDE:
            self._aside |= _names_aside(message)
            return
        if message["method"] == "window/logMessage" and not message["params"]["message"].startswith("FrogNano"):
            return  # files seen to change: when that is noticed is up to the machine
        if "Jail backend" in str(message.get("params")):
            return  # which one can be had is up to the machine
        words = _WORDS.get(message["method"], _plain)(message.get("params"))
        entry = Entry(f"{message['method']} {words}".rstrip(), is_request="id" in message)
        self.entries.append(entry)
        if entry.is_request:
            self._asked[message["id"]] = entry

    def answer(self, message: dict[str, Any]) -> None:
        """The client's answer to a request of the server."""
        error = message.get("error")
        if message["id"] in self._asked:
            self._asked[message["id"]].answer = message.get("result") if error is None else f"error {error['code']}"

    def render(self) -> str:
        """All lines."""
        lines = [f"aside: {name}" for name in sorted(self._aside)]
        for entry in self.entries:
            mark = "\n" if entry.text.startswith("==") else "? " if entry.is_request else "  "
            line = mark + entry.text
            if entry.answer is not None:
                line += "\n    = " + _plain(entry.answer)
            lines.append(line.rstrip())
        text = unquote("\n".join(lines)) + "\n"
        for path, name in self.places:
            text = text.replace(f"file://{path}", name).replace(path, name)
        return JAIL.sub("JAIL", RUN_ID.sub("RUN", text))


def _names_aside(message: dict[str, Any]) -> set[str]:
    """The method, with what is registered."""
    method, params = message["method"], message.get("params") or {}
    if method == "client/registerCapability":
        return {f"{method} {registration['method']}" for registration in params["registrations"]}
    return {method}


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _progress(params: Any) -> str:
    value = params["value"]
    title = [value["title"]] if "title" in value else []
    return " ".join([value["kind"], *title, "|", value.get("message") or ""])


def _message(params: Any) -> str:
    asked = [action["title"] for action in params.get("actions", ())]
    return f"{_KINDS[params['type']]} | {params['message']}" + (f" {asked}" if asked else "")


def _edit(params: Any) -> str:
    edit = params["edit"]
    parts = edit.get("documentChanges")
    form = "" if parts is not None else "changes "
    if parts is None:
        parts = [{"textDocument": {"uri": uri}, "edits": edits} for uri, edits in edit["changes"].items()]
    extra = {key: params[key] for key in params if key not in ("label", "edit")}
    lines = [f"{form}{params.get('label', '')}" + (f" {_plain(extra)}" if extra else "")]
    for part in parts:
        if "kind" in part:
            names = " -> ".join(part[key] for key in ("uri", "oldUri", "newUri") if key in part)
            lines.append(f"    {part['kind']} {names} {_plain(part.get('options'))}")
        else:
            document = part["textDocument"]
            lines.append(f"    edit {document['uri']} version {_plain(document.get('version'))}")
            for change in part["edits"]:
                span = change["range"]
                where = "-".join(f"{at['line']}:{at['character']}" for at in (span["start"], span["end"]))
                lines.append(f"      {where} {_plain([change['newText']])[1:-1]}")
    return "\n".join(lines)


_WORDS: dict[str, Callable[[Any], str]] = {
    "$/progress": _progress,
    "window/logMessage": _message,
    "window/showMessage": _message,
    "window/showMessageRequest": _message,
    "workspace/applyEdit": _edit,
    "window/workDoneProgress/create": lambda params: str(params["token"]),
}
