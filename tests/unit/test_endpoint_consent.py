"""Which endpoints need a consent, and where it is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.model.consent import consent_path, has_consent, store_consent, withdraw_consent
from agent.model.endpoint_url import is_local, normalize_base_url


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/v1",
        "http://localhost:30000",
        "https://LOCALHOST./v1",
        "http://[::1]:8080/v1",
        "http://[::ffff:127.0.0.1]/v1",
        "http://127.8.9.1/v1",
    ],
)
def test_loopback_is_local(url: str) -> None:
    assert is_local(url) and has_consent(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://192.168.1.4:8080/v1",
        "http://0.0.0.0:8080/v1",
        "http://[::]:8080/v1",
        "https://api.example.com/v1",
        "http://localhost.example.com/v1",
        "http://127.0.0.1.example.com/v1",
        "http://127.0.0.1@example.com/v1",
        "http://example.com#@127.0.0.1/",
        "http://example.com/127.0.0.1",
        "http://127.1/v1",
        "ftp://localhost/",
        "localhost:8080",
        "http://",
        "",
        "http://[::1",
        "http://exa\x00mple/",
    ],
)
def test_everything_else_is_not(url: str) -> None:
    assert not is_local(url) and not has_consent(url)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://localhost:8080", "http://localhost:8080/v1"),
        ("http://localhost:8080/", "http://localhost:8080/v1"),
        (" http://localhost:8080/v1/ ", "http://localhost:8080/v1"),
        ("http://localhost:8080/v1/chat/completions", "http://localhost:8080/v1"),
        ("HTTPS://Example.COM:443/api/v3", "https://example.com/api/v3"),
    ],
)
def test_one_form_of_an_address(url: str, base: str) -> None:
    assert normalize_base_url(url) == base


@pytest.mark.parametrize(
    "url", ["nope", "ftp://x/v1", "http://[::1/v1", "http://127.0.0.1:99999/v1", "http://:80/v1", ""]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="address of the endpoint"):
        normalize_base_url(url)


def test_an_error_does_not_show_a_password() -> None:
    with pytest.raises(UsageError) as caught:
        normalize_base_url("http://me:hunter2@example.com/v1")
    assert "hunter2" not in str(caught.value) + caught.value.hint


def test_a_consent_is_kept_for_one_address() -> None:
    store_consent("https://example.com/v1/")
    assert has_consent("https://EXAMPLE.com/v1")
    assert not has_consent("http://example.com/v1")
    assert not has_consent("https://example.com:8443/v1")
    assert not has_consent("https://example.com/other")
    store_consent("https://two.example.com/v1")
    assert has_consent("https://example.com/v1") and has_consent("https://two.example.com")
    assert os.stat(consent_path()).st_mode & 0o777 == 0o600
    assert withdraw_consent("https://example.com/v1") and not withdraw_consent("https://example.com/v1")
    assert not has_consent("https://example.com/v1")


@pytest.mark.parametrize("text", ["{", "[]", '{"endpoints": ["https://example.com/v1"]}', "\xff"])
def test_a_broken_file_is_no_consent(text: str) -> None:
    path = consent_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    path.chmod(0o600)
    assert not has_consent("https://example.com/v1")


def test_a_file_that_others_may_write_is_no_consent() -> None:
    store_consent("https://example.com/v1")
    consent_path().chmod(0o666)
    assert not has_consent("https://example.com/v1")
