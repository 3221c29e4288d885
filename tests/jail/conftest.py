"""Fixtures of the jail's tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Seal, skip_or_fail
from tests.jail.jailed import NOBODY, can_be_nobody

USERS = ("root", "ordinary") if os.geteuid() == 0 else ("self",)


# One of each group stays in the inner loop; the others are for `make test`.
QUICK = {"read_ssh_key", "append_to_host_file", "nested_user_namespace", "reach_tcp_on_loopback", "one-block"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what is long only by its number: the attacks and the bombs."""
    for item in items:
        is_one_of_many = isinstance(item, pytest.Function) and item.originalname in ("test_attack", "test_bomb")
        if is_one_of_many and item.callspec.params["name"] not in QUICK:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module", params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    """Who starts the jail: `root`, an `ordinary` user that root becomes, or the one who runs the tests (`self`)."""
    if request.param == "ordinary" and (reason := can_be_nobody()):
        skip_or_fail(reason)
    return str(request.param)


@pytest.fixture
def place(user: str, sealed: Seal) -> Iterator[Path]:
    """A sealed workspace of the user, with one file, below a home of its own that every user may enter."""
    home = Path(tempfile.mkdtemp(prefix="frog-home-"))
    path = home / "workspace"
    path.mkdir()
    (path / "kept").write_text("kept\n")
    if user == "ordinary":
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(home)], check=True)
    yield sealed(path)
    sealed.check()
    shutil.rmtree(home)
