"""What an OpenAI-compatible server means by an error: read from its status and its words.

The words are those of SGLang, vLLM and llama-server (their releases of 2024 to 2026) and of OpenAI's API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRYABLE_4XX = frozenset({408, 429})  # the request took too long, or came too soon
MIN_ROOM_TOKENS = 1024  # with less room than this for a reply, a summary helps more than a short reply
MAX_SHOWN_CHARS = 400

_OVERFLOW = re.compile(
    r"maximum context length (?:is|of) \d"  # vLLM, OpenAI; SGLang: "… exceeds the model's maximum context length of"
    r"|longer than the model's context length"  # SGLang
    r"|longer than the maximum model length"  # vLLM
    r"|exceeds? (?:the )?(?:model'?s? )?maximum context length"
    r"|exceeds? the (?:maximum )?(?:allowed|permitted) (?:input )?length"  # SGLang
    r"|exceeds the available context size"  # llama-server, before generating
    r"|context size has been exceeded"  # llama-server, while generating
    r"|exceed_context_size_error|context_length_exceeded"
    r"|input is too (?:long|large) to process",  # llama-server
    re.IGNORECASE,
)
_LIMIT = re.compile(r"context length (?:is|of) (\d+)", re.IGNORECASE)
_INPUT = re.compile(
    r"\(?(\d+) in the messages|has (\d+) input tokens|at least (\d+) input tokens|(\d+) tokens from the input messages",
    re.IGNORECASE,
)
_UNKNOWN_FIELD = re.compile(
    r"unknown|unrecogni[sz]ed|unsupported|not supported|not permitted|not allowed|unexpected"
    r"|extra[ _](?:inputs|fields|forbidden)|additional propert|invalid (?:parameter|argument|field)|does not support",
    re.IGNORECASE,
)
_NO_TOOL_PARSER = re.compile(r"enable-auto-tool-choice|tool-call-parser|tool parser", re.IGNORECASE)
_NO_JINJA = re.compile(r"--jinja|requires? jinja", re.IGNORECASE)

TOOL_PARSER_OPTIONS = "`--tool-call-parser qwen3_coder` (vLLM also needs `--enable-auto-tool-choice`)"
REASONING_PARSER_OPTION = "`--reasoning-parser qwen3`"
JINJA_OPTION = "`--jinja`"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError:
    """An error that a server answered with. `status` is 200 where it came inside a stream."""

    status: int
    message: str
    retry_after_s: float | None = None

    @property
    def overflow(self) -> bool:
        """The conversation, or the conversation and the room asked for, does not fit the context."""
        return self.status not in (401, 403) and _OVERFLOW.search(self.message) is not None

    @property
    def room_tokens(self) -> int | None:
        """How many tokens a reply may have, where the message tells; None where it does not.

        Two tokens are kept back: servers differ in whether the limit itself may be reached.
        """
        limit, given = _LIMIT.search(self.message), _INPUT.search(self.message)
        if limit is None or given is None:
            return None
        return int(limit.group(1)) - int(next(group for group in given.groups() if group)) - 2

    @property
    def retryable(self) -> bool:
        """The same request may succeed later."""
        if self.missing_option is not None or self.status == 501:
            return False
        return self.status in RETRYABLE_4XX or self.status >= 500

    @property
    def missing_option(self) -> str | None:
        """The option that the server must be started with before it takes tools; None for other errors."""
        if _NO_JINJA.search(self.message):
            return f"llama-server with {JINJA_OPTION}"
        if _NO_TOOL_PARSER.search(self.message):
            return f"the server with {TOOL_PARSER_OPTIONS}"
        return None

    def rejected_fields(self, sent: Iterable[str], extras: Iterable[str]) -> tuple[str, ...]:
        """Which of the fields that were sent the server does not take; () for other errors.

        Where the message speaks of an unknown field and names none of ours: all of `extras`, those that are
        no part of OpenAI's API.
        """
        if self.status not in (400, 422):
            return ()
        named = tuple(name for name in sent if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self.message))
        if named:
            return named
        return tuple(extras) if _UNKNOWN_FIELD.search(self.message) else ()


def read_error(status: int, body: str, retry_after: str | None = None) -> ServerError:
    """The error in the body of an answer: JSON of any of the servers, FastAPI's `detail`, or plain text."""
    return ServerError(status=status, message=error_message(body), retry_after_s=parse_retry_after(retry_after))


def error_message(body: str) -> str:
    """The words of an error body, without HTML, in one line of at most 2,000 characters."""
    text = body.strip()
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        inner = value.get("error", value)
        if isinstance(inner, dict):
            parts = [inner.get(key) for key in ("message", "type", "detail", "param")]
            text = " ".join(part if isinstance(part, str) else json.dumps(part) for part in parts if part) or text
        elif isinstance(inner, str):
            text = inner
    if re.match(r"\s*<(?:!doctype|html)", text, re.IGNORECASE):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        text = f"an HTML page{': ' + title.group(1).strip() if title else ''}"
    return " ".join(text.split())[:2000]


def parse_retry_after(value: str | None) -> float | None:
    """Seconds from a Retry-After header: a number or an HTTP date. None where there is none, or it is rubbish."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            then = parsedate_to_datetime(value)
        except ValueError:
            return None
        if then.tzinfo is None:
            then = then.replace(tzinfo=UTC)
        seconds = (then - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if seconds == seconds and seconds != float("inf") else None


def shorten(text: str) -> str:
    """`text` in one line that fits an error message."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_SHOWN_CHARS else line[: MAX_SHOWN_CHARS - 1] + "…"
