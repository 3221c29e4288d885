"""What an OpenAI-compatible server says of itself: which one it is, its models, its context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from agent.model.endpoint_errors import JINJA_OPTION, REASONING_PARSER_OPTION, TOOL_PARSER_OPTIONS
from agent.model.endpoint_http import EndpointClient

ServerKind = Literal["sglang", "vllm", "llama-server"]
LIST_TIMEOUT_S = 10.0
_OWNERS: dict[str, ServerKind] = {"sglang": "sglang", "vllm": "vllm", "llamacpp": "llama-server"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """`kind` and `context_tokens` are None where the server does not tell; `status` is that of its list of models
    (0: no answer in time)."""

    status: int
    models: tuple[str, ...] = ()
    kind: ServerKind | None = None
    context_tokens: int | None = None


async def discover(client: EndpointClient, name: str | None) -> ServerFacts:
    """Ask the server for its models. Raises ModelUnavailable where nothing answers, ModelQueryError on 401."""
    status, answer = await client.get_json(f"{client.base_url}/models", LIST_TIMEOUT_S)
    if status == 401:
        raise client.refused(status)
    rows = answer.get("data")
    entries = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    ids = tuple(row["id"] for row in entries if isinstance(row.get("id"), str))
    chosen: dict[str, Any] = next((row for row in entries if row.get("id") == name), entries[0] if entries else {})
    kind = _OWNERS.get(str(chosen.get("owned_by", "")).lower())
    context = chosen.get("max_model_len")
    if kind == "llama-server":
        _, props = await client.get_json(f"{client.base_url.removesuffix('/v1')}/props", LIST_TIMEOUT_S)
        settings = props.get("default_generation_settings")
        context = settings.get("n_ctx") if isinstance(settings, dict) else None
    usable = isinstance(context, int) and not isinstance(context, bool) and context > 0
    return ServerFacts(status=status, models=ids, kind=kind, context_tokens=context if usable else None)


def missing_tool_parser(kind: ServerKind | None) -> str:
    """The note for tool calls that came as text."""
    options = {
        "sglang": "`--tool-call-parser qwen3_coder`",
        "vllm": "`--enable-auto-tool-choice --tool-call-parser qwen3_coder`",
        "llama-server": JINJA_OPTION,
    }
    option = options[kind] if kind else f"{TOOL_PARSER_OPTIONS}, or {JINJA_OPTION} for llama-server,"
    return f"the endpoint sends tool calls as plain text; they were read here; start the server with {option}"


def missing_reasoning_parser(kind: ServerKind | None) -> str:
    """The note for reasoning that came inside the text."""
    options = {"sglang": REASONING_PARSER_OPTION, "vllm": REASONING_PARSER_OPTION, "llama-server": JINJA_OPTION}
    option = options[kind] if kind else f"{REASONING_PARSER_OPTION} (SGLang, vLLM) or {JINJA_OPTION} (llama-server)"
    return f"the endpoint sends reasoning inside its text; it was split here; start the server with {option}"
