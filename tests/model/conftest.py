"""The tiny random model, made once, and folders of their own for workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.tiny import write_model


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What workers keep and say of themselves stays out of the user's folders."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf", texts={"frog.sampling": '{"temperature": 0.0}'})
