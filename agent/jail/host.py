"""Looks at this machine: what `plan_namespaces` needs to know."""

from __future__ import annotations

import os
import stat
import sys

from agent.errors import JailUnavailable
from agent.jail.explain import explain_platform, kernel_version
from agent.jail.interpreter import inspect_interpreter, project_interpreter, runner_executable
from agent.jail.plan import HostFacts, looked_at
from agent.jail.seccomp import UnsupportedMachineError, build_filter
from agent.jail.spec import JailSpec


def gather_host_facts(spec: JailSpec) -> tuple[HostFacts, tuple[str, ...]]:
    """The facts for a checked spec, and notes for the user.

    Raises JailUnavailable where this machine cannot have backends A and B at all.
    """
    if not sys.platform.startswith("linux"):
        raise JailUnavailable("this is not Linux", explain_platform(sys.platform))
    machine = os.uname().machine
    try:
        program = build_filter(machine)
    except UnsupportedMachineError as error:
        raise JailUnavailable(
            f"there is no table of system calls for {machine}", "The four file tools still work."
        ) from error
    runner = inspect_interpreter(runner_executable())
    if runner.problem:
        raise JailUnavailable(
            f"the interpreter of frog-lsp cannot be shown in the jail: {runner.problem}",
            "Install frog-lsp with a Python that has a folder of its own (a system, uv, pyenv or conda one).",
        )
    notes = []
    project = project_interpreter(spec.workspace, spec.python)
    if project.problem:
        notes.append(f"The project's interpreter is not used in the jail: {project.problem}.")
        project = runner
    info = os.stat(spec.workspace)
    facts = HostFacts(
        uid=os.geteuid(),
        gid=os.getegid(),
        owner_uid=info.st_uid,
        owner_gid=info.st_gid,
        workspace_device=info.st_dev,
        workspace_inode=info.st_ino,
        uid_ranges=_ranges("/proc/self/uid_map"),
        gid_ranges=_ranges("/proc/self/gid_map"),
        kinds={path: kind for path in looked_at() if (kind := _kind(path))},
        environment=dict(os.environ),
        runner=runner,
        project=project,
        seccomp=program,
        kernel=kernel_version(os.uname().release),
    )
    return facts, tuple(notes)


def _ranges(path: str) -> tuple[tuple[int, int], ...]:
    """The identities that exist in our own user namespace, as (first, count)."""
    try:
        with open(path, encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return ()
    return tuple((int(first), int(count)) for first, _, count in rows)


def _kind(path: str) -> str:
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            if path.startswith("/etc/"):
                return "folder" if os.path.isdir(path) else "file" if os.path.isfile(path) else ""
            return "link:" + os.readlink(path)
    except OSError:
        return ""
    return "folder" if stat.S_ISDIR(info.st_mode) else "file" if stat.S_ISREG(info.st_mode) else ""
