"""Which model files can serve an agent: what the header rules out, in a sentence, and the trial of the template.

Everything that takes a model in asks here: `pull`, `use`, `verify`, `plan`, `doctor`, and a run before it starts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from agent.errors import ModelFileError
from agent.model.gguf_header import GgufHeader, read_header
from agent.model.template_trial import try_template

_OTHER_MODEL = "Use a language model with tools in its chat template, such as `frog-lsp model pull` gets."
_PARTNER = "Give the language model that it belongs to, not this file."
_WHOLE = "Get the model in one file, or join its parts with `llama-gguf-split --merge`."
_INSTRUCT = "Use an instruction-tuned model with tool use, such as `frog-lsp model pull` gets."

_EMBEDDING = "an embedding model: it gives numbers for a text, and writes none"
_DRAFTER = "a model that drafts tokens for another one"
_PROJECTOR = "a projector for images (mmproj): the part of a model that sees"
_SPEECH = "a model for speech"

# Architectures of llama.cpp (src/llama-arch.cpp) that are no language models to talk to.
_ARCHITECTURES = {
    **dict.fromkeys(("clip", "mmproj"), _PROJECTOR),
    **dict.fromkeys(("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "eurobert"), _EMBEDDING),
    **dict.fromkeys(("jina-bert-v2", "jina-bert-v3", "gemma-embedding", "llama-embed"), _EMBEDDING),
    **dict.fromkeys(("t5", "t5encoder"), "an encoder: it translates a text, and answers none"),
    **dict.fromkeys(("eagle3", "dflash", "gemma4-assistant"), _DRAFTER),
    **dict.fromkeys(("wavtokenizer-dec", "qwen3tts", "pockettts"), _SPEECH),
}
_TYPES = {  # `general.type`
    "adapter": ("an adapter (LoRA): a change to a model, without the model", _PARTNER),
    "imatrix": ("an importance matrix: data for quantizing, without a model", "Give it to `frog-lsp model quantize`."),
    "mmproj": (_PROJECTOR, _PARTNER),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a file cannot serve, to be read behind its path, and what to do."""

    reason: str
    hint: str


def refuse(header: GgufHeader) -> Refusal | None:
    """What the header alone rules out; None where nothing is wrong with it. Pure."""
    kind = (header.text("general.type") or "").lower()
    architecture = header.architecture
    n_parts, part = (header.metadata.get(f"split.{key}", 0) for key in ("count", "no"))
    if kind in _TYPES:
        what, hint = _TYPES[kind]
        return Refusal(reason=f"is {what}", hint=hint)
    if header.text("adapter.type"):
        return Refusal(reason=f"is {_TYPES['adapter'][0]}", hint=_PARTNER)
    if isinstance(n_parts, int) and isinstance(part, int) and n_parts > 1:
        return Refusal(reason=f"is part {part + 1} of {n_parts} of a model", hint=_WHOLE)
    if not architecture:
        return Refusal(reason="is no language model: it names no architecture", hint=_OTHER_MODEL)
    named = f"(architecture {architecture})"
    if architecture in _ARCHITECTURES:
        what = _ARCHITECTURES[architecture]
        hint = _PARTNER if what in (_PROJECTOR, _DRAFTER) else _OTHER_MODEL
        return Refusal(reason=f"is {what} {named}", hint=hint)
    if header.number("pooling_type") or header.metadata.get(f"{architecture}.attention.causal") is False:
        return Refusal(reason=f"is {_EMBEDDING} {named}", hint=_OTHER_MODEL)
    if header.n_tensors == 0:
        return Refusal(reason="holds a vocabulary and no weights", hint=_OTHER_MODEL)
    if header.number("block_count") < 1:
        return Refusal(reason=f"is no language model: it has no layers {named}", hint=_OTHER_MODEL)
    if (header.text("tokenizer.ggml.model") or "none") in ("none", "no_vocab"):
        return Refusal(reason="has no vocabulary", hint=_OTHER_MODEL)
    return _refuse_template(header.text("tokenizer.chat_template"))


def _refuse_template(template: str | None) -> Refusal | None:
    if not template or not template.strip():
        return Refusal(reason="has no chat template: it is a base model, not one to talk to", hint=_INSTRUCT)
    if "tools" not in template:
        return Refusal(
            reason="has a chat template that knows no tools: it is a base model, or one for chat alone",
            hint=_INSTRUCT,
        )
    return None


def check_header(header: GgufHeader) -> None:
    """Raises ModelFileError with what the header rules out."""
    if (refusal := refuse(header)) is not None:
        raise ModelFileError(f"{header.path} {refusal.reason}", refusal.hint)


def admit(path: str | os.PathLike[str]) -> GgufHeader:
    """The header of a file that can serve. Takes some tenths of a second: the chat template is tried.

    Raises ModelFileError: what `read_header` says, what the header rules out, a template that is broken or hostile,
    or that calls tools in another way than Qwen3.5's.
    """
    header = read_header(path)
    check_header(header)
    try:
        try_template(header.text("tokenizer.chat_template"))
    except ModelFileError as error:
        raise ModelFileError(f"{header.path}: {error.message}", error.hint) from error
    return header
