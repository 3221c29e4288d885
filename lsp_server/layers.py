"""Layers of JSON from the user's file, the editor and its folders become settings, and trust.

Reading never fails: an unknown key or a bad value is named, with a suggestion, and what a lower layer says, else the
default, counts. Trust is read apart and fails closed.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from agent.types import JsonObject
from agent.visible import visible_line
from lsp_server.settings import USER_ONLY, Settings, entries

SHOWN_CHARS = 60


class Reading(NamedTuple):
    """Checked settings, and what was wrong with the layers, a sentence each."""

    settings: Settings
    problems: tuple[str, ...] = ()


def read(*layers: Any, replay: bool = False) -> Reading:
    """Settings from JSON objects, later ones over earlier ones, with nested and dotted keys; null is the default.

    `replay` also takes `model.kind` "scripted" (a file of turns in `model.path`), a model for tests and for
    replays; only what starts the server, `initializationOptions`, may ask for it.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    for layer in layers:
        for key, value in _flatten(layer, problems):
            if key not in entries():
                problems.append(f"unknown setting {_name(key)}{_suggestion(key)}; it is ignored")
            elif value is None:
                values.pop(key, None)  # clients send null for what is not set
            elif (reason := _reason_against(key, value, replay)) is None:
                values[key] = value
            else:
                used = _shown(values[key]) if key in values else f"the default ({_shown(entries()[key]['default'])})"
                problems.append(f"{key} {reason}; {used} is used")
    return Reading(_validate(values, replay), tuple(problems))


def asks_for_replay(layer: Any) -> bool:
    """Whether a layer asks for the model that plays a script."""
    return any(key == "model.kind" and value == "scripted" for key, value in _flatten(layer, []))


def without_user_keys(layer: Any) -> Any:
    """A folder's settings without what only the user's own settings may say: model, jail, agent, trust."""
    if not isinstance(layer, dict):
        return layer
    left_out = {field.alias for field in Settings.model_fields.values() if field.json_schema_extra == USER_ONLY}
    return {key: value for key, value in layer.items() if str(key).partition(".")[0] not in {*left_out, "trusted"}}


def read_trust(*layers: Any) -> str | None:
    """None where runs are allowed, else why not. Absent everywhere: the user started the server by hand.

    Each layer that says anything but true refuses: trust that cannot be read is no trust.
    """
    for layer in layers:
        if layer is None:
            continue
        if not isinstance(layer, dict):
            return "the settings are malformed, so the workspace counts as not trusted"
        if "trusted" in layer and layer["trusted"] is not True:
            if layer["trusted"] is False:
                return "the workspace is not trusted"
            return "the setting trusted is malformed, so the workspace counts as not trusted"
    return None


def _flatten(layer: Any, problems: list[str]) -> Iterator[tuple[str, Any]]:
    """The values of a layer by their dotted keys, in order; `trusted` is read elsewhere."""
    if layer is None:
        return
    if not isinstance(layer, dict):
        problems.append(f"the settings must be an object, not {_kind(layer)}; they are ignored")
        return
    groups = {key.partition(".")[0] for key in entries() if "." in key}
    for name, value in layer.items():
        if name == "trusted":
            continue
        if name not in groups:
            yield str(name), value
        elif isinstance(value, dict):
            yield from ((f"{name}.{key}", inner) for key, inner in value.items())
        elif value is not None:
            problems.append(f"{name} must be an object, not {_kind(value)}; it is ignored")


def _validate(values: Mapping[str, Any], replay: bool) -> Settings:
    """Settings from values by their dotted keys. Raises ValidationError."""
    nested: JsonObject = {}
    for key, value in values.items():
        *groups, name = key.split(".")
        parent = nested
        for group in groups:
            parent = parent.setdefault(group, {})
        parent[name] = value
    return Settings.model_validate(nested, context={"replay": replay})


def _reason_against(key: str, value: Any, replay: bool) -> str | None:
    """What is wrong with one value, alone: so that it spoils no other."""
    try:
        _validate({key: value}, replay)
    except ValidationError as error:
        return _sentence(entries()[key], value, error)
    return None


def _sentence(entry: JsonObject, value: Any, error: ValidationError) -> str:
    """Pydantic's first error in words for the person who wrote the value."""
    first = error.errors(include_url=False, include_input=False)[0]
    bounds = first.get("ctx", {})
    if "enum" in entry:
        is_scalar = isinstance(value, str | int | float)
        close = difflib.get_close_matches(str(value), map(str, entry["enum"]), 1) if is_scalar else []
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        choices = ", ".join(map(_shown, entry["enum"]))
        return f"must be one of {choices}, not {_shown(value) if is_scalar else _kind(value)}{hint}"
    if first["type"] == "greater_than_equal":
        return f"must be at least {bounds['ge']:.15g}, not {_shown(value)}"
    if first["type"] == "less_than_equal":
        return f"must be at most {bounds['le']:.15g}, not {_shown(value)}"
    if first["type"] in ("string_pattern_mismatch", "string_unicode"):
        return "has a character that no text of a setting may have"
    wanted = entry["type"] if isinstance(entry["type"], str) else entry["type"][0]
    if wanted == "array" and isinstance(value, list):
        return "must hold strings only"
    if wanted == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return f"must be an ordinary number, not {_shown(value)}"
    return f"must be {wanted}, not {_kind(value)}"


def _kind(value: Any) -> str:
    """The JSON type of a value."""
    names: tuple[tuple[type, str], ...] = (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (dict, "object"),
    )
    return next((name for python, name in names if isinstance(value, python)), "null")


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"


def _name(key: str) -> str:
    return visible_line(key, SHOWN_CHARS) or repr(key[:SHOWN_CHARS])


def _suggestion(key: str) -> str:
    """The setting that an unknown key may mean: one spelled alike, or one whose group was left out."""
    close = difflib.get_close_matches(key, entries(), 1, 0.7)
    in_groups = {known.rpartition(".")[2]: known for known in entries()}
    close = close or [in_groups[name] for name in difflib.get_close_matches(key, in_groups, 1, 0.85)]
    return f" (did you mean {close[0]}?)" if close else ""
