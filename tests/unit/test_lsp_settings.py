"""Settings, trust, the parameters of commands: whatever a client sends, the rest goes on."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import lsp_server
from lsp_server import messages
from lsp_server.capabilities import resolve
from lsp_server.messages import BadParamsError, parse
from lsp_server.settings import DEFAULTS, TABLE, read, read_trust, schema, without_user_keys


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert lsp_server.__version__ == project["version"]


def test_nothing_set_gives_the_defaults_of_the_evaluation() -> None:
    settings = read(None)
    assert settings.values == DEFAULTS.values
    assert settings.problems == ()
    limits = settings.limits
    assert (limits.max_steps, limits.context_tokens, limits.tokens_per_turn, limits.time_s) == (
        150,
        131_072,
        8_192,
        10_800.0,
    )


def test_later_layers_win_nested_and_dotted() -> None:
    settings = read({"limits": {"maxSteps": 7}}, {"limits.maxSteps": 8, "review": {"ask": False}})
    assert settings["limits.maxSteps"] == 8
    assert settings["review.ask"] is False
    assert settings.explicit == {"limits.maxSteps", "review.ask"}


@pytest.mark.parametrize(
    ("layer", "problem"),
    [
        ([], "must be an object, not array"),
        ("x", "must be an object, not string"),
        ({"limits": {"maxStep": 3}}, "unknown setting limits.maxStep (did you mean limits.maxSteps?)"),
        ({"limits": {"maxSteps": "many"}}, "limits.maxSteps must be integer, not string"),
        ({"limits": {"maxSteps": True}}, "limits.maxSteps must be integer, not boolean"),
        ({"limits": {"maxSteps": 0}}, "limits.maxSteps must be at least 1, not 0"),
        ({"limits": 5}, "limits must be an object, not integer"),
        ({"model": {"kind": "worke"}}, "did you mean 'worker'?"),
        ({"model": {"kind": "scripted"}}, "model.kind must be one of"),
        ({"jail": {"backend": "none"}}, "jail.backend must be one of"),
        ({"jail": {"readOnlyPaths": [1]}}, "must hold strings only"),
    ],
)
def test_bad_values_are_named_and_defaults_count(layer: Any, problem: str) -> None:
    settings = read(layer)
    assert len(settings.problems) == 1
    assert problem in settings.problems[0]
    assert settings.values == DEFAULTS.values


def test_null_is_not_set_and_whole_floats_are_integers() -> None:
    settings = read({"limits": {"maxSteps": 12.0, "timeS": 5.5}, "model": {"path": None}, "review": {"ask": None}})
    assert settings.problems == ()
    assert settings["limits.maxSteps"] == 12
    assert isinstance(settings["limits.maxSteps"], int)
    assert settings["review.ask"] is True


def test_the_replay_model_is_for_what_starts_the_server() -> None:
    assert read({"model": {"kind": "scripted", "path": "t"}}, replay=True).model.kind == "scripted"


def test_a_folder_says_nothing_of_model_jail_agent_or_trust() -> None:
    layer = {"model": {"kind": "endpoint"}, "jail.backend": "files", "agent": {}, "trusted": True, "limits": {}}
    assert without_user_keys(layer) == {"limits": {}}
    assert without_user_keys([1]) == [1]


@pytest.mark.parametrize("layers", [(), (None,), ({},), ({"trusted": True},), ({"trusted": True}, {})])
def test_trust_is_given(layers: tuple[Any, ...]) -> None:
    assert read_trust(*layers) is None


@pytest.mark.parametrize("value", [False, None, 0, 1, "true", [], {}])
def test_trust_fails_closed(value: Any) -> None:
    assert read_trust({"trusted": value}) is not None
    assert read_trust({"trusted": True}, {"trusted": value}) is not None
    assert read_trust({"trusted": value}, {"trusted": True}) is not None


@pytest.mark.parametrize("layer", [[], "trusted", 1, True])
def test_settings_that_are_no_object_are_no_trust(layer: Any) -> None:
    assert read_trust(layer) is not None


def test_the_schema_has_every_setting_with_its_default() -> None:
    properties = schema()["properties"]
    for setting in TABLE:
        entry: Any = {"properties": properties}
        for part in setting.key.split("."):
            entry = entry["properties"][part]
        assert entry["default"] == setting.default
        assert entry["description"]
    assert properties["trusted"]["type"] == "boolean"


# --- parameters -------------------------------------------------------------------------------------------------


def test_parameters_are_checked_and_unknown_keys_left_out() -> None:
    params = parse(messages.ApplyParams, [{"runId": "r", "files": ["a"], "hunks": None, "more": 1}])
    assert params == {"runId": "r", "files": ["a"], "hunks": None}
    assert parse(messages.NoParams, None) == {}
    assert parse(messages.NoParams, []) == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "runId is missing"),
        (None, "runId is missing"),
        ({}, "one object"),
        ("x", "one object"),
        ([{"runId": "r"}, 2], "one object"),
        (["r"], "must be an object"),
        ([{"runId": 5}], "runId must be a string"),
        ([{"runId": "r", "hunks": ["1"]}], "hunks[0] must be a whole number"),
        ([{"runId": "r", "hunks": [True]}], "hunks[0] must be a whole number"),
        ([{"runId": "r", "files": "a"}], "files must be a list"),
    ],
)
def test_bad_parameters_say_what_is_wrong(arguments: Any, message: str) -> None:
    with pytest.raises(BadParamsError, match=message.replace("[", r"\[").replace("]", r"\]")):
        parse(messages.ApplyParams, arguments)


def test_a_range_is_checked_to_its_end() -> None:
    with pytest.raises(BadParamsError, match=r"range\.start\.line must be a whole number"):
        parse(messages.FixParams, [{"uri": "u", "range": {"start": {"line": "1", "character": 0}, "end": {}}}])


@pytest.mark.parametrize("junk", [None, [], "x", 5, {"capabilities": []}, {"capabilities": {"general": 1}}])
def test_capabilities_of_junk_are_none(junk: Any) -> None:
    assert resolve(junk) == resolve({})


def test_the_first_encoding_that_we_know_is_taken() -> None:
    def encoding(*offered: Any) -> str:
        return resolve({"capabilities": {"general": {"positionEncodings": list(offered)}}}).encoding

    assert encoding() == "utf-16"
    assert encoding("utf-7", "utf-32", "utf-8") == "utf-32"
    assert encoding(8, "utf-8") == "utf-8"
    assert encoding("ascii") == "utf-16"
