"""From a path in a tool call to a place in the view, with links resolved one name at a time.

Links are read here and never followed by the kernel: a link that stays inside leads on, one that leaves is
refused. If something is swapped for a link after this, the later opening fails, since it follows none.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from typing import NamedTuple

from agent.tools.runner.files import Parts
from agent.tools.runner.view import View

_MAX_LINKS = 40  # as Linux


class Place(NamedTuple):
    """A place in a view, with links resolved. `top` is "" in the workspace, else the absolute scratch folder."""

    view: View
    parts: Parts
    top: str = ""

    @property
    def shown(self) -> str:
        """The path for the model: relative to the workspace."""
        return posixpath.join(self.top, *self.parts) or "."


class Places:
    """The workspace, and a scratch folder (the jail's own /tmp) where there is one."""

    def __init__(self, root: str, view: View, scratch: str | None = None, scratch_view: View | None = None) -> None:
        self.root = root
        self._view = view
        self._scratch = scratch
        self._scratch_view = scratch_view

    def resolve(self, path: str) -> Place:
        """Where `path` leads. Nothing needs to be there. Raises PermissionError for what leaves the workspace."""
        relative = self._below(path, self.root)
        if relative is not None:
            parts = _resolve_links(self._view, self.root, relative, path)
            return Place(self._view, parts)
        if self._scratch is not None and self._scratch_view is not None and path.startswith("/"):
            relative = self._below(path, self._scratch)
            if relative is not None:
                parts = _resolve_links(self._scratch_view, self._scratch, relative, path)
                return Place(self._scratch_view, parts, self._scratch)
        raise PermissionError(f"{path} is outside the workspace")

    def _below(self, path: str, top: str) -> str | None:
        """The path relative to `top` where it says that it is below it, else None."""
        if not path.startswith("/"):
            normal = posixpath.normpath(path)
            if normal != ".." and not normal.startswith("../"):
                return path
            path = posixpath.join(self.root, path)
        elif path.rstrip("/") == top or path.startswith(top.rstrip("/") + "/"):
            inside = path[len(top) :].lstrip("/")
            if not posixpath.normpath(inside or ".").startswith(".."):
                return inside
        normal = posixpath.normpath("/" + path.lstrip("/"))
        if normal == top:
            return ""
        return normal[len(top) :].lstrip("/") if normal.startswith(top.rstrip("/") + "/") else None


def _resolve_links(view: View, root: str, relative: str, asked: str) -> Parts:
    real: list[str] = []
    left = relative.split("/")[::-1]
    n_links = 0
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if not real:
                raise PermissionError(f"{asked} is outside the workspace")
            real.pop()
            continue
        here = (*real, name)
        info = view.lstat(here)
        if info is None or not stat.S_ISLNK(info.st_mode):
            real.append(name)
            continue
        n_links += 1
        if n_links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), asked)
        target = view.readlink(here)
        if target.startswith("/"):
            normal = posixpath.normpath("/" + target.lstrip("/"))
            if normal != root and not normal.startswith(root.rstrip("/") + "/"):
                raise PermissionError(f"{'/'.join(here)} is a link that leaves the workspace; it is not followed")
            target = normal[len(root) :]
            real = []
        elif not _stays_inside(real, target):
            raise PermissionError(f"{'/'.join(here)} is a link that leaves the workspace; it is not followed")
        left += target.split("/")[::-1]
    return tuple(real)


def _stays_inside(folder: list[str], target: str) -> bool:
    """False where the text of a relative link climbs above the top (links in it are resolved later)."""
    depth = len(folder)
    for name in target.split("/"):
        if name == "..":
            depth -= 1
        elif name not in ("", "."):
            depth += 1
        if depth < 0:
            return False
    return True
