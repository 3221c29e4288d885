"""Arguments of a call by the tool's schema: lenient where people write numbers and booleans in many ways."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent.types import JsonObject

Types = Mapping[str, Mapping[str, str]]
"""The JSON type of each argument of each function."""

DEFAULT_TYPES: Types = {
    "Read": {"file_path": "string", "offset": "integer", "limit": "integer"},
    "Write": {"file_path": "string", "content": "string"},
    "Edit": {"file_path": "string", "old_string": "string", "new_string": "string", "replace_all": "boolean"},
    "Glob": {"pattern": "string", "path": "string"},
    "Bash": {"command": "string", "description": "string", "timeout": "number"},
}
"""The five tools of the Leaf contract, for callers that have no schemas at hand."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MOST_DIGITS = 40
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a JSON list",
    "object": "a JSON object",
}


def read_types(tools: Sequence[JsonObject]) -> Types:
    """The argument types of OpenAI function schemas. What is no schema is passed over."""
    types: dict[str, dict[str, str]] = {}
    for tool in tools:
        function = tool.get("function", tool)
        properties = (function.get("parameters") or {}).get("properties") or {}
        types[str(function.get("name", ""))] = {key: _type_of(schema) for key, schema in properties.items()}
    return types


def _type_of(schema: Any) -> str:
    kind = schema.get("type", "string") if isinstance(schema, dict) else "string"
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "string")
    return str(kind)


def coerce_arguments(arguments: Mapping[str, Any], types: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Coerce known keys by their type; keep unknown keys as they are.

    Returns the arguments and one sentence for each that stays as it was because it could not be coerced. A JSON null
    for a known key is left out, as if it had not been given.
    """
    coerced: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in arguments.items():
        kind = types.get(key)
        if kind is None:
            coerced[key] = value
            continue
        if value is None:
            continue
        try:
            coerced[key] = _coerce(value, kind)
        except ValueError:
            coerced[key] = value
            problems.append(f"ValueError: {key} must be {_KINDS.get(kind, kind)}, not {_shorten(value)}")
    return coerced, problems


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _coerce(value: Any, kind: str) -> Any:
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if kind in ("integer", "number"):
        return _to_number(value, whole=kind == "integer")
    if kind == "boolean":
        return _to_boolean(value)
    if kind in ("array", "object"):
        return _to_container(value, list if kind == "array" else dict)
    return value


def _to_number(value: Any, *, whole: bool) -> int | float:
    if isinstance(value, bool):
        raise ValueError
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _MOST_DIGITS or not _NUMBER.fullmatch(text):
            raise ValueError
        digits = text.removeprefix("-").removeprefix("+")
        value = int(text) if digits.isdigit() else float(text)
    if isinstance(value, int):
        return value
    if not isinstance(value, float) or not math.isfinite(value):
        raise ValueError
    if whole:
        if not value.is_integer() or abs(value) >= 2**53:
            raise ValueError
        return int(value)
    return value


def _to_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else str(value)
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError


def _to_container(value: Any, kind: type[list[Any] | dict[str, Any]]) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except RecursionError as error:
            raise ValueError from error
    if not isinstance(value, kind):
        raise ValueError
    return value
