"""From what is asked for and what the host is to a plan: every mount, file, limit and variable, as one value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from agent.jail.interpreter import Interpreter
from agent.jail.seccomp import Instruction
from agent.jail.spec import GIB, JailSpec, is_within
from agent.worktree.copying import PrivateCopy

RUNNER_PATH = "/run/frog/runner.pyz"
HOME = "/run/frog/home"
SHIMS = "/run/frog/bin"
USER_NAME = "agent"
_SCRATCH = "/tmp"  # noqa: S108 - the jail's own; the file tools may go there as commands do

# Roots of programs and libraries; on merged systems all but /usr are links.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")

# What programs need of /etc, none of it secret. Written by us instead: passwd, group, hosts, profile, nsswitch.
_ETC = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
# Single files of /proc that tell of the whole machine or its keys.
_MASKED = ("kcore", "keys", "key-users", "kmsg", "kallsyms", "timer_list", "sched_debug", "latency_stats", "slabinfo")
# Windows' own drivers and libraries, mounted among the system's folders by WSL2.
_HIDDEN = ("/usr/lib/wsl",)
# An existing folder to build in, hidden for a moment in our own mounts; nothing that is bound may lie in it.
_STAGING = ("/mnt", "/media", "/srv", "/tmp", "/sys")  # noqa: S108
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_PASSED_ON = ("LANG", "LANGUAGE", "TZ", "COLUMNS", "LINES")
_FIXED_ENVIRONMENT = {
    "HOME": HOME,
    "TMPDIR": "/tmp",  # noqa: S108 - the jail's own
    "USER": USER_NAME,
    "LOGNAME": USER_NAME,
    "SHELL": "/bin/bash",
    "TERM": "dumb",
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "EDITOR": "true",
    "VISUAL": "true",
    "UV_OFFLINE": "1",
    "PIP_NO_INDEX": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """All that the plan depends on besides what was asked for.

    `id_ranges` are the identities that this process may map, as (first, count); `kinds` says of each system
    path whether it is a "folder", a "file", or a link ("link:TARGET"); absent ones are left out. `kernel` is its
    version. `layers` is a folder for the changes where memory cannot hold them (kernels before 6.6), `copy` what
    stands in for the workspace.
    """

    uid: int
    gid: int
    owner_uid: int
    owner_gid: int
    workspace_device: int
    workspace_inode: int
    uid_ranges: tuple[tuple[int, int], ...]
    gid_ranges: tuple[tuple[int, int], ...]
    kinds: Mapping[str, str]
    environment: Mapping[str, str]
    runner: Interpreter
    project: Interpreter
    seccomp: tuple[Instruction, ...]
    kernel: tuple[int, int] = (0, 0)
    layers: str | None = None
    copy: PrivateCopy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the launcher does, in this order. Everything is bound read-only, without devices and setuid.

    `binds` and `over_workspace` are (source, target); the latter come after the overlay. Of `covered` targets the jail
    sees a layer of its own: a bound socket or pipe would still lead to whoever serves it, a lock be the host's.
    `hidden` are folders inside of them that are empty in the jail, `masked` files of /proc. `uid_map` and
    `gid_map` are (inside, outside, count). `run_as` is the (uid, gid) of jailed processes; `capable`
    says that PID 1 has capabilities to drop. `layers` is the folder on
    disk for the layers of the private view (None: memory), `copy` the folder that is bound in the place of the
    workspace (None: an overlay). `view_bytes` and `view_inodes` bound what is in the upper layer, or in the copy.
    """

    backend: str
    workspace: str
    workspace_device: int
    workspace_inode: int
    staging: str
    run_as: tuple[int, int]
    privileged: bool
    capable: bool
    uid_map: tuple[tuple[int, int, int], ...]
    gid_map: tuple[tuple[int, int, int], ...]
    binds: tuple[tuple[str, str], ...]
    over_workspace: tuple[tuple[str, str], ...]
    covered: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    devices: tuple[str, ...]
    masked: tuple[str, ...]
    hidden: tuple[str, ...]
    view_bytes: int
    view_inodes: int
    scratch_bytes: int
    layers: str | None
    copy: str | None
    processes: int
    own_pid_max: bool
    memory_bytes: int
    wall_s: int
    rlimits: tuple[tuple[str, int, int], ...]
    seccomp: tuple[Instruction, ...]
    environment: tuple[tuple[str, str], ...]
    argv: tuple[str, ...]
    spares_runner: bool


