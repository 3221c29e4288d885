"""What a model file says about how to use it: its chat template, and the `frog.*` keys of our own models."""

from __future__ import annotations

import json
from dataclasses import dataclass

from agent.errors import ModelFileError
from agent.model.gguf_header import GgufHeader
from agent.model.sampling import Sampling, read_sampling
from agent.types import JsonObject

_NO_LANGUAGE_MODELS = {
    "clip": "a projector for images",
    "mmproj": "a projector for images",
    "bert": "an embedding model",
}


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
    architecture = header.architecture
    if not architecture or header.number("block_count") < 1 or header.n_tensors == 0:
        what = _NO_LANGUAGE_MODELS.get(architecture, "no language model")
        raise ModelFileError(
            f"{header.path} holds {what} (architecture {architecture or 'not given'})",
            "Use a language model with a chat template, such as `frog-lsp model pull` gets.",
        )
    template = header.text("tokenizer.chat_template")
    if not template:
        raise ModelFileError(
            f"{header.path} has no chat template: it is a base model, not one to talk to",
            "Use an instruction-tuned model with tool use, such as `frog-lsp model pull` gets.",
        )
    return ModelFacts(
        template=template,
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
