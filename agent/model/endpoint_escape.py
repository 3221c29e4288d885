"""Keeping text that is not ours from forging control tokens at a server that tokenizes for itself.

A server reads `<|im_end|>` or `</think>` in a file as the control token of that name. The worker avoids that when it
tokenizes; an endpoint can only be sent other text. So a zero-width space goes behind the `<`, and is taken out again
from what the model says: an Edit of such a line still matches its file.
"""

from __future__ import annotations

import re
from typing import Any

MARK = "\u200b"
# The control tokens of the Qwen3.5 tokenizer: `<|…|>`, and six tags.
_REST = r"\|[a-z_]{1,40}\|>|/?(?:tool_call|tool_response|think)>"
_FORGED = re.compile(rf"<(?={_REST})")
_ESCAPED = re.compile(rf"<{MARK}(?={_REST})")


def escape(text: str) -> str:
    """`text` without any control token."""
    return _FORGED.sub(f"<{MARK}", text)


def unescape(value: Any) -> Any:
    """Undo `escape` in a text, and in all texts of a JSON value."""
    if isinstance(value, str):
        return _ESCAPED.sub("<", value) if MARK in value else value
    if isinstance(value, list):
        return [unescape(item) for item in value]
    if isinstance(value, dict):
        return {unescape(key): unescape(item) for key, item in value.items()}
    return value
