"""Attacks on the jail, each shown to be a real one by its control, and the host compared after each.

What every backend must withstand is listed in `attack_list`; a test there fails for an item without a case.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import skip_or_fail
from tests.jail.attacks import network, outside, privilege, secrecy
from tests.jail.attacks.registry import CASES
from tests.jail.jailed import can_be_nobody
from tests.jail.reduced import NOT_PROMISED, REFUSED_OTHERWISE
from tests.jail.world import Attacker, User, World

assert all((network, outside, privilege, secrecy)), "they register their cases"

pytestmark = pytest.mark.jail

BACKENDS = ("namespaces", "bwrap", "landlock")
USERS = ("root", "ordinary") if os.geteuid() == 0 else ("self",)
NAMESPACES = ("--user", "--map-root-user", "--mount", "--pid", "--fork", "--net", "--ipc", "--uts", "--mount-proc")


@pytest.fixture(scope="module", params=USERS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """The decoys of one user."""
    if request.param == "ordinary" and (reason := can_be_nobody()):
        skip_or_fail(reason)
    world = World(User(request.param))
    yield world
    world.close()


@pytest.fixture(scope="module")
def controls(world: World) -> dict[str, dict[str, Any]]:
    """What each case with a control does outside, tried before anything is jailed."""
    attacker = world.control()
    results = {name: attacker.attempt(name) for name, case in CASES.items() if case.control == "outside"}
    attacker.close()
    for name, case in CASES.items():
        if case.control == "namespace":  # one for each: some change all that follows
            attacker = world.control(*NAMESPACES)
            results[name] = attacker.attempt(name)
            attacker.close()
    world.drain()
    return results


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest, world: World, controls: dict[str, Any]) -> Iterator[Attacker]:
    """The attacks inside a jail of one backend, on the same decoys."""
    attacker = world.inside(request.param)
    world.seen = None
    try:
        if "unavailable" in attacker.first:
            reason = f"backend {request.param} cannot be had here: {attacker.first['unavailable']}"
            if request.param == "namespaces":
                skip_or_fail(reason)
            pytest.skip(reason)
        assert set(attacker.first) == set(CASES), attacker.first
        yield attacker
    finally:
        attacker.close()


@pytest.mark.parametrize("name", CASES)
def test_attack(
    name: str, world: World, controls: dict[str, dict[str, Any]], backend: Attacker, request: pytest.FixtureRequest
) -> None:
    case = CASES[name]
    is_reduced = request.node.callspec.params["backend"] == "landlock"
    if case.control != "errno":
        assert controls[name]["worked"], f"it does not work outside, so it proves nothing: {controls[name]}"
    before = world.seen or world.snapshot()
    result = backend.attempt(name)
    after = world.seen = world.snapshot()
    if name == "kill_the_first_process_of_the_jail" and "ended" in result:
        pytest.fail("PID 1 of the jail was killed")
    assert result["worked"] == (is_reduced and name in NOT_PROMISED), result
    if case.control == "errno" and not result["worked"]:
        errnos = REFUSED_OTHERWISE.get(name, case.errnos) if is_reduced else case.errnos
        assert result.get("errno") in errnos, (result, [errno.errorcode.get(n, n) for n in errnos])
    assert not result["error"].startswith(("died", "the attacker")), result
    assert after == before, {key: (before[key], after[key]) for key in before if before[key] != after[key]}
