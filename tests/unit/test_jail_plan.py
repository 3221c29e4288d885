"""The plan of backend A: a value, made from values."""

from __future__ import annotations

from dataclasses import replace

from agent.jail.interpreter import Interpreter
from agent.jail.plan import RUNNER_PATH, HostFacts, plan_namespaces
from agent.jail.spec import JailLimits, JailSpec
from agent.jail.start import encode_plan
from agent.worktree.copying import PrivateCopy

SYSTEM_PYTHON = Interpreter(executable="/usr/bin/python3", real="/usr/bin/python3.11", shown=("/usr",))
OWN_PYTHON = Interpreter(
    executable="/home/me/venv/bin/python",
    real="/home/me/py/3.12/bin/python3.12",
    shown=("/home/me/venv", "/home/me/py/3.12"),
    links=(("/home/me/venv/bin/python", "/home/me/py/current/bin/python3.12"), ("/home/me/py/current", "3.12")),
    venv="/home/me/venv",
)
FACTS = HostFacts(
    uid=1000,
    gid=1001,
    owner_uid=1000,
    owner_gid=1001,
    workspace_device=1,
    workspace_inode=2,
    uid_ranges=((0, 4294967295),),
    gid_ranges=((0, 4294967295),),
    kinds={
        "/usr": "folder",
        "/bin": "link:usr/bin",
        "/lib": "folder",
        "/etc/localtime": "file",
        "/mnt": "folder",
        "/srv": "folder",
    },
    environment={
        "PATH": "/evil",
        "LC_TIME": "de_DE",
        "SECRET": "s",
        "LD_PRELOAD": "x",
        "HOME": "/home/me",
        "TZ": "UTC",
    },
    runner=SYSTEM_PYTHON,
    project=OWN_PYTHON,
    seccomp=((6, 0, 0, 0x7FFF0000),),
)
SPEC = JailSpec(workspace="/home/me/ws", read_only_paths=("/data",))


def test_an_ordinary_user_maps_only_itself() -> None:
    plan = plan_namespaces(SPEC, FACTS)
    assert (plan.privileged, plan.run_as) == (False, (1000, 1001))
    assert (plan.uid_map, plan.gid_map) == (((1000, 1000, 1),), ((1001, 1001, 1),))
    assert ("RLIMIT_NPROC", 512, 512) in plan.rlimits


def test_root_maps_everybody_and_runs_as_the_owner() -> None:
    plan = plan_namespaces(SPEC, replace(FACTS, uid=0, gid=0))
    assert (plan.privileged, plan.run_as) == (True, (1000, 1001))
    assert plan.uid_map == ((0, 0, 4294967295),)
    plan = plan_namespaces(SPEC, replace(FACTS, uid=0, gid=0, owner_uid=0, owner_gid=0))
    assert plan.run_as == (0, 0)
    assert not any(name == "RLIMIT_NPROC" for name, _, _ in plan.rlimits)


def test_mounts() -> None:
    plan = plan_namespaces(SPEC, FACTS)
    targets = [target for _, target in plan.binds]
    assert targets == ["/usr", "/lib", "/etc/localtime", "/data", "/home/me/py/3.12", "/home/me/venv"]
    assert all(source == target for source, target in plan.binds)
    assert ("/bin", "usr/bin") in plan.links
    assert ("/home/me/py/current", "3.12") in plan.links
    assert ("/home/me/venv/bin/python", "/home/me/py/current/bin/python3.12") not in plan.links  # it is bound
    assert plan.over_workspace == ()
    assert plan.staging == "/mnt"
    assert "/home/me" not in targets


def test_the_staging_folder_hides_nothing_that_is_bound() -> None:
    assert plan_namespaces(replace(SPEC, read_only_paths=("/mnt/data",)), FACTS).staging == "/srv"


def test_a_venv_in_the_workspace_is_bound_over_it() -> None:
    venv = replace(
        OWN_PYTHON,
        executable="/home/me/ws/.venv/bin/python",
        venv="/home/me/ws/.venv",
        shown=("/home/me/ws/.venv", "/usr"),
    )
    plan = plan_namespaces(SPEC, replace(FACTS, project=venv))
    assert plan.over_workspace == (("/home/me/ws/.venv", "/home/me/ws/.venv"),)
    assert "/home/me/ws/.venv" not in [target for _, target in plan.binds]
    assert dict(plan.environment)["PATH"].startswith("/home/me/ws/.venv/bin:")


def test_environment_and_profile() -> None:
    plan = plan_namespaces(SPEC, FACTS)
    variables = dict(plan.environment)
    assert variables["PATH"] == "/home/me/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert variables["VIRTUAL_ENV"] == "/home/me/venv"
    assert variables["LC_TIME"] == "de_DE"
    assert variables["TZ"] == "UTC"
    assert not {"SECRET", "LD_PRELOAD"} & set(variables)
    assert variables["HOME"] != "/home/me"
    assert variables["PATH"] in dict(plan.files)["/etc/profile"]
    assert "agent:x:1000:1001:" in dict(plan.files)["/etc/passwd"]


def test_a_system_python_gets_both_names_without_moving_its_folder_forward() -> None:
    plan = plan_namespaces(SPEC, replace(FACTS, project=SYSTEM_PYTHON))
    assert ("/run/frog/bin/python", "/usr/bin/python3.11") in plan.links
    assert dict(plan.environment)["PATH"].startswith("/run/frog/bin:/usr/local/sbin:/usr/local/bin:")
    assert "VIRTUAL_ENV" not in dict(plan.environment)


def test_the_runner_or_a_command() -> None:
    plan = plan_namespaces(SPEC, FACTS)
    assert plan.argv[:6] == ("/usr/bin/python3.11", "-I", "-S", RUNNER_PATH, "--root", "/home/me/ws")
    assert plan.spares_runner
    limits = JailLimits(memory_bytes=1000, file_bytes=7, cpu_s=3)
    plan = plan_namespaces(replace(SPEC, limits=limits), FACTS, ("ls", "-l"))
    assert plan.argv == ("ls", "-l")
    assert not plan.spares_runner
    assert ("RLIMIT_CPU", 3, 8) in plan.rlimits
    assert ("RLIMIT_FSIZE", 7, 7) in plan.rlimits


def test_the_plan_is_sent_as_bytes() -> None:
    plan = plan_namespaces(replace(SPEC, workspace="/w\udcff"), FACTS)
    encoded = encode_plan(plan)
    assert encoded["workspace"] == b"/w\xff"
    assert encoded["rlimits"] == plan.rlimits
    assert encoded["seccomp"] == plan.seccomp


def test_the_limit_of_process_numbers_is_set_only_where_it_is_not_of_the_whole_machine() -> None:
    assert not plan_namespaces(SPEC, replace(FACTS, kernel=(6, 13))).own_pid_max
    assert plan_namespaces(SPEC, replace(FACTS, kernel=(6, 14))).own_pid_max


def test_a_copy_is_bound_in_the_place_of_the_workspace() -> None:
    copy = PrivateCopy(path="/mnt/frog/copy", index={}, size_bytes=1000, entries=3, left_out=())
    spec = replace(SPEC, limits=JailLimits(view_bytes=50, view_inodes=7))
    plan = plan_namespaces(spec, replace(FACTS, copy=copy))
    assert (plan.copy, plan.view_bytes, plan.view_inodes) == ("/mnt/frog/copy", 1050, 10)
    assert plan.staging == "/srv"  # the copy is not hidden while the jail is built
