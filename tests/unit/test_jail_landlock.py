"""Backend C: its plan as a whole value, its filter call by call, what is told of times, and the moved workspace."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from agent.errors import JailUnavailable
from agent.jail import landlock
from agent.jail.landlock_filter import EMULATED, build_landlock_filter, emulated_numbers
from agent.jail.landlock_plan import LandlockFacts, LandlockPlan, plan_landlock
from agent.jail.launcher.landlock_calls import _timespecs
from agent.jail.seccomp import UnsupportedMachineError, build_filter
from agent.jail.spec import GIB, JailLimits, JailSpec
from agent.jail.start import encode_plan
from agent.jail.syscalls import X86_64, X86_64_WITHOUT_NAMESPACES
from agent.tools.host import _moved
from agent.worktree.copying import PrivateCopy
from tests.unit.test_jail_plan import FACTS, SPEC, SYSTEM_PYTHON

FOLDER = "/var/tmp/v"
COPY = PrivateCopy(path=f"{FOLDER}/copy", index={}, size_bytes=1000, entries=3, left_out=())
FACTS_OF_C = LandlockFacts(
    host=replace(FACTS, project=SYSTEM_PYTHON, copy=COPY),
    folder=FOLDER,
    present=frozenset({"/dev/null", "/dev/urandom", "/etc/passwd", "/etc/python3.11"}),
    user_tasks=40,
    seccomp=((6, 0, 0, 0x7FFF0000),),
    emulated=(("chmod", 90),),
)
ENVIRONMENT = {
    "LC_TIME": "de_DE",
    "TZ": "UTC",
    "LANG": "C.UTF-8",
    "HOME": f"{FOLDER}/scratch/home",
    "TMPDIR": f"{FOLDER}/scratch/tmp",
    "USER": "agent",
    "LOGNAME": "agent",
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
    "PATH": f"{FOLDER}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PWD": f"{FOLDER}/copy",
}
PLAN = LandlockPlan(
    backend="landlock",
    workspace="/home/me/ws",
    workspace_device=1,
    workspace_inode=2,
    root=f"{FOLDER}/copy",
    view=f"{FOLDER}/copy",
    scratch=f"{FOLDER}/scratch",
    rules=(
        *(("/usr", "read"), ("/lib", "read"), ("/etc/localtime", "read"), ("/data", "read")),
        *(("/etc/passwd", "read"), ("/etc/python3.11", "read")),
        *((f"{FOLDER}/bin", "read"), (f"{FOLDER}/runner.pyz", "read")),
        *(("/dev/null", "device"), ("/dev/urandom", "device")),
        *((f"{FOLDER}/copy", "write"), (f"{FOLDER}/scratch", "write")),
    ),
    writable=(f"{FOLDER}/copy", f"{FOLDER}/scratch"),
    emulated=(("chmod", 90),),
    files=(
        (f"{FOLDER}/scratch/home/.gitconfig", "[user]\n\tname = agent\n\temail = agent@jail.invalid\n"),
        (f"{FOLDER}/scratch/home/.bash_profile", f"PATH='{ENVIRONMENT['PATH']}'\nexport PATH\n"),
    ),
    links=((f"{FOLDER}/bin/python", "/usr/bin/python3.11"), (f"{FOLDER}/bin/python3", "/usr/bin/python3.11")),
    run_as=(1000, 1001),
    privileged=False,
    capable=False,
    view_bytes=GIB + 1000,
    view_inodes=200_003,
    scratch_bytes=GIB,
    processes=512,
    memory_bytes=4 * GIB,
    wall_s=4 * 3600,
    rlimits=(
        ("RLIMIT_CORE", 0, 0),
        ("RLIMIT_FSIZE", GIB, GIB),
        ("RLIMIT_NOFILE", 1024, 1024),
        ("RLIMIT_CPU", 3600, 3605),
        ("RLIMIT_DATA", 4 * GIB, 4 * GIB),
        ("RLIMIT_MEMLOCK", 65_536, 65_536),
        ("RLIMIT_MSGQUEUE", 819_200, 819_200),
        ("RLIMIT_NPROC", 552, 552),
    ),
    seccomp=((6, 0, 0, 0x7FFF0000),),
    environment=tuple(ENVIRONMENT.items()),
    argv=(
        *("/usr/bin/python3.11", "-I", "-S", f"{FOLDER}/runner.pyz"),
        *("--root", f"{FOLDER}/copy", "--scratch", f"{FOLDER}/scratch/tmp"),
    ),
    spares_runner=True,
)


def test_the_plan_of_an_ordinary_user() -> None:
    plan = plan_landlock(SPEC, FACTS_OF_C)
    assert dict(plan.environment) == ENVIRONMENT
    assert replace(plan, environment=()) == replace(PLAN, environment=())


def test_without_consent_the_workspace_is_read_and_changes_go_beside() -> None:
    plan = plan_landlock(SPEC, replace(FACTS_OF_C, host=replace(FACTS_OF_C.host, copy=None)))
    assert (plan.root, plan.view) == ("/home/me/ws", f"{FOLDER}/upper")
    assert plan.writable == (f"{FOLDER}/upper", f"{FOLDER}/scratch")
    assert ("/home/me/ws", "read") in plan.rules
    assert [path for path, access in plan.rules if access == "write"] == list(plan.writable)
    assert plan.argv[-3:] == ("--upper", f"{FOLDER}/upper", "--no-bash")
    assert dict(plan.environment)["PWD"] == "/home/me/ws"
    assert plan.view_bytes == GIB


def test_a_command_and_its_limits() -> None:
    spec = JailSpec(workspace="/home/me/ws", limits=JailLimits(processes=7, wall_s=3))
    plan = plan_landlock(spec, FACTS_OF_C, ("ls", "-l"))
    assert (plan.argv, plan.spares_runner, plan.wall_s, plan.processes) == (("ls", "-l"), False, 3, 7)
    assert ("RLIMIT_NPROC", 47, 47) in plan.rlimits


def test_root_becomes_the_owner_and_sheds_its_capabilities() -> None:
    plan = plan_landlock(SPEC, replace(FACTS_OF_C, host=replace(FACTS_OF_C.host, uid=0, gid=0)))
    assert (plan.privileged, plan.capable, plan.run_as) == (True, True, (1000, 1001))


def test_the_environment_of_the_project_is_shown_and_first() -> None:
    plan = plan_landlock(SPEC, replace(FACTS_OF_C, host=replace(FACTS, copy=COPY)))
    assert {("/home/me/venv", "read"), ("/home/me/py/3.12", "read")} <= set(plan.rules)
    assert dict(plan.environment)["PATH"].startswith("/home/me/venv/bin:")
    assert dict(plan.environment)["VIRTUAL_ENV"] == "/home/me/venv"


def test_the_real_workspace_is_in_no_rule_with_bash() -> None:
    assert not [path for path, _ in PLAN.rules if path.startswith("/home/me/ws")]


def test_the_plan_is_sent_as_bytes() -> None:
    encoded = encode_plan(PLAN)
    assert encoded["rules"][0] == (b"/usr", b"read")  # type: ignore[index]
    assert encoded["emulated"] == ((b"chmod", 90),)
    assert encoded["seccomp"] == PLAN.seccomp


# --- the filter -----------------------------------------------------------------------------------------------

NUMBERS = X86_64 | X86_64_WITHOUT_NAMESPACES
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000


def verdict(name: str, *arguments: int) -> int | str:
    """0: let through; "ask": the supervisor is asked; "pretend": seems to work; else the errno."""
    program = build_landlock_filter("x86_64")
    words = {0: NUMBERS[name], 4: 0xC000003E}
    words |= {16 + 8 * i: a & 0xFFFFFFFF for i, a in enumerate((*arguments, *[0] * 6)[:6])}
    accumulator = at = 0
    while True:
        code, if_true, if_false, constant = program[at]
        at += 1
        match code:
            case 0x20:
                accumulator = words[constant]
            case 0x54:
                accumulator &= constant
            case 0x06:
                return {ALLOW: 0, NOTIFY: "ask", 0x50000: "pretend"}.get(constant, constant & 0xFFFF)
            case _:
                holds = {
                    0x15: accumulator == constant,
                    0x35: accumulator >= constant,
                    0x45: bool(accumulator & constant),
                }[code]
                at += if_true if holds else if_false


@pytest.mark.parametrize("name", EMULATED)
def test_what_landlock_has_no_right_for_is_asked(name: str) -> None:
    assert verdict(name) == "ask"


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("setxattr", (), errno.EOPNOTSUPP),
        ("fremovexattr", (), errno.EOPNOTSUPP),
        ("getxattr", (), errno.EOPNOTSUPP),
        ("flistxattr", (), errno.EOPNOTSUPP),
        ("setxattrat", (), errno.ENOSYS),
        ("getxattrat", (), errno.ENOSYS),
        ("shmget", (), errno.ENOSYS),
        ("semget", (), errno.ENOSYS),
        ("msgget", (), errno.ENOSYS),
        ("mq_open", (), errno.ENOSYS),
        ("connect", (), errno.EACCES),
        ("bind", (), errno.EACCES),
        ("socket", (1, 1, 0), errno.EACCES),
        ("socket", (2, 1, 6), errno.EACCES),
        ("socket", (16, 3, 0), errno.EACCES),
        ("socket", (17, 3, 0), errno.EAFNOSUPPORT),
        ("socketpair", (1, 1 | 0o2000000, 0), 0),
        ("socketpair", (1, 5, 0), 0),
        ("socketpair", (1, 2, 0), errno.EPROTONOSUPPORT),
        ("socketpair", (1, 3 | 0o4000, 0), errno.EPROTONOSUPPORT),
        ("socketpair", (2, 1, 0), errno.EAFNOSUPPORT),
        ("prlimit64", (0, 7), 0),
        ("prlimit64", (4242, 7), errno.EPERM),
        ("setpriority", (0, 0, 19), 0),
        ("setpriority", (0, 4242, 19), errno.EPERM),
        ("setpriority", (2, 0, 19), errno.EPERM),
        ("ioprio_set", (1, 0, 0), 0),
        ("ioprio_set", (3, 0, 0), errno.EPERM),
        ("sched_setaffinity", (0,), 0),
        ("sched_setaffinity", (4242,), errno.EPERM),
        ("prctl", (4, 0), "pretend"),
        ("prctl", (38, 1), 0),
        ("seccomp", (1, 8), errno.EPERM),
        ("seccomp", (1, 0x28), errno.EPERM),
        ("seccomp", (1, 1), 0),
        ("ioctl", (0, 0x5401), 0),
        ("ioctl", (0, 0x541B), 0),
        ("ioctl", (0, 0x40086602), errno.ENOTTY),
        ("ioctl", (0, 0x401C5820), errno.ENOTTY),
        ("ioctl", (0, 0x5412), errno.ENOTTY),
        ("unshare", (), errno.EPERM),
        ("io_uring_setup", (), errno.ENOSYS),
        ("clone", (0x10000000,), errno.EPERM),
        ("clone", (17,), 0),
    ],
)
def test_each_call(name: str, arguments: tuple[int, ...], expected: int | str) -> None:
    assert verdict(name, *arguments) == expected


def test_all_rules_of_the_other_backends_are_in_it() -> None:
    program, base = build_landlock_filter("x86_64"), build_filter("x86_64")
    assert program[:8] == base[:8]
    assert program[8 - len(base) :] == base[8:]
    assert {number for _, number in emulated_numbers()} == {NUMBERS[name] for name in EMULATED}


def test_other_machines_have_no_table() -> None:
    with pytest.raises(UnsupportedMachineError):
        build_landlock_filter("aarch64")


# --- what is asked, and what is moved -------------------------------------------------------------------------


def _words(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)


def test_times_of_every_kind_become_timespecs() -> None:
    assert _timespecs("nanoseconds", _words(1, 2, 3, 4)) == _words(1, 2, 3, 4)
    assert _timespecs("microseconds", _words(1, 2, 3, 999_999)) == _words(1, 2000, 3, 999_999_000)
    assert _timespecs("seconds", _words(1, 3)) == _words(1, 0, 3, 0)
    for bad in (1_000_000, -1):
        with pytest.raises(OSError, match="times"):
            _timespecs("microseconds", _words(1, bad, 3, 0))


@pytest.mark.parametrize(
    ("path", "moved"),
    [
        ("/w", "/c"),
        ("/w/a", "/c/a"),
        ("/wide/a", "/wide/a"),
        ("a", "a"),
        ("/c/a", "/c/a"),
        ("/w/../x", "/c/../x"),
    ],
)
def test_paths_are_understood_both_ways(path: str, moved: str) -> None:
    assert _moved(path, ("/w", "/c")) == moved
    assert _moved(path, None) == path


@pytest.mark.parametrize(
    ("version", "sentence"), [(0, "no Landlock, or it is switched off"), (1, "ABI 1, 6"), (5, "ABI 5, 6")]
)
def test_an_old_kernel_has_its_sentence(monkeypatch: pytest.MonkeyPatch, version: int, sentence: str) -> None:
    monkeypatch.setattr("agent.jail.launcher.kernel.landlock_version", lambda: version)
    with pytest.raises(JailUnavailable) as found:
        landlock._check_kernel()
    assert sentence in found.value.message
    assert "Linux 6.12" in found.value.hint


def test_a_machine_without_a_table_has_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(machine: str) -> None:
        raise UnsupportedMachineError("riscv64")

    monkeypatch.setattr(landlock, "build_landlock_filter", refuse)
    with pytest.raises(JailUnavailable, match="no table of system calls for riscv64"):
        landlock._check_kernel()


def test_what_is_not_promised_is_said() -> None:
    for words in ("another path", "terminals", "servers", "names", "outlive"):
        assert words in landlock.REDUCED
