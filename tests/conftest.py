"""Fixtures for all tests: what must be there, and workspaces that must not change."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import config_home_with_consent, workspace_hash

# a busy machine is no bug: what is slow is found by the time-out of the test
settings.register_profile("frog", deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
settings.load_profile("frog")

# A test run in the background of a shell would hand ignored signals to every process that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    """The one mark that the seal of `sealed_when_jailed` has."""
    config.addinivalue_line("markers", "edits_workspace: edits the real workspace while it is jailed, as a user may")


IN_CI = os.environ.get("CI") == "true"


def skip_or_fail(reason: str) -> None:
    """In CI a part that cannot run is a failure; elsewhere a skip that says why in one line."""
    if IN_CI:
        pytest.fail(f"with CI=true this must run: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def require_model() -> None:
    """The test needs llama-cpp-python."""
    if importlib.util.find_spec("llama_cpp") is None:
        skip_or_fail("llama-cpp-python is not installed: run `make setup`")


@pytest.fixture
def require_jail() -> None:
    """The test needs jail backend A."""
    from agent.jail.probe import probe_namespaces

    outcome = probe_namespaces()
    if not outcome.usable:
        skip_or_fail(f"the jail cannot be had here: {outcome.reason}")


@pytest.fixture(scope="session", params=("namespaces", "bwrap", "landlock"))
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend that runs commands, where it can be had."""
    from agent.jail.backends import chosen

    (wanted,) = chosen(request.param)
    outcome = wanted.probe()
    if not outcome.usable:
        skip_or_fail(f"jail `{request.param}` cannot be had here: {outcome.reason}")
    return str(request.param)


@pytest.fixture(autouse=True)
def agreed_to_the_reduced_jail(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backend C runs commands for who agreed to it: the user of the tests that try it did."""
    callspec = getattr(request.node, "callspec", None)
    if callspec and callspec.params.get("backend") == "landlock":
        monkeypatch.setenv("XDG_CONFIG_HOME", str(config_home_with_consent()))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    """An empty workspace whose real files must not change between the test's `seal` and its end.

    A test fills it, then calls `workspace.seal()` through `sealed`; most use `sealed` below.
    """
    path = tmp_path / "workspace"
    path.mkdir()
    yield path


class Seal:
    """Remembers a workspace (bytes, modes, owners, times, link targets) and compares at the end."""

    def __init__(self) -> None:
        self.hashes: dict[Path, str] = {}

    def __call__(self, path: Path) -> Path:
        self.hashes.setdefault(path, workspace_hash(path, times=True))
        return path

    def check(self) -> None:
        """Fail where something changed since. What was removed as a whole was the test's own doing."""
        for path, before in self.hashes.items():
            if path.exists():
                assert workspace_hash(path, times=True) == before, f"the real workspace {path} changed"


@pytest.fixture
def sealed() -> Iterator[Seal]:
    """`sealed(path)`: from now to the end of the test nothing below `path` may change."""
    seal = Seal()
    yield seal
    seal.check()


@pytest.fixture(autouse=True)
def sealed_when_jailed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every workspace that a test jails is sealed from its first jail on, whatever the test itself looks at.

    Bytes, modes, owners and times: nobody may even have touched it, but a test that applies or edits itself.
    """
    if "edits_workspace" in request.keywords:
        yield
        return
    from agent.jail.spec import JailSpec

    seal = Seal()
    checked = JailSpec.checked

    def checked_and_sealed(spec: JailSpec) -> JailSpec:
        result = checked(spec)
        seal(Path(result.workspace))
        return result

    monkeypatch.setattr(JailSpec, "checked", checked_and_sealed)
    yield
    seal.check()
