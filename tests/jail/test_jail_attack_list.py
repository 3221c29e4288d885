"""No item of the list of attacks is without a case, no case without an item, and each case is a test that exists."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.jail.attack_list import GROUPS
from tests.jail.attacks import network, outside, privilege, secrecy
from tests.jail.attacks.registry import CASES
from tests.jail.jailed import REPOSITORY

assert all((network, outside, privilege, secrecy)), "they register their cases"

ITEMS = [(group, item, cases.split()) for group, items in GROUPS.items() for item, cases in items.items()]
MAPPED = {case for _, _, cases in ITEMS for case in cases}


@cache
def existing_tests() -> frozenset[str]:
    """`file::test[parameters]` of every test in the files that the list names, as pytest collects them."""
    files = {case.partition("::")[0] for case in MAPPED if "::" in case}
    paths = [str(path) for path in Path(REPOSITORY, "tests").rglob("test_*.py") if path.name in files]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *paths]
    found = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=100).stdout
    names = {line.rpartition("/")[2] for line in found.splitlines() if "::" in line}
    # a case may leave out parameters that say only who runs it, and on what
    whole = {name.partition("[")[0] for name in names}
    single = {
        f"{name.partition('[')[0]}[{parameter}]"
        for name in names
        for parameter in _single_parameters(name.partition("[")[2].removesuffix("]"))
    }
    return frozenset(names | whole | single)


def _single_parameters(parameters: str) -> list[str]:
    """`root-one-block` also is `one-block`: the first words name the user or the backend."""
    words = parameters.split("-")
    return ["-".join(words[i:]) for i in range(len(words))]


@pytest.mark.parametrize(("group", "item", "cases"), ITEMS, ids=[f"{group}: {item}" for group, item, _ in ITEMS])
def test_each_item_has_a_case(group: str, item: str, cases: list[str]) -> None:
    assert cases, f"nothing tries {item!r}"
    for case in cases:
        assert case in CASES or case in existing_tests(), f"{item!r} names {case!r}, which is no case"


def test_each_attack_belongs_to_an_item() -> None:
    assert set(CASES) <= MAPPED, set(CASES) - MAPPED


def test_there_are_enough() -> None:
    assert len(MAPPED) >= 90
