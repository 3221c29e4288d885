"""Backend B: bubblewrap makes the namespaces and the mounts, our launcher is PID 1 in them."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import re
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.errors import JailUnavailable
from agent.jail import launcher
from agent.jail.explain import hint_for
from agent.jail.ground import Ground, can_have_overlay, hold_copy, hold_visible_layers, refuse_servers, with_group
from agent.jail.groups import Group, group_for
from agent.jail.host import gather_host_facts
from agent.jail.interpreter import runner_executable
from agent.jail.launched import LaunchedJail, start_launched
from agent.jail.plan import HOME, RUNNER_PATH, HostFacts, Plan, plan_namespaces
from agent.jail.spec import JailSpec
from agent.jail.start import Launch, LauncherDiedError, lay_out

# Never by PATH: whoever can put a folder there could put a jail without walls in it.
PLACES = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap", "/run/current-system/sw/bin/bwrap")
OLDEST = (0, 8, 0)
FIRST_WITH_OVERLAY = (0, 11, 0)

_LAUNCHER = "/run/frog/launcher"
_BOOT = (
    f"import sys; sys.path.append({_LAUNCHER!r}); "
    "from agent.jail.launcher.inside import main; main(*map(int, sys.argv[1:]))"
)
_VERSION_TIMEOUT_S = 5.0
_ERRNO_OF_WORDS = {os.strerror(number): number for number in (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EINVAL)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """A bubblewrap that may be trusted: its real path, and its version."""

    path: str
    version: tuple[int, ...]


def plan_bwrap(spec: JailSpec, facts: HostFacts, argv: tuple[str, ...] | None = None) -> Plan:
    """The plan of backend B for a checked spec: that of A, under the one identity that bubblewrap maps. Pure."""
    plan = plan_namespaces(spec, replace(facts, owner_uid=facts.uid, owner_gid=facts.gid), argv)
    return replace(
        plan,
        backend="bwrap",
        capable=plan.privileged,
        uid_map=((facts.uid, facts.uid, 1),),
        gid_map=((facts.gid, facts.gid, 1),),
        masked=tuple(name for name in plan.masked if f"/proc/{name}" in facts.kinds),
    )


def bwrap_argv(
    plan: Plan, bubblewrap: str, python: str, launcher_folder: str, numbers: Mapping[str, int]
) -> tuple[str, ...]:
    """The command line for a plan. Pure.

    `python` runs the launcher, and is visible in the jail. `numbers` has the descriptors of the plan's files by their
    paths, of the runner, the plan and the status channel.
    """
    words = [bubblewrap, *(f"--unshare-{kind}" for kind in ("user", "ipc", "pid", "net", "uts", "cgroup"))]
    words += ["--die-with-parent", "--as-pid-1", "--hostname", "jail"]
    if plan.privileged:  # to make the device nodes read-only, before anything else; dropped with all others then
        words += ["--cap-add", "ALL"]
    words += ["--dev", "/dev", "--proc", "/proc"]
    # one bound for each: what is mounted inside cannot be bound twice
    for folder, mode, share in (("/tmp", "1777", 2), ("/dev/shm", "1777", 4), (HOME, "0700", 4)):  # noqa: S108
        words += ["--perms", mode, "--size", str(plan.scratch_bytes // share), "--tmpfs", folder]
    for source, target in plan.binds:
        words += ["--ro-bind", source, target]
    for path in plan.hidden:
        words += ["--tmpfs", path, "--remount-ro", path]
    for path, target in plan.links:
        words += ["--symlink", target, path]
    for path in (*(path for path, _ in plan.files), RUNNER_PATH):
        words += ["--perms", "0444", "--file", str(numbers[path]), path]
    words += ["--ro-bind", launcher_folder, f"{_LAUNCHER}/agent/jail/launcher"]
    if plan.copy:
        words += ["--bind", plan.copy, plan.workspace]
    else:
        layers = (f"{plan.layers}/upper", f"{plan.layers}/work")
        words += ["--overlay-src", plan.workspace, "--overlay", *layers, plan.workspace]
    for source, target in plan.over_workspace:
        words += ["--ro-bind", source, target]
    for name in plan.masked:
        words += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    # root's launcher has limits to set there first
    for mounted in ("/dev", "/") if plan.privileged else ("/proc", "/dev", "/"):
        words += ["--remount-ro", mounted]
    words += ["--", python, "-I", "-S", "-c", _BOOT, str(numbers["plan"]), str(numbers["status"])]
    return tuple(words)


async def start_bwrap(
    spec: JailSpec, runner: bytes, argv: tuple[str, ...] | None = None, *, outputs: tuple[int, int] | None = None
) -> LaunchedJail:
    """Start backend B for a checked spec; returns when the jail has proven itself. Raises JailUnavailable.

    As root, and where bubblewrap is older than 0.11, the workspace is copied. `outputs` as in `start_launched`.
    """
    bubblewrap = find_bubblewrap()
    facts, notes = gather_host_facts(spec)

    async def start(ground: Ground) -> LaunchedJail:
        plan = plan_bwrap(spec, replace(facts, layers=ground.layers, copy=ground.copy), argv)
        await asyncio.to_thread(_refuse_servers, plan, ground)
        ground = with_group(ground, group_for(spec.limits))
        # what bubblewrap itself says is not of the command: that gets its stderr from the launcher
        ours = outputs and (outputs[0], asyncio.subprocess.PIPE)
        try:
            return await start_launched(
                lambda: (_prepare(plan, bubblewrap, runner, outputs, ground.group), notes), ground, ours
            )
        except LauncherDiedError as error:
            raise _explain(error) from error

    # root keeps the identities of files in an overlay, but has only its own in the jail
    if bubblewrap.version >= FIRST_WITH_OVERLAY and facts.uid != 0 and can_have_overlay(spec, facts):
        try:
            return await start(_hold_two_layers(spec))
        except BwrapOverlayRefused:
            pass
    return await start(await hold_copy(spec, facts.project.shown))


def _refuse_servers(plan: Plan, ground: Ground) -> None:
    try:
        refuse_servers(plan.covered)
    except JailUnavailable:
        ground.remove()
        raise


class BwrapOverlayRefused(JailUnavailable):
    """Bubblewrap works, but cannot mount the overlay."""


def _hold_two_layers(spec: JailSpec) -> Ground:
    ground = hold_visible_layers()
    mode = stat.S_IMODE(os.stat(spec.workspace).st_mode)
    for name in ("upper", "work"):
        os.mkdir(f"{ground.layers}/{name}", 0o700)
    os.chmod(f"{ground.layers}/upper", mode)
    return ground


def _prepare(
    plan: Plan, bubblewrap: Bubblewrap, runner: bytes, outputs: tuple[int, int] | None, group: Group | None
) -> Launch:
    contents = {path: os.fsencode(text) for path, text in plan.files} | {RUNNER_PATH: runner}
    folder = os.path.dirname(os.path.abspath(launcher.__file__))
    inherited = {"group": os.dup(group.procs)} if group else {}
    if outputs:
        inherited["stderr"] = os.dup(outputs[1])
    if plan.layers:
        inherited["view"] = os.open(f"{plan.layers}/upper", os.O_RDONLY | os.O_DIRECTORY)
    python = runner_executable()
    return lay_out(
        plan, contents, lambda numbers: bwrap_argv(plan, bubblewrap.path, python, folder, numbers), inherited
    )


def _explain(error: LauncherDiedError) -> JailUnavailable:
    """What bubblewrap said last, and what can be done about it."""
    words = error.message.rpartition("bwrap: ")[2]
    code = next((number for text, number in _ERRNO_OF_WORDS.items() if text in words), 0)
    kind = BwrapOverlayRefused if "overlay" in words else JailUnavailable
    return kind(f"jail `bwrap` cannot be had: {words}", hint_for("unshare", code))


def find_bubblewrap(places: tuple[str, ...] = PLACES) -> Bubblewrap:
    """The first bubblewrap at one of these places. Raises JailUnavailable where there is none that can be trusted."""
    path = next((place for place in places if os.path.lexists(place)), None)
    if path is None:
        raise JailUnavailable(
            "bubblewrap is not installed", "Debian, Ubuntu: `sudo apt-get install bubblewrap`; Fedora: `dnf`."
        )
    real = os.path.realpath(path)
    if reason := _distrust(real):
        raise JailUnavailable(
            f"bubblewrap at {real} is not used: {reason}", "Install the package of your system in its place."
        )
    version = _version_of(real, os.stat(real).st_mtime_ns)
    if version < OLDEST:
        raise JailUnavailable(
            f"bubblewrap {'.'.join(map(str, version))} at {real} is too old",
            f"{'.'.join(map(str, OLDEST))} or later is needed: update it.",
        )
    return Bubblewrap(path=real, version=version)


def _distrust(real: str) -> str | None:
    """Why others than root could have put this program here, or None."""
    place = real
    while True:
        info = os.stat(place)
        if info.st_uid != 0:
            return f"{place} does not belong to root"
        if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{place} can be written by others than root"
        if place == "/":
            return None
        place = os.path.dirname(place)


@functools.cache
def _version_of(real: str, _changed_ns: int) -> tuple[int, ...]:
    """The version that a trusted bubblewrap says it is. Raises JailUnavailable."""
    try:
        done = subprocess.run(
            (real, "--version"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            cwd="/",
            timeout=_VERSION_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise JailUnavailable(f"bubblewrap at {real} does not run: {error}", "Install it again.") from error
    found = re.search(rb"(\d+)\.(\d+)\.(\d+)", done.stdout)
    if found is None:
        raise JailUnavailable(f"{real} does not say which bubblewrap it is", "Install it again.")
    return tuple(int(part) for part in found.groups())
