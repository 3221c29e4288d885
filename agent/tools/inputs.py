"""From what the model wrote to arguments that the runner takes: lenient where the contract says so."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from agent.tools.schemas import TOOL_NAMES
from agent.types import JsonObject

DEFAULT_TIMEOUT_S = 120.0
MIN_TIMEOUT_S = 0.1
MAX_SECONDS = 1000
"""A Bash `timeout` over this is taken for milliseconds."""

_TRUE = {"1", "true", "yes", "on"}


def read_arguments(name: str, arguments: object) -> JsonObject:
    """The arguments of a call in the types of its schema; anything but an object counts as `{}`.

    Raises ValueError with the words that the model gets, and LookupError for a name that is none of the five.
    """
    given: Mapping[str, Any] = arguments if isinstance(arguments, Mapping) else {}
    if name not in TOOL_NAMES:
        raise LookupError(f"Unknown tool: {name}")
    if name == "Bash":
        return {"command": _required(given, "command"), "timeout": _timeout_s(given)}
    if name == "Glob":
        path = given.get("path")
        return {"pattern": _required(given, "pattern"), "path": _text(path) if path else "."}
    file = {"file_path": _required(given, "file_path", "path")}
    if name == "Read":
        return {**file, "offset": max(1, _whole(given, "offset", 1)), "limit": _whole(given, "limit", 0)}
    if name == "Write":
        return {**file, "content": _present(given, "content")}
    old, new = _present(given, "old_string"), _present(given, "new_string")
    return {**file, "old_string": old, "new_string": new, "replace_all": _is_true(given.get("replace_all"))}


def _required(given: Mapping[str, Any], *names: str) -> str:
    """The first of these that is not empty."""
    for name in names:
        if given.get(name) not in (None, ""):
            return _text(given[name])
    raise ValueError(f"{names[0]} is required")


def _present(given: Mapping[str, Any], name: str) -> str:
    """An argument that may be empty but must be there."""
    if given.get(name) is None:
        raise ValueError(f"{name} is required")
    return _text(given[name])


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)


def _whole(given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name)
    if value is None or value == "":
        return default
    number = _number(value)
    if number is None or number != int(number):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    return min(int(number), 2**31)


def _timeout_s(given: Mapping[str, Any]) -> float:
    for name, is_ms in (("timeout_ms", True), ("timeout", False)):
        value = given.get(name)
        if value is None or value == "":
            continue
        number = _number(value)
        if number is None:
            raise ValueError(f"{name} must be a number, not {value!r}")
        return max(MIN_TIMEOUT_S, number / 1000 if is_ms or number > MAX_SECONDS else number)
    return DEFAULT_TIMEOUT_S


def _number(value: Any) -> float | None:
    try:
        number = float(value.strip() if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _is_true(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).strip().lower() in _TRUE
