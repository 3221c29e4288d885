"""Glob: the files that a pattern names, without following links to folders and never inside `.git`."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from agent.tools.runner.files import Parts
from agent.tools.runner.places import Place, Places

MAX_FILES = 1_000
_NEVER_ENTERED = ".git"


def glob(places: Places, arguments: dict[str, Any]) -> str:
    """`pattern`, and `path`: the folder that it starts from (the workspace)."""
    pattern = arguments["pattern"]
    if not pattern:
        raise ValueError("pattern is required")
    start = places.resolve(arguments.get("path") or ".")
    found = sorted(set(_find(places, start, pattern)))
    shown = found[:MAX_FILES]
    if len(found) > len(shown):
        shown.append(f"... {len(found) - MAX_FILES} more files")
    return "\n".join(shown) or "No files matched."


def _find(places: Places, start: Place, pattern: str) -> Iterator[str]:
    names = pattern.split("/")
    n_literal = next((i for i, name in enumerate(names) if any(sign in name for sign in "*?[")), len(names) - 1)
    literal = "/".join(names[:n_literal]) or ("/" if pattern.startswith("/") else ".")
    top = places.resolve(posixpath.join(start.shown, literal))
    asked = posixpath.normpath(posixpath.join(places.root, start.shown, literal))
    if posixpath.normpath(posixpath.join(places.root, top.shown)) != asked:
        return  # a link to a folder stands on the way
    wild = [name for name in names[n_literal:] if name not in ("", ".")]
    if wild and names[-1] and _NEVER_ENTERED not in top.parts:
        yield from _walk(places, top, wild)


def _walk(places: Places, start: Place, names: list[str]) -> Iterator[str]:
    """The files below `start` that match; with a stack, since folders may be nested deeply."""
    tests = [None if name == "**" else re.compile(fnmatch.translate(name)).match for name in names]
    waiting: list[tuple[Parts, frozenset[int]]] = [(start.parts, frozenset({0}))]
    while waiting:
        folder, states = waiting.pop()
        try:
            entries = start.view.list(folder)
        except OSError:  # it went away, or may not be read
            continue
        states = _past_stars(states, tests)
        for name, kind in entries.items():
            if name == _NEVER_ENTERED:
                continue
            if name.startswith("."):
                after = _advance({state for state in states if names[state].startswith(".")}, tests, name)
            else:
                after = _advance(states, tests, name)
            if kind == stat.S_IFDIR:
                if below := after - {len(tests)}:
                    waiting.append(((*folder, name), frozenset(below)))
            elif len(tests) in after:
                here = Place(start.view, (*folder, name), start.top)
                if _is_file(places, here, kind):
                    yield here.shown


def _advance(states: Iterable[int], tests: list[Any], name: str) -> set[int]:
    """The parts of the pattern that may come after `name`; the number of parts means that it is complete."""
    after: set[int] = set()
    for state in states:
        if tests[state] is None:
            after |= {state, len(tests)} if state == len(tests) - 1 else {state}
        elif tests[state](name):
            after.add(state + 1)
    return after


def _past_stars(states: frozenset[int], tests: list[Any]) -> frozenset[int]:
    """`**` also stands for no folder at all: add the states after it."""
    grown = set(states)
    for state in sorted(states):
        while state < len(tests) - 1 and tests[state] is None:
            state += 1
            grown.add(state)
    return frozenset(grown)


def _is_file(places: Places, here: Place, kind: int) -> bool:
    """Whether a plain file is there, or a link that ends at one inside the workspace."""
    if kind != stat.S_IFLNK:
        return kind == stat.S_IFREG
    try:
        place = places.resolve(here.shown)
        info = place.view.lstat(place.parts)
    except OSError:
        return False
    return info is not None and stat.S_ISREG(info.st_mode)
