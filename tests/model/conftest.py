"""The tiny random model, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.tiny import write_model


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf", texts={"frog.sampling": '{"temperature": 0.0}'})
