"""What a client can do, read from `initialize`."""

from __future__ import annotations

from typing import Any

import pytest

from lsp_server.capabilities import resolve
from lsp_server.layers import read


@pytest.mark.parametrize(
    ("announced", "options", "applies"),
    [
        (True, None, True),
        (False, None, False),
        (False, {"client": {"appliesEdits": True}}, True),
        (True, {"client": {"appliesEdits": False}}, True),
        (False, {"client": {"appliesEdits": "yes"}}, False),
        (False, {"client": True}, False),
    ],
)
def test_a_client_may_say_apart_that_it_applies_edits(announced: bool, options: Any, applies: bool) -> None:
    params = {"capabilities": {"workspace": {"applyEdit": announced}}, "initializationOptions": options}
    assert resolve(params).apply_edit is applies


def test_the_setting_is_known() -> None:
    assert read({"client": {"appliesEdits": True}}).problems == ()
