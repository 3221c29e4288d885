"""The runner's loop: one message in, one answer out, until the other side is gone."""

from __future__ import annotations

import re
import sys
from typing import Any

from agent.tools.runner import bash as shell
from agent.tools.runner.edit import edit
from agent.tools.runner.events import Events
from agent.tools.runner.glob import glob
from agent.tools.runner.places import Places
from agent.tools.runner.read import read
from agent.tools.runner.seed import seed
from agent.tools.runner.view import View
from agent.tools.runner.write import write

PROTOCOL = 1
_FILE_TOOLS = {"Read": read, "Write": write, "Edit": edit, "Glob": glob}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Service:
    """Answers requests. `has_bash` False: commands are refused, whatever is asked."""

    def __init__(self, events: Events, places: Places, view: View, *, has_bash: bool) -> None:
        self._events = events
        self._places = places
        self._view = view
        self._has_bash = has_bash

    def serve(self) -> None:
        """Answer until the other side is gone. Raises FrameError for what is no message."""
        while (message := self._events.next_message()) is not None:
            answer = self._answer(message)
            if "id" in message:
                self._events.send({"id": message["id"], **answer})

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        method, params = message.get("method"), message.get("params")
        try:
            return {"result": self._do(method, params if isinstance(params, dict) else {})}
        except Exception as error:  # the answer says what went wrong; the runner goes on
            return {"error": {"kind": _name(error), "message": _printable(str(error))}}

    def _do(self, method: object, params: dict[str, Any]) -> dict[str, Any]:
        if method == "hello":
            return {"protocol": PROTOCOL, "bash": self._has_bash, "python": sys.version.partition(" ")[0]}
        if method == "call":
            return {"observation": self.observe(params["name"], params["arguments"])}
        if method == "seed":
            seed(self._view, params["states"])
            return {}
        if method == "bash":
            if not self._has_bash:
                raise PermissionError(shell.UNAVAILABLE.partition(": ")[2])
            return shell.run_tests(self._events, params["command"], params["timeout_s"])
        raise LookupError(f"there is no method {method!r}")

    def observe(self, name: str, arguments: dict[str, Any]) -> str:
        """What the model sees of one call; every trouble becomes words."""
        try:
            if name == "Bash":
                text = shell.bash(self._events, arguments) if self._has_bash else shell.UNAVAILABLE
            elif name in _FILE_TOOLS:
                text = _FILE_TOOLS[name](self._places, arguments)
            else:
                text = f"Unknown tool: {name}"
        except Exception as error:  # never a crash: the model reads what went wrong
            text = f"{_name(error)}: {error}"
        return _printable(text)


def _name(error: Exception) -> str:
    """The name of the error's class; of Python's own where it is a class of ours."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def _printable(text: str) -> str:
    """Names that are not UTF-8 are shown with U+FFFD: a lone surrogate cannot be printed."""
    return _LONE_SURROGATE.sub("\ufffd", text)
