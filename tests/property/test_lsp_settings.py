"""Whatever JSON a client sends as settings: reading never raises, and every setting then has a legal value."""

from __future__ import annotations

from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from agent.visible import visible_line
from lsp_server.layers import read, read_trust, without_user_keys
from lsp_server.settings import Settings, entries, schema

VALIDATOR = jsonschema.Draft202012Validator(schema())
# Also what only JSON's escapes can say (lone surrogates) and what only its readers take (NaN, Infinity).
TEXT = st.text(st.characters(), max_size=20) | st.sampled_from(["scripted", "endpoint", "files", "auto", "", "\0"])
NUMBERS = st.integers() | st.floats() | st.integers(-2, 2000) | st.sampled_from([10**400, 2**31, 12.0, -0.0])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
KEYS = sorted(entries())
NAMES = sorted({part for key in KEYS for part in key.split(".")})
GROUPS = sorted({key.partition(".")[0] for key in KEYS} | {"trusted"})
LAYERS = JSON | st.dictionaries(
    st.sampled_from(KEYS) | st.sampled_from(GROUPS) | TEXT,
    JSON | st.dictionaries(st.sampled_from(NAMES) | TEXT, JSON, max_size=4),
    max_size=6,
)


@given(st.lists(LAYERS, max_size=3))
def test_any_json_at_all(layers: list[Any]) -> None:
    settings, problems = read(*layers)
    values = settings.model_dump(mode="json", by_alias=True)
    assert VALIDATOR.is_valid(values)
    assert read(values) == (settings, ())
    for problem in problems:
        assert problem == visible_line(problem), "a line that is safe to show"
        assert len(problem) < 250
        assert "Input should" not in problem, "words of our own"
    read_trust(*layers)


@given(LAYERS)
def test_a_folder_never_touches_the_model_the_jail_or_the_agent(layer: Any) -> None:
    settings = read(without_user_keys(layer)).settings
    default = Settings()
    assert (settings.model, settings.jail, settings.agent) == (default.model, default.jail, default.agent)


@given(st.sampled_from(KEYS), JSON, st.sampled_from(KEYS))
def test_one_value_never_changes_another(key: str, value: Any, other: str) -> None:
    settings = read({key: value}).settings.model_dump(mode="json", by_alias=True)
    group, _, name = other.rpartition(".")
    if other != key:
        assert (settings[group] if group else settings)[name] == entries()[other]["default"]


@given(LAYERS)
def test_what_the_schema_takes_is_taken_without_a_word(layer: Any) -> None:
    if VALIDATOR.is_valid(layer):
        assert read(layer).problems == ()
