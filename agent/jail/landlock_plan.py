"""From what is asked for and what the host is to a plan of backend C: every rule, file, limit and variable."""

from __future__ import annotations

from dataclasses import dataclass

from agent.jail.plan import HOME, SHIMS, HostFacts, plan_namespaces
from agent.jail.seccomp import Instruction
from agent.jail.spec import JailSpec

RUNNER = "runner.pyz"
"""The file of the runner in our folder."""

# What else is read of /etc, where no file of ours can stand in its place. Of Fedora's profile.d the one file that
# its profile reads without looking whether it may.
ETC = (
    *("/etc/bash.bashrc", "/etc/bashrc", "/etc/group", "/etc/nsswitch.conf", "/etc/passwd", "/etc/perl"),
    *("/etc/profile", "/etc/profile.d/sh.local", "/etc/python3", "/etc/shells", "/etc/inputrc", "/etc/locale.alias"),
    # which system this is: some programs look without being ready for a refusal
    *("/etc/debian_version", "/etc/lsb-release", "/etc/redhat-release", "/etc/fedora-release", "/etc/system-release"),
    *("/etc/alpine-release", "/etc/arch-release", "/etc/SuSE-release", "/etc/machine-info"),
    *(f"/etc/python3.{minor}" for minor in range(9, 16)),
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True, kw_only=True)
class LandlockFacts:
    """What the plan depends on. `folder` is ours, `present` are paths of the host that exist.

    `copies_workspace` says that `host.copy` stands for the workspace and commands run; else the workspace is read and
    changes go to a folder beside. `user_tasks` counts the processes and threads that the user has already: without
    a namespace they count for the limit.
    """

    host: HostFacts
    folder: str
    present: frozenset[str]
    user_tasks: int
    seccomp: tuple[Instruction, ...]
    emulated: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LandlockPlan:
    """What the launcher does. `root` is where the tools work, `view` the folder with what they changed.

    `rules` are (path, access): "read" (and execute), "device", "write"; nothing else can be opened. `writable` are the
    folders in which modes, owners and times may be changed, by the `emulated` calls (name, number). `files` and
    `links` (path, content or target) are made before in our own folder, of which `scratch` has the home and the
    temporary files. The others are as in `Plan`.
    """

    backend: str
    workspace: str
    workspace_device: int
    workspace_inode: int
    root: str
    view: str
    scratch: str
    rules: tuple[tuple[str, str], ...]
    writable: tuple[str, ...]
    emulated: tuple[tuple[str, int], ...]
    files: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    run_as: tuple[int, int]
    privileged: bool
    capable: bool
    view_bytes: int
    view_inodes: int
    scratch_bytes: int
    processes: int
    memory_bytes: int
    wall_s: int
    rlimits: tuple[tuple[str, int, int], ...]
    seccomp: tuple[Instruction, ...]
    environment: tuple[tuple[str, str], ...]
    argv: tuple[str, ...]
    spares_runner: bool


def plan_landlock(spec: JailSpec, facts: LandlockFacts, argv: tuple[str, ...] | None = None) -> LandlockPlan:
    """The plan of backend C for a checked spec. Pure.

    Without a copy in the facts there is no Bash: the workspace is read, and changes go to a folder beside.
    """
    base = plan_namespaces(spec, facts.host, argv)
    folder = facts.folder
    copy = facts.host.copy
    root = copy.path if copy else spec.workspace
    view = root if copy else f"{folder}/upper"
    home, temporary, shims, runner = (f"{folder}/{name}" for name in ("scratch/home", "scratch/tmp", "bin", RUNNER))
    moved = {HOME: home, SHIMS: shims}
    variables = dict(base.environment)
    path = [moved.get(place, place) for place in variables["PATH"].split(":")]
    variables |= {"HOME": home, "TMPDIR": temporary, "PWD": root, "PATH": ":".join(path)}
    files = [(home + name.removeprefix(HOME), text) for name, text in base.files if name.startswith(HOME)]
    profile = dict(base.files)["/etc/profile"].replace(SHIMS, shims)
    shown = [source for source, _ in (*base.binds, *base.over_workspace)]
    shown += [name for name in ETC if name in facts.present]
    shown += [shims, runner] if copy else [spec.workspace, shims, runner]
    writable = (view, f"{folder}/scratch")
    tools = ("--root", root, "--scratch", temporary, *(() if copy else ("--upper", view, "--no-bash")))
    return LandlockPlan(
        backend="landlock",
        workspace=spec.workspace,
        workspace_device=base.workspace_device,
        workspace_inode=base.workspace_inode,
        root=root,
        view=view,
        scratch=f"{folder}/scratch",
        rules=(
            *((name, "read") for name in dict.fromkeys(shown)),
            *((name, "device") for name in DEVICES if name in facts.present),
            *((name, "write") for name in writable),
        ),
        writable=writable,
        emulated=facts.emulated,
        # a login shell has read the system's profile, which may set another PATH
        files=(*files, (f"{home}/.bash_profile", profile)),
        links=tuple((shims + name.removeprefix(SHIMS), to) for name, to in base.links if name.startswith(SHIMS)),
        run_as=base.run_as,
        privileged=base.privileged,
        capable=base.privileged,
        view_bytes=base.view_bytes,
        view_inodes=base.view_inodes,
        scratch_bytes=base.scratch_bytes,
        processes=base.processes,
        memory_bytes=base.memory_bytes,
        wall_s=base.wall_s,
        rlimits=tuple(_with_others(row, facts.user_tasks) for row in base.rlimits),
        seccomp=facts.seccomp,
        environment=tuple(variables.items()),
        argv=argv or (facts.host.runner.real, "-I", "-S", runner, *tools),
        spares_runner=argv is None,
    )


def _with_others(row: tuple[str, int, int], user_tasks: int) -> tuple[str, int, int]:
    name, soft, hard = row
    return (name, soft + user_tasks, hard + user_tasks) if name == "RLIMIT_NPROC" else row
