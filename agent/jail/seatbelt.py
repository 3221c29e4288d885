"""Backend M: a Seatbelt profile and an APFS clone for macOS. Untested: nobody has run it, and nothing starts it.

Written by the book and tested as text. Before it may join the others it has to pass the attacks on a Mac.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.jail.plan import HostFacts
from agent.jail.spec import JailSpec

_SANDBOX_EXEC = "/usr/bin/sandbox-exec"
_CP = "/bin/cp"

# Programs and libraries; none of them holds anything of a user.
_SYSTEM = (
    *("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/usr/share", "/System/Library"),
    *("/Library/Apple", "/Library/Developer/CommandLineTools", "/private/etc/ssl", "/private/var/db/timezone"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatbeltPlan:
    """What would be run, in this order: the clone, then the runner in it under the profile."""

    clone: tuple[str, ...]
    profile: str
    argv: tuple[str, ...]


def plan_seatbelt(spec: JailSpec, facts: HostFacts, folder: str, runner: str) -> SeatbeltPlan:
    """The plan for a checked spec. Pure.

    `folder` is a new private one, for the clone and what is scratch; `runner` is the path of the zipapp. The clone is
    not at the path of the workspace, and the loopback, which is the host's here, is closed.
    """
    clone, scratch = f"{folder}/workspace", f"{folder}/scratch"
    shown = (*spec.read_only_paths, *facts.runner.shown, *facts.project.shown)
    profile = seatbelt_profile(readable=(*_SYSTEM, *shown, runner), writable=(clone, scratch))
    variables = {"HOME": scratch, "TMPDIR": scratch, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}
    return SeatbeltPlan(
        clone=(_CP, "-c", "-R", "-p", spec.workspace, clone),  # -c: clonefile(2), which shares blocks and no inodes
        profile=profile,
        argv=(
            *(_SANDBOX_EXEC, "-p", profile, "/usr/bin/env", "-i"),
            *(f"{name}={value}" for name, value in variables.items()),
            *(facts.runner.real, "-I", "-S", runner, "--root", clone, "--scratch", scratch),
        ),
    )


def seatbelt_profile(*, readable: tuple[str, ...], writable: tuple[str, ...]) -> str:
    """Everything is denied but what is named: no network, no Mach services, no other process. Pure."""
    return "\n".join(
        (
            "(version 1)",
            "(deny default)",
            "(allow process-fork)",
            "(allow process-exec)",
            "(allow signal (target same-sandbox))",
            "(allow sysctl-read)",
            '(allow file-read-metadata (literal "/"))',
            f"(allow file-read* {_subpaths(readable)} {_literals(_DEVICES)})",
            f"(allow file-read* file-write* {_subpaths(writable)})",
            '(allow file-write-data (literal "/dev/null"))',
            "",
        )
    )


def _subpaths(paths: tuple[str, ...]) -> str:
    return " ".join(f"(subpath {_quoted(path)})" for path in dict.fromkeys(paths))


def _literals(paths: tuple[str, ...]) -> str:
    return " ".join(f"(literal {_quoted(path)})" for path in paths)


def _quoted(path: str) -> str:
    """A string of the profile language. Raises ValueError for what could end it early."""
    if not path.isprintable():
        raise ValueError(f"{path!r} cannot be written in a profile")
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
