"""The system prompt and the tools of the tiny model, and the rendering of its chat template.

The model knows these strings as single tokens: a changed character is a prompt it never saw. Keys are sorted, and
quotes, angle brackets and ampersands avoided, so that every JSON filter writes the same text.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2

SYSTEM_PROMPT = "You fix one bug in a Python project: read the file, edit it, run the tests, and say what happened."


def _tool(name: str, description: str, required: dict[str, str], optional: dict[str, str]) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in sorted((required | optional).items())}
    parameters = {"properties": properties, "required": sorted(required), "type": "object"}
    return {"function": {"description": description, "name": name, "parameters": parameters}, "type": "function"}


TOOLS: list[dict[str, Any]] = [
    _tool("Read", "Show a file with line numbers.", {"file_path": "string"}, {"limit": "integer", "offset": "integer"}),
    _tool("Write", "Write a whole file.", {"content": "string", "file_path": "string"}, {}),
    _tool(
        "Edit",
        "Replace a string that occurs once.",
        {"file_path": "string", "new_string": "string", "old_string": "string"},
        {"replace_all": "boolean"},
    ),
    _tool("Glob", "Find files by pattern.", {"pattern": "string"}, {"path": "string"}),
    _tool("Bash", "Run a command.", {"command": "string"}, {"description": "string", "timeout": "number"}),
]
TEMPLATE = (Path(__file__).parent / "template.jinja").read_text("utf-8")


def _raise(message: str) -> None:
    raise ValueError(message)


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False)  # noqa: S701 - plain text
    made.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    made.globals["raise_exception"] = _raise
    return made


_COMPILED = _environment().from_string(TEMPLATE)


def render(messages: list[dict[str, Any]], *, generate: bool = False) -> str:
    """Render messages with this model's template and tools."""
    return _COMPILED.render(messages=messages, tools=TOOLS, add_generation_prompt=generate)


def prefix() -> str:
    """The system turn, which every conversation begins with."""
    return _COMPILED.render(
        messages=[{"role": "system", "content": SYSTEM_PROMPT}], tools=TOOLS, add_generation_prompt=False
    )


def prefix_hash() -> str:
    """The SHA-256 of the system turn: what the model file is pinned to."""
    return hashlib.sha256(prefix().encode()).hexdigest()
