"""The five tools as OpenAI function schemas: the names and arguments that the model was trained with.

The descriptions are our own and short, since every run reads them: 453 tokens of the Qwen3.5 tokenizer, so that
with the system prompt and the chat template's own words about tools it stays under 900.
"""

from __future__ import annotations

from typing import Any

from agent.types import JsonObject


def _function(name: str, description: str, required: list[str], properties: dict[str, Any]) -> JsonObject:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_STRING: JsonObject = {"type": "string"}

TOOLS: tuple[JsonObject, ...] = (
    _function(
        "Read",
        "Show a text file with line numbers.",
        ["file_path"],
        {
            "file_path": _STRING,
            "offset": {"type": "integer", "description": "First line, from 1."},
            "limit": {"type": "integer", "description": "Most lines."},
        },
    ),
    _function(
        "Write",
        "Create or replace a whole file; folders are made.",
        ["file_path", "content"],
        {"file_path": _STRING, "content": _STRING},
    ),
    _function(
        "Edit",
        "Replace a piece of a text file that occurs once.",
        ["file_path", "old_string", "new_string"],
        {
            "file_path": _STRING,
            "old_string": {"type": "string", "description": "The exact text, without line numbers."},
            "new_string": _STRING,
            "replace_all": {"type": "boolean", "description": "Replace every occurrence."},
        },
    ),
    _function(
        "Glob",
        "List files by pattern, such as **/*.py.",
        ["pattern"],
        {"pattern": _STRING, "path": {"type": "string", "description": "Folder to start from."}},
    ),
    _function(
        "Bash",
        "Run a shell command in the project folder.",
        ["command"],
        {
            "command": _STRING,
            "description": _STRING,
            "timeout": {"type": "number", "description": "In seconds."},
        },
    ),
)
"""In the order in which the model is told of them."""

TOOL_NAMES = tuple(str(tool["function"]["name"]) for tool in TOOLS)