def plan_namespaces(spec: JailSpec, facts: HostFacts, argv: tuple[str, ...] | None = None) -> Plan:
    """The plan of backend A for a checked spec. Pure.

    Without `argv` the runner is started; with it that command is, and a limit then ends all of it.
    """
    workspace = spec.workspace
    path, links = _path_and_links(facts)
    binds, system_links = _system_binds(facts)
    shown = [*spec.read_only_paths, *facts.runner.shown, *facts.project.shown]
    of_users = [folder for folder in _outermost(shown) if not _is_shown(folder, binds, workspace)]
    over = [folder for folder in _outermost(facts.project.shown) if is_within(folder, workspace)]
    binds += [(folder, folder) for folder in of_users]
    ours = [path for path in (facts.layers, facts.copy and facts.copy.path) if path]
    sources = [*(source for source, _ in binds), workspace, *ours]
    environment = _environment(facts, path, workspace)
    privileged = facts.uid == 0
    run_as = (facts.owner_uid, facts.owner_gid) if privileged else (facts.uid, facts.gid)
    limits = spec.limits
    copy = facts.copy
    return Plan(
        backend="namespaces",
        workspace=workspace,
        workspace_device=facts.workspace_device,
        workspace_inode=facts.workspace_inode,
        staging=next(p for p in _STAGING if _is_free(p, sources, facts)),
        run_as=run_as,
        privileged=privileged,
        capable=True,
        uid_map=tuple((a, a, n) for a, n in facts.uid_ranges) if privileged else ((facts.uid, facts.uid, 1),),
        gid_map=tuple((a, a, n) for a, n in facts.gid_ranges) if privileged else ((facts.gid, facts.gid, 1),),
        binds=tuple(binds),
        over_workspace=tuple((folder, folder) for folder in over),
        covered=(*of_users, *over),
        links=(*system_links, *(ln for ln in links if not _is_shown(ln[0], binds, workspace))),
        files=_files(environment, run_as),
        devices=_DEVICES,
        masked=_MASKED,
        hidden=tuple(path for path in _HIDDEN if facts.kinds.get(path) == "folder"),
        view_bytes=limits.view_bytes + (copy.size_bytes if copy else 0),
        view_inodes=limits.view_inodes + (copy.entries if copy else 0),
        scratch_bytes=limits.scratch_bytes,
        layers=facts.layers,
        copy=copy.path if copy else None,
        processes=limits.processes,
        # before, it is of the whole machine, and root could write it even from its own namespaces
        own_pid_max=facts.kernel >= (6, 14),
        memory_bytes=limits.memory_bytes,
        wall_s=limits.wall_s,
        rlimits=_rlimits(spec, is_root=run_as[0] == 0, is_command=argv is not None),
        seccomp=facts.seccomp,
        environment=tuple(environment.items()),
        argv=argv or (facts.runner.real, "-I", "-S", RUNNER_PATH, "--root", workspace, "--scratch", _SCRATCH),
        spares_runner=argv is None,
    )


def _rlimits(spec: JailSpec, *, is_root: bool, is_command: bool) -> tuple[tuple[str, int, int], ...]:
    limits = spec.limits
    # A tool's process shall see that memory ends; a command shall be stopped, and the exit code say so: there
    # the watchdog comes first, and this only catches what is faster.
    data_bytes = limits.memory_bytes + (2 * GIB if is_command else 0)
    rows = [
        ("RLIMIT_CORE", 0, 0),
        ("RLIMIT_FSIZE", limits.file_bytes, limits.file_bytes),
        ("RLIMIT_NOFILE", limits.open_files, limits.open_files),
        ("RLIMIT_CPU", limits.cpu_s, limits.cpu_s + 5),
        ("RLIMIT_DATA", data_bytes, data_bytes),
        ("RLIMIT_MEMLOCK", 65_536, 65_536),
        ("RLIMIT_MSGQUEUE", 819_200, 819_200),
    ]
    if not is_root:  # the kernel does not count processes of root
        rows.append(("RLIMIT_NPROC", limits.processes, limits.processes))
    return tuple(rows)


