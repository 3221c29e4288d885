"""What a model file says about how to use it: its chat template, and the `frog.*` keys of our own models."""

from __future__ import annotations

import json
from dataclasses import dataclass

from agent.errors import ModelFileError
from agent.model.admission import check_header
from agent.model.gguf_header import GgufHeader
from agent.model.sampling import Sampling, read_sampling
from agent.types import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """`system_prompt` and `tools` are those that a model was trained with, None where any will do."""

    template: str
    is_demonstration: bool
    system_prompt: str | None
    tools: tuple[JsonObject, ...] | None
    sampling: Sampling


def read_facts(header: GgufHeader, *, is_bundled: bool = False) -> ModelFacts:
    """Read them from the metadata. Raises ModelFileError for what is no language model to talk to."""
    check_header(header)
    return ModelFacts(
        template=header.text("tokenizer.chat_template") or "",
        is_demonstration=is_bundled or header.text("frog.kind") == "demonstration",
        system_prompt=header.text("frog.system_prompt"),
        tools=_read_tools(header),
        sampling=read_sampling(header.text("frog.sampling")),
    )


def _read_tools(header: GgufHeader) -> tuple[JsonObject, ...] | None:
    text = header.text("frog.tools")
    if text is None:
        return None
    try:
        tools = json.loads(text)
    except ValueError as error:
        raise ModelFileError(f"frog.tools of {header.path} is not JSON: {error}", "Get the model again.") from error
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ModelFileError(f"frog.tools of {header.path} is no list of schemas", "Get the model again.")
    return tuple(tools)
