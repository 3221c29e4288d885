"""Seed: put states of files into the view before the tools run (unsaved buffers, or a whole proposal)."""

from __future__ import annotations

import binascii
import os
import stat
from typing import Any

from agent.tools.runner.files import Parts
from agent.tools.runner.view import View


def seed(view: View, states: list[dict[str, Any]]) -> None:
    """Each state is `{path, data_b64, mode, link}`; neither data nor link: nothing is there.

    Removals come first, so that a file may stand where a folder was. A missing mode keeps the file's own.
    Raises OSError, and ValueError for a path that is not relative and plain.
    """
    removals = [state for state in states if state.get("data_b64") is None and state.get("link") is None]
    for state in removals:
        view.remove(_parts(state["path"]))
    for state in states:
        parts, link, data = _parts(state["path"]), state.get("link"), state.get("data_b64")
        if link is not None:
            view.remove(parts)
            view.make_link(parts, link)
        elif data is not None:
            _make_room(view, parts)
            view.write(parts, binascii.a2b_base64(data, strict_mode=True), state.get("mode"))


def _make_room(view: View, parts: Parts) -> None:
    """Remove a link or an empty folder where a file shall be, and a link or file where a folder shall be."""
    for n_parts in range(1, len(parts)):
        info = view.lstat(parts[:n_parts])
        if info is not None and not stat.S_ISDIR(info.st_mode):
            view.remove(parts[:n_parts])
    info = view.lstat(parts)
    if info is None or stat.S_ISREG(info.st_mode):
        return
    if stat.S_ISDIR(info.st_mode) and _holds_a_file(view, parts):
        raise IsADirectoryError(f"{'/'.join(parts)} is a folder that holds files")
    view.remove(parts)


def _holds_a_file(view: View, parts: Parts) -> bool:
    return any(kind != stat.S_IFDIR or _holds_a_file(view, (*parts, name)) for name, kind in view.list(parts).items())


def _parts(path: str) -> Parts:
    parts = tuple(path.split("/"))
    if any(name in ("", ".", "..") for name in parts) or "\0" in path or os.path.isabs(path):
        raise ValueError(f"{path!r} is not a plain relative path")
    return parts
