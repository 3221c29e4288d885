"""Finds what an interpreter needs to run in the jail, without ever running it.

The interpreter of a workspace is untrusted: a repository may carry a `.venv/bin/python` that is a link to
anywhere. So only folders that look like a Python installation, and never protected ones, become visible.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from agent.jail.spec import is_within, refusal_to_show

_MAX_LINKS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """An interpreter as the jail sees it.

    `shown` are folders to bind read-only, `links` the symbolic links on the way (path, target) that have to
    exist at the same place, `venv` the virtual environment that it belongs to, `problem` why it cannot be used.
    """

    executable: str
    real: str
    shown: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    venv: str | None = None
    problem: str | None = None


def project_interpreter(workspace: str, chosen: str | None) -> Interpreter:
    """The interpreter of a project: the chosen one, else `.venv` or `venv` in it, else our own."""
    if chosen:
        return inspect_interpreter(chosen)
    for name in (".venv", "venv"):
        executable = os.path.join(workspace, name, "bin", "python")
        if os.path.lexists(executable):
            found = inspect_interpreter(executable)
            if found.problem is None:
                return found
    return inspect_interpreter(sys.executable)


def runner_executable() -> str:
    """The interpreter, free of any virtual environment, that runs our own code on both sides."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def inspect_interpreter(executable: str) -> Interpreter:
    """Follow the links of `executable` and of its virtual environment's base."""
    real, links = resolve(executable)
    shown: list[str] = []
    venv = os.path.dirname(os.path.dirname(executable))
    home = _home_of_venv(venv)
    if home is None:
        venv = ""
    else:
        shown.append(os.path.realpath(venv))
        base, more = resolve(os.path.join(home, os.path.basename(real)))
        links += more
        if os.path.exists(base):
            shown.append(os.path.dirname(os.path.dirname(base)))
    if not (venv and is_within(real, os.path.realpath(venv))):
        shown.append(os.path.dirname(os.path.dirname(real)))
    problem = None
    if not os.access(real, os.X_OK):
        problem = f"{executable} is no program that can be run"
    for folder in shown:
        if folder != os.path.realpath(venv or "/") and not _is_installation(folder):
            problem = problem or f"{folder}, where {executable} leads, is no Python installation"
        if reason := refusal_to_show(folder):
            problem = problem or f"{folder} cannot be shown in the jail: {reason}"
    return Interpreter(
        executable=executable,
        real=real,
        shown=tuple(dict.fromkeys(shown)),
        links=tuple(dict.fromkeys(links)),
        venv=venv or None,
        problem=problem,
    )


def resolve(path: str) -> tuple[str, list[tuple[str, str]]]:
    """The real path, and every symbolic link that was followed on the way as (path, target)."""
    links: list[tuple[str, str]] = []
    todo = os.path.normpath(path).split("/")[1:]
    done = ""
    while todo:
        candidate = f"{done}/{todo[0]}"
        try:
            target = os.readlink(candidate)
        except OSError:
            done = candidate
            todo = todo[1:]
            continue
        links.append((candidate, target))
        if len(links) > _MAX_LINKS:
            break
        whole = os.path.normpath(os.path.join(done or "/", target, *todo[1:]))
        todo, done = whole.split("/")[1:], ""
    return done or "/", links


def _home_of_venv(folder: str) -> str | None:
    """The `home` of a virtual environment: the folder of its base interpreter."""
    try:
        with open(os.path.join(folder, "pyvenv.cfg"), encoding="utf-8", errors="replace") as file:
            for line in file.read(65_536).splitlines():
                key, _, value = line.partition("=")
                if key.strip().lower() == "home" and os.path.isabs(value.strip()):
                    return value.strip()
    except OSError:
        pass
    return None


def _is_installation(folder: str) -> bool:
    """True where `folder` has `lib/python3.N/os.py`, as every prefix has."""
    for lib in ("lib", "lib64"):
        try:
            names = os.listdir(os.path.join(folder, lib))
        except OSError:
            continue
        if any(n.startswith("python3") and os.path.isfile(os.path.join(folder, lib, n, "os.py")) for n in names):
            return True
    return False
