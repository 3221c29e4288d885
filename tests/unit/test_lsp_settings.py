"""Settings, trust, the parameters of commands: whatever a client sends, the rest goes on."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import lsp_server
from agent.model.keeper import IDLE_UNLOAD_S
from agent.trajectory import KEEP_DAYS
from agent.types import JailSettings, Limits, ModelSpec
from lsp_server import messages
from lsp_server.capabilities import resolve
from lsp_server.layers import asks_for_replay, read, read_trust, without_user_keys
from lsp_server.messages import BadParamsError, parse
from lsp_server.settings import Settings, entries, schema


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert lsp_server.__version__ == project["version"]


def test_nothing_set_gives_the_defaults_of_the_agent() -> None:
    settings, problems = read(None)
    assert (settings, problems) == (Settings(), ())
    assert settings.limits.to_limits() == Limits()
    assert settings.model.to_spec() == ModelSpec()
    assert settings.jail.to_jail_settings() == JailSettings()
    assert settings.state.keep_days == KEEP_DAYS
    assert settings.model.idle_unload_s == IDLE_UNLOAD_S


def test_later_layers_win_nested_and_dotted() -> None:
    settings, problems = read({"limits": {"maxSteps": 7}}, {"limits.maxSteps": 8, "review": {"ask": False}})
    assert settings.limits.max_steps == 8
    assert settings.review.ask is False
    assert problems == ()
    assert settings.model_dump(by_alias=True, exclude_unset=True) == {
        "limits": {"maxSteps": 8},
        "review": {"ask": False},
    }


def test_what_a_run_gets() -> None:
    settings, problems = read(
        {
            "model": {"path": "m.gguf", "threads": 3, "gpuLayers": 9, "idleUnloadS": 1.5},
            "limits": {"thoughtTokens": 64, "timeS": 60},
            "jail": {"backend": "files", "readOnlyPaths": ["/data"], "python": "/usr/bin/python3"},
            "state.keepDays": 0.5,
        }
    )
    assert problems == ()
    assert settings.model.to_spec() == ModelSpec(path="m.gguf", n_threads=3, n_gpu_layers=9)
    assert settings.limits.to_limits() == Limits(thought_tokens=64, time_s=60.0)
    assert settings.jail.to_jail_settings() == JailSettings(
        backend="files", read_only_paths=("/data",), python="/usr/bin/python3"
    )
    assert (settings.model.idle_unload_s, settings.state.keep_days) == (1.5, 0.5)


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
        ({"jail": {"readOnlyPaths": "/data"}}, "jail.readOnlyPaths must be array, not string"),
        ({"maxSteps": 3}, "unknown setting maxSteps (did you mean limits.maxSteps?)"),
        ({"limits.max_steps": 3}, "unknown setting limits.max_steps (did you mean limits.maxSteps?)"),
        ({"\x1b[0m": 3}, "unknown setting \\x1b[0m; it is ignored"),
        ({"": 3}, "unknown setting ''; it is ignored"),
        ({"limits": {"maxSteps": 10**300}}, "limits.maxSteps must be at most 2147483647, not 1000"),
        ({"limits": {"timeS": 10**400}}, "limits.timeS must be an ordinary number, not 1000"),
        ({"limits": {"timeS": float("nan")}}, "limits.timeS must be an ordinary number, not NaN"),
        ({"state": {"keepDays": -1}}, "state.keepDays must be at least 0, not -1; the default (30) is used"),
        ({"model": {"path": "\ud800"}}, "model.path has a character that no text of a setting may have"),
        ({"model": {"path": "a\0b"}}, "model.path has a character"),
        ({"model": {"speculation": 1}}, "model.speculation must be one of 'auto', true, false, not 1"),
        ({"logLevel": ["info"]}, "logLevel must be one of 'error', 'warning', 'info', 'debug', not array"),
        ({"logLevel": "verbose" * 99}, "logLevel must be one of"),
    ],
)
def test_bad_values_are_named_and_defaults_count(layer: Any, problem: str) -> None:
    settings, problems = read(layer)
    assert len(problems) == 1
    assert problem in problems[0]
    assert len(problems[0]) < 200
    assert settings == Settings()


def test_a_bad_value_leaves_its_neighbours_and_the_layer_below() -> None:
    settings, problems = read(
        {"limits": {"maxSteps": 7}},
        {"limits": {"maxSteps": "x", "timeS": 60}, "logLevel": 1, "review": {"ask": False, "aks": 1}, "tests": []},
    )
    assert (settings.limits.max_steps, settings.limits.time_s, settings.review.ask) == (7, 60, False)
    assert problems == (
        "limits.maxSteps must be integer, not string; 7 is used",
        "logLevel must be one of 'error', 'warning', 'info', 'debug', not 1; the default ('info') is used",
        "unknown setting review.aks (did you mean review.ask?); it is ignored",
        "tests must be an object, not array; it is ignored",
    )


def test_null_is_the_default_and_whole_floats_are_integers() -> None:
    settings, problems = read(
        {"tests": {"command": "make check"}},
        {"limits": {"maxSteps": 12.0, "timeS": 5.5}, "model": {"path": None}, "review": None, "tests.command": None},
    )
    assert problems == ()
    assert settings.limits.max_steps == 12
    assert isinstance(settings.limits.max_steps, int)
    assert settings.review.ask is True
    assert settings.tests.command is None


def test_an_emptied_field_is_not_set() -> None:
    settings, problems = read({"model": {"path": "", "baseUrl": " "}, "tests": {"command": ""}})
    assert (settings.model.path, settings.model.base_url, settings.tests.command, problems) == (None, None, None, ())


def test_the_replay_model_is_for_what_starts_the_server() -> None:
    for layer in ({"model": {"kind": "scripted", "path": "t"}}, {"model.kind": "scripted", "model.path": "t"}):
        assert asks_for_replay(layer)
        assert read(layer, replay=True).settings.model.to_spec() == ModelSpec(kind="scripted", path="t")
        assert read(layer).settings.model.kind == "worker"
    assert not any(map(asks_for_replay, [None, [], {}, {"model": "scripted"}, {"kind": "scripted"}]))


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


# --- the schema ---------------------------------------------------------------------------------------------------

VALIDATOR = jsonschema.Draft202012Validator


def test_the_schema_has_every_setting_with_its_default_and_a_description() -> None:
    made = schema()
    VALIDATOR.check_schema(made)
    assert made["additionalProperties"] is False
    assert "$ref" not in str(made), "editors that follow no references show everything"
    defaults = Settings().model_dump(mode="json", by_alias=True)
    for key, entry in entries().items():
        group, _, name = key.rpartition(".")
        assert entry["default"] == (defaults[group][name] if group else defaults[name])
        assert entry["description"].endswith(".")
    for name, entry in made["properties"].items():
        assert entry["description"]
        assert ("properties" in entry) == (entry.get("additionalProperties") is False)
        assert entry.get("x-userOnly", False) == (name in ("model", "jail", "agent"))
    assert set(made["properties"]) == {*defaults, "trusted"}
    assert made["properties"]["trusted"]["type"] == "boolean"


@pytest.mark.parametrize(
    "sample",
    [
        {},
        {"trusted": False},
        Settings().model_dump(mode="json", by_alias=True),
        {"model": {"kind": "endpoint", "baseUrl": "http://localhost:8080/v1", "name": "m", "threads": 1}},
        {"model": {"path": None, "gpuLayers": -1, "speculation": True}, "limits": {"maxSteps": 12.0, "timeS": 5.5}},
        {"jail": {"backend": "files", "readOnlyPaths": ["/data"]}, "logLevel": "debug"},
    ],
)
def test_good_samples_are_valid(sample: Any) -> None:
    VALIDATOR(schema()).validate(sample)
    assert read(sample).problems == ()


@pytest.mark.parametrize(
    "sample",
    [
        [],
        {"more": 1},
        {"limits": {"maxStep": 3}},
        {"limits": {"maxSteps": 0}},
        {"limits": {"maxSteps": 2**31}},
        {"limits": {"maxSteps": True}},
        {"limits": {"contextTokens": 511}},
        {"limits": {"timeS": "60"}},
        {"limits": 5},
        {"model": {"kind": "scripted"}},
        {"model": {"threads": 0.5}},
        {"model": {"threads": 0}},
        {"model": {"gpuLayers": -2}},
        {"model": {"speculation": "always"}},
        {"jail": {"backend": "none"}},
        {"jail": {"readOnlyPaths": [1]}},
        {"tests": {"command": ["make"]}},
        {"logLevel": "verbose"},
    ],
)
def test_bad_samples_are_not(sample: Any) -> None:
    assert not VALIDATOR(schema()).is_valid(sample)
    assert len(read(sample).problems) == 1


@pytest.mark.parametrize("value", [None, 1, "true", []])
def test_trust_is_a_boolean_in_the_schema(value: Any) -> None:
    assert not VALIDATOR(schema()).is_valid({"trusted": value})


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
        ([{"runId": "r", "hunks": [-1]}], "hunks[0] must be 0 or more"),
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
