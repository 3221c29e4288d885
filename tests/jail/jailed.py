"""Runs commands in the real jail and keeps what they say."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agent.jail.command import run_command
from agent.jail.spec import JailSpec, parse_limits
from tests.support import config_home_with_consent, workspace_hash

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = 65534


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def jail(
    workspace: Path,
    *argv: str,
    limits: tuple[str, ...] = (),
    read_only: tuple[str, ...] = (),
    python: str | None = None,
) -> Outcome:
    """Run `argv` as `frog-lsp jail` does, in this process, with descriptors 1 and 2 kept in files."""
    spec = JailSpec(workspace=str(workspace), limits=parse_limits(limits), read_only_paths=read_only, python=python)
    kept = [os.dup(1), os.dup(2)]
    files = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]  # noqa: SIM115
    try:
        os.dup2(files[0].fileno(), 1)
        os.dup2(files[1].fileno(), 2)
        stderr, sys.stderr = sys.stderr, os.fdopen(os.dup(2), "w")
        try:
            code = asyncio.run(run_command(spec, argv))
        finally:
            sys.stderr.close()
            sys.stderr = stderr
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
    texts = []
    for file in files:
        file.seek(0)
        texts.append(file.read().decode("utf-8", "replace"))
        file.close()
    return Outcome(code, *texts)


def shell(workspace: Path, script: str, **options: tuple[str, ...]) -> Outcome:
    """The same with a login shell."""
    return jail(workspace, "bash", "-lc", script, **options)


def frog_jail(
    workspace: Path,
    *argv: str,
    as_nobody: bool = False,
    home: Path | None = None,
    before: tuple[str, ...] = (),
    limits: tuple[str, ...] = (),
    set_later: dict[str, str] | None = None,
    backend: str = "auto",
    read_only: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run `argv` in the jail from a process of its own, where needed as an ordinary user, or under `before`.

    `set_later` are variables that the server sets for itself. The real workspace must be the same afterwards.
    """
    code = (
        f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}]; sys.path += {sys.path!r}; import asyncio\n"
        "from agent.jail.command import run_command\n"
        "from agent.jail.spec import JailSpec, parse_limits\n"
        f"import os; os.environ.update({set_later or {}!r})\n"
        f"spec = JailSpec(workspace=sys.argv[1], limits=parse_limits({limits!r}), read_only_paths={read_only!r})\n"
        f"sys.exit(asyncio.run(run_command(spec, sys.argv[2:], {backend!r})))"
    )
    python, prefix = sys.executable, list(before)
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(home or Path.home())}
    if backend == "landlock":
        environment["XDG_CONFIG_HOME"] = str(config_home_with_consent())
    if as_nobody:
        python = "/usr/bin/python3"
        prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *prefix]
    hash_before = workspace_hash(workspace, times=True)
    done = subprocess.run(
        [*prefix, python, "-P", "-c", code, str(workspace), *argv],
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert workspace_hash(workspace, times=True) == hash_before, f"the real workspace {workspace} changed"
    return done


def can_be_nobody() -> str | None:
    """Why no ordinary user can be tried here; None where one can."""
    if os.geteuid() != 0:
        return "this is an ordinary user already"
    probe = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "/usr/bin/python3", "-c"]
    code = f"import sys; assert sys.version_info >= (3, 11); open({str(REPOSITORY / 'agent' / 'types.py')!r})"
    try:
        done = subprocess.run([*probe, code], capture_output=True, timeout=20, stdin=subprocess.DEVNULL, cwd="/")
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else "an ordinary user has no Python 3.11, or may not read the project"
