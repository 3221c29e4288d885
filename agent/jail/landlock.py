"""Backend C: Landlock and a supervised filter of system calls over a private copy, where no namespace can be had."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath

import agent
from agent.errors import JailUnavailable
from agent.jail.ground import Ground, hold_copy, hold_visible_layers
from agent.jail.host import gather_host_facts
from agent.jail.interpreter import runner_executable
from agent.jail.landlock_consent import has_consent
from agent.jail.landlock_filter import build_landlock_filter, emulated_numbers
from agent.jail.landlock_plan import DEVICES, ETC, RUNNER, LandlockFacts, LandlockPlan, plan_landlock
from agent.jail.launched import LaunchedJail, start_launched
from agent.jail.seccomp import Instruction, UnsupportedMachineError
from agent.jail.spec import JailSpec
from agent.jail.start import Launch, lay_out

OLDEST_LANDLOCK = 6
"""Linux 6.12: before it, a jailed process may signal every process of the user."""

REDUCED = (
    "commands run in a copy of the workspace at another path, without terminals, servers of their own, shared "
    "semaphores, /proc and /tmp; they can see the names, but not the contents, of files of the host; and a process "
    "may outlive the run if both of ours that watch it are killed at once"
)
REDUCED_WITHOUT_BASH = (
    "Bash is not available: commands run in the reduced jail `landlock` only once you agree to it "
    "(`frog-lsp jail --allow-reduced`), so no test was run by the model"
)
AGREE = (
    "It hides contents but not names of files, and has no terminals and no local servers. "
    "If you agree to run commands in it: `frog-lsp jail --allow-reduced`."
)

_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from agent.jail.launcher.landlock_main import main; main(*map(int, sys.argv[2:]))"
)


async def start_landlock(
    spec: JailSpec, runner: bytes, argv: tuple[str, ...] | None = None, *, outputs: tuple[int, int] | None = None
) -> LaunchedJail:
    """Start backend C for a checked spec; returns when the jail has proven itself. Raises JailUnavailable.

    Where the user has not agreed to it, the runner has no Bash, and nothing is copied. `outputs` as in
    `start_launched`.
    """
    seccomp = _check_kernel()
    host, notes = gather_host_facts(spec)
    if not _can_enter((*host.runner.shown, *host.project.shown), host.owner_uid, host.owner_gid):
        host = replace(host, owner_uid=host.uid, owner_gid=host.gid)  # root without its capabilities, then
    owner = (host.owner_uid, host.owner_gid) if host.uid == 0 else None
    has_bash = argv is not None or has_consent()
    ground = await hold_copy(spec, host.project.shown, owner) if has_bash else hold_visible_layers()
    assert ground.held is not None
    facts = LandlockFacts(
        host=replace(host, copy=ground.copy),
        folder=ground.held.path,
        present=frozenset(filter(os.path.exists, (*DEVICES, *ETC))),
        user_tasks=_count_tasks(host.uid),
        seccomp=seccomp,
        emulated=emulated_numbers(),
    )
    reduced = REDUCED if has_bash else REDUCED_WITHOUT_BASH

    def prepare() -> tuple[Launch, tuple[str, ...]]:
        plan = plan_landlock(spec, facts, argv)
        try:
            _furnish(plan, facts.folder, runner)
        except OSError as error:
            raise JailUnavailable(
                f"the jail's own folder cannot be filled: {error}", "Free space in the cache folder."
            ) from error
        launch = lay_out(plan, {}, _command)
        launch.is_asked_to_end = True
        launch.reduced, launch.root = reduced, plan.root if has_bash else None
        return launch, (f"The jail is reduced: {reduced}.", *notes)

    return await start_launched(prepare, Ground(held=ground.held, copy=ground.copy), outputs)


async def run_landlock(spec: JailSpec, argv: tuple[str, ...], outputs: tuple[int, int]) -> LaunchedJail:
    """Run one command in backend C, where the user agreed to it. Raises JailUnavailable."""
    if not has_consent():
        raise JailUnavailable("commands run in the reduced jail `landlock` only once you agree to it", AGREE)
    return await start_landlock(spec, b"", argv, outputs=outputs)


def _check_kernel() -> tuple[Instruction, ...]:
    """The filter for this machine. Raises JailUnavailable where the kernel lacks a piece."""
    try:
        seccomp = build_landlock_filter(os.uname().machine)
    except UnsupportedMachineError as error:
        raise JailUnavailable(
            f"jail `landlock` has no table of system calls for {error}", "The four file tools still work."
        ) from error
    from agent.jail.launcher import kernel  # brings ctypes, which no other backend needs in the server

    version = kernel.landlock_version()
    if version == 0:
        raise JailUnavailable(
            "the kernel has no Landlock, or it is switched off",
            "Linux 6.12 or later with `landlock` among the modules of the `lsm=` kernel parameter is needed.",
        )
    if version < OLDEST_LANDLOCK:
        raise JailUnavailable(
            f"the Landlock of this kernel is too old (ABI {version}, {OLDEST_LANDLOCK} is needed): "
            "it cannot keep signals inside",
            "Linux 6.12 or later is needed: update the kernel.",
        )
    return seccomp


def _command(numbers: Mapping[str, int]) -> tuple[str, ...]:
    package_root = os.path.dirname(os.path.dirname(os.path.abspath(agent.__file__)))
    of_launcher = (str(numbers[name]) for name in ("plan", "status"))
    return (runner_executable(), "-I", "-S", "-c", _BOOT, package_root, *of_launcher)


def _furnish(plan: LandlockPlan, folder: str, runner: bytes) -> None:
    """Make what the plan needs in our own folder, for the one who runs in it. Raises OSError."""
    made = [folder, *(os.path.join(folder, name) for name in ("bin", "scratch", "scratch/home", "scratch/tmp"))]
    if plan.view != plan.root:
        made.append(plan.view)
    for path in made[1:]:
        os.mkdir(path, 0o700)
    for path, text in plan.files:
        with open(path, "wb") as file:
            file.write(os.fsencode(text))
        made.append(path)
    for path, target in plan.links:
        os.symlink(target, path)
    with open(f"{folder}/{RUNNER}", "wb") as file:
        file.write(runner)
    made.append(f"{folder}/{RUNNER}")
    if plan.privileged:
        for path in made:
            os.chown(path, *plan.run_as)


def _can_enter(folders: tuple[str, ...], uid: int, gid: int) -> bool:
    """Whether a user who is in no other group may go to all of these."""
    places = {str(place) for folder in folders for place in (PurePath(folder), *PurePath(folder).parents)}
    try:
        infos = [os.stat(place) for place in places]
    except OSError:
        return False
    return uid == 0 or all(info.st_mode & _bit_to_enter(info, uid, gid) for info in infos)


def _bit_to_enter(info: os.stat_result, uid: int, gid: int) -> int:
    return stat.S_IXUSR if info.st_uid == uid else stat.S_IXGRP if info.st_gid == gid else stat.S_IXOTH


def _count_tasks(uid: int) -> int:
    """The processes and threads of a user, as RLIMIT_NPROC counts them."""
    n_tasks = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == uid:
                n_tasks += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue  # it ended meanwhile
    return n_tasks