def _environment(facts: HostFacts, path: tuple[str, ...], workspace: str) -> dict[str, str]:
    passed = {k: v for k, v in facts.environment.items() if k in _PASSED_ON or k.startswith("LC_")}
    if not any(k in passed for k in ("LANG", "LC_ALL", "LC_CTYPE")):
        passed["LANG"] = "C.UTF-8"
    variables = passed | _FIXED_ENVIRONMENT | {"PATH": ":".join(path), "PWD": workspace}
    if facts.project.venv:
        variables["VIRTUAL_ENV"] = facts.project.venv
    return variables


def _path_and_links(facts: HostFacts) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """PATH, and the links that make `python` and `python3` the project's."""
    project = facts.project
    links = list(dict.fromkeys((*facts.runner.links, *project.links)))
    standard = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    bin_dir = os.path.dirname(project.executable if project.venv else project.real)
    first = [] if bin_dir in standard else [bin_dir]
    if project.venv is None:
        links += [(f"{SHIMS}/{name}", project.real) for name in ("python", "python3")]
        first.insert(0, SHIMS)
    return (*first, *standard), tuple(links)


def _system_binds(facts: HostFacts) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    binds: list[tuple[str, str]] = []
    links: list[tuple[str, str]] = []
    for path in (*_SYSTEM, *(f"/etc/{name}" for name in _ETC)):
        kind = facts.kinds.get(path, "")
        if kind.startswith("link:") and not path.startswith("/etc/"):
            links.append((path, kind.removeprefix("link:")))
        elif kind:  # a link in /etc may lead anywhere: what it leads to is bound in its place
            binds.append((path, path))
    return binds, links


def _outermost(folders: tuple[str, ...] | list[str]) -> list[str]:
    """Without those that lie in another one; parents come first."""
    kept: list[str] = []
    for folder in sorted(set(folders)):
        if not any(is_within(folder, other) for other in kept):
            kept.append(folder)
    return kept


def _is_shown(path: str, binds: list[tuple[str, str]], workspace: str) -> bool:
    return is_within(path, workspace) or any(is_within(path, target) for _, target in binds)


def _is_free(path: str, sources: list[str], facts: HostFacts) -> bool:
    return facts.kinds.get(path) == "folder" and not any(is_within(source, path) for source in sources)


def _files(environment: Mapping[str, str], run_as: tuple[int, int]) -> tuple[tuple[str, str], ...]:
    """The small files of the jail's own /etc. Debian's profile would reset PATH."""
    uid, gid = run_as
    users = "" if uid == 0 else "root:x:0:0:root:/:/bin/false\n"
    groups = "" if gid == 0 else "root:x:0:\n"
    return (
        ("/etc/passwd", f"{users}{USER_NAME}:x:{uid}:{gid}::{HOME}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"),
        ("/etc/group", f"{groups}{USER_NAME}:x:{gid}:\n"),
        ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
        ("/etc/hostname", "jail\n"),
        ("/etc/resolv.conf", ""),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        ("/etc/profile", f"PATH={_shell_quoted(environment['PATH'])}\nexport PATH\n"),
        ("/etc/bash.bashrc", ""),
        # git commits need a name; the user's own settings are not visible. Not by variables: those would win
        # over what a project's tests configure.
        (f"{HOME}/.gitconfig", f"[user]\n\tname = {USER_NAME}\n\temail = {USER_NAME}@jail.invalid\n"),
    )


def _shell_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def looked_at() -> tuple[str, ...]:
    """The host paths whose kind the plan needs to know."""
    return (*_SYSTEM, *(f"/etc/{name}" for name in _ETC), *_STAGING, *_HIDDEN, *(f"/proc/{name}" for name in _MASKED))
