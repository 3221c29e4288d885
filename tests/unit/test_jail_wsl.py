"""WSL2 is Linux, with nothing of Windows reachable from the jail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.jail.bwrap import plan_bwrap
from agent.jail.plan import HostFacts, Plan, plan_namespaces
from agent.jail.spec import JailSpec
from tests.unit.test_jail_bwrap import COPY, argv_of
from tests.unit.test_jail_plan import FACTS

WSL = replace(
    FACTS,
    kinds={**FACTS.kinds, "/usr/lib/wsl": "folder"},
    environment={
        "PATH": "/usr/bin:/mnt/c/Windows/System32",
        "WSLENV": "SECRET/p",
        "WSL_DISTRO_NAME": "Ubuntu",
        "WSL_INTEROP": "/run/WSL/8_interop",
        "WINDIR": "C:\\Windows",
        "LANG": "C.UTF-8",
    },
    copy=COPY,
)
SPEC = JailSpec(workspace="/home/me/ws")


def plans(facts: HostFacts) -> tuple[Plan, Plan]:
    return plan_namespaces(SPEC, facts), plan_bwrap(SPEC, facts)


@pytest.mark.parametrize("plan", plans(WSL), ids=["namespaces", "bwrap"])
def test_nothing_of_windows_is_mounted(plan: Plan) -> None:
    sources = [source for source, _ in (*plan.binds, *plan.over_workspace)]
    for place in ("/mnt", "/run", "/init", "/proc", "/"):
        assert not any(source == place or source.startswith(place.rstrip("/") + "/mnt") for source in sources)
    assert not any(source.startswith(("/mnt/", "/run/")) for source in sources)
    assert plan.hidden == ("/usr/lib/wsl",)


@pytest.mark.parametrize("plan", plans(WSL), ids=["namespaces", "bwrap"])
def test_no_variable_leads_to_windows(plan: Plan) -> None:
    variables = dict(plan.environment)
    assert not any(name.startswith(("WSL", "WIN")) for name in variables)
    assert "/mnt/c" not in " ".join(variables.values())
    assert "C:" not in " ".join(variables.values())


def test_the_folder_of_windows_libraries_is_covered() -> None:
    argv = argv_of(plan_bwrap(SPEC, WSL))
    at = argv.index("/usr/lib/wsl")
    assert argv[at - 1 : at + 3] == ("--tmpfs", "/usr/lib/wsl", "--remount-ro", "/usr/lib/wsl")
    assert at > argv.index("/usr")
    assert "/usr/lib/wsl" not in argv_of(plan_bwrap(SPEC, replace(FACTS, copy=COPY)))
