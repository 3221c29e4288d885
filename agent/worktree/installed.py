"""Which modules a project's own environment has: a new file of that name in the project would hide one."""

from __future__ import annotations

import contextlib
import os

ENVIRONMENTS = (".venv", "venv")


def installed_modules(workspace: str) -> frozenset[str]:
    """The top-level modules in the `site-packages` of the workspace's `.venv` or `venv`; empty where there is none.

    Two folder listings: the cost follows the number of installed packages, not the workspace.
    """
    modules: set[str] = set()
    for environment in ENVIRONMENTS:
        library = os.path.join(workspace, environment, "lib")
        for version in _names(library):
            if version.startswith("python"):
                modules |= {_module(name) for name in _names(os.path.join(library, version, "site-packages"))}
    return frozenset(modules - {""})


def _names(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _module(name: str) -> str:
    """The module that an entry of `site-packages` is, `""` for metadata and data."""
    if name.endswith((".dist-info", ".egg-info", ".pth", ".egg-link", ".data")) or name == "__pycache__":
        return ""
    stem, _, ending = name.partition(".")
    return stem if stem.isidentifier() and (not ending or name.endswith((".py", ".so", ".pyd"))) else ""
