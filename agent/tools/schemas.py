"""The five tools as OpenAI function schemas: the names and arguments that the model was trained with.

The descriptions are our own and short: system prompt and tools together stay under 900 tokens.
"""

from __future__ import annotations

from typing import Any

from agent.types import JsonObject


def _function(name: str, description: str, required: list[str], properties: dict[str, Any]) -> JsonObject:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _string(description: str) -> JsonObject:
    return {"type": "string", "description": description}


_FILE_PATH = _string("File, relative to the workspace.")

TOOLS: tuple[JsonObject, ...] = (
    _function(
        "Read",
        "Show a text file with line numbers.",
        ["file_path"],
        {
            "file_path": _FILE_PATH,
            "offset": {"type": "integer", "description": "First line, from 1."},
            "limit": {"type": "integer", "description": "Most lines."},
        },
    ),
    _function(
        "Write",
        "Create or replace a whole file and its folders.",
        ["file_path", "content"],
        {"file_path": _FILE_PATH, "content": _string("The new text.")},
    ),
    _function(
        "Edit",
        "Replace one exact piece of a text file. It must occur once.",
        ["file_path", "old_string", "new_string"],
        {
            "file_path": _FILE_PATH,
            "old_string": _string("The text as it is, without line numbers."),
            "new_string": _string("The text instead."),
            "replace_all": {"type": "boolean", "description": "Replace every occurrence."},
        },
    ),
    _function(
        "Glob",
        "List files by pattern.",
        ["pattern"],
        {"pattern": _string("Such as **/*.py"), "path": _string("Folder to start from.")},
    ),
    _function(
        "Bash",
        "Run a shell command in the workspace.",
        ["command"],
        {
            "command": _string("The command."),
            "description": _string("What it is for."),
            "timeout": {"type": "number", "description": "Seconds; 120 by default."},
        },
    ),
)
"""In the order in which the model is told of them."""

TOOL_NAMES = tuple(str(tool["function"]["name"]) for tool in TOOLS)
