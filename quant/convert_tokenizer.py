"""The tokenizer of a Qwen3.5 checkpoint as the metadata of GGUF; pure, but for `read_tokenizer`.

`tokenizer.json` is the form of Hugging Face's `tokenizers`. llama.cpp knows how a text is split before byte-pair
encoding by a name alone, so a tokenizer that splits in another way is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.errors import ModelFileError
from quant.convert_safetensors import GET_AGAIN, parse_object, read_object
from quant.gguf_writer import Kind, Value

SPLIT_PATTERNS = {
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+": "qwen35",
}
"""How a text is split, to llama.cpp's names of it."""

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # llama.cpp's types of tokens
_SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding", "mask": "mask"}
_ADDED_BY_ITSELF = ("bos", "eos", "sep")
_MOST_TEMPLATE_BYTES = 4 << 20
_OTHER = "Only the tokenizer of Qwen3.5 can be converted here."


def read_tokenizer(folder: Path, config: Mapping[str, Any], n_tokens: int) -> dict[str, Value]:
    """All keys below `tokenizer.`, for a vocabulary of `n_tokens`. Raises ModelFileError."""
    if not (folder / "tokenizer.json").is_file():
        raise ModelFileError(
            f"{folder} has no tokenizer.json",
            "Get it from where the checkpoint came from: weights alone are not enough.",
        )
    tokenizer = read_object(folder / "tokenizer.json")
    described = folder / "tokenizer_config.json"
    settings = read_object(described) if described.is_file() else {}
    keys = vocabulary_keys(tokenizer, settings, n_tokens)
    keys |= special_keys(tokenizer, settings, config)
    keys |= template_keys(_find_template(folder, settings))
    return {f"tokenizer.{key}": value for key, value in keys.items()}


def vocabulary_keys(tokenizer: Mapping[str, Any], settings: Mapping[str, Any], n_tokens: int) -> dict[str, Value]:
    """Tokens, their types, and merges. Numbers that no token has are filled up."""
    model = tokenizer.get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        raise ModelFileError("the tokenizer is no byte-pair encoding", _OTHER)
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not all(type(i) is int for i in vocabulary.values()):
        raise _damaged("its vocabulary")
    added = _added_tokens(tokenizer, settings)
    texts: list[str | None] = [None] * n_tokens
    for text, i in [*vocabulary.items(), *((token["content"], i) for i, token in added.items())]:
        if not 0 <= i < n_tokens:
            raise ModelFileError(f"token {i} ({text[:40]!r}) is beyond the {n_tokens:,} of config.json", GET_AGAIN)
        if texts[i] not in (None, text):
            raise _damaged(f"token {i} is {texts[i]!r} and {text!r}")
        texts[i] = text
    types = [
        _UNUSED if text is None else _type_of(text, added[i]) if i in added else _NORMAL for i, text in enumerate(texts)
    ]
    return {
        "ggml.model": Value.text("gpt2"),
        "ggml.pre": Value.text(_split_name(tokenizer)),
        "ggml.tokens": Value.list_of(
            Kind.TEXT, [f"[PAD{i}]" if text is None else text for i, text in enumerate(texts)]
        ),
        "ggml.token_type": Value.list_of(Kind.I32, types),
        "ggml.merges": Value.list_of(Kind.TEXT, list(_merges(model.get("merges")))),
    }


def special_keys(
    tokenizer: Mapping[str, Any], settings: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Value]:
    """Which tokens begin, end and fill up a text, and which are added without being asked for (none)."""
    numbers = {token["content"]: i for i, token in _added_tokens(tokenizer, {}).items()}
    nested = config.get("text_config")
    keys: dict[str, Value] = {}
    for name, ours in _SPECIAL.items():  # one of them is spelt so in GGUF
        text = settings.get(f"{name}_token")
        text = text.get("content") if isinstance(text, dict) else text
        number = numbers.get(text) if isinstance(text, str) else None
        if number is None:
            number = config.get(f"{name}_token_id")
            if number is None and isinstance(nested, dict):
                number = nested.get(f"{name}_token_id")
        if type(number) is int and 0 <= number < 1 << 31:
            keys[f"ggml.{ours}_token_id"] = Value.u32(number)
    added = dict.fromkeys(("bos", "eos"), False) if _has_post_processor(tokenizer) else {}
    for name in _ADDED_BY_ITSELF:
        given = settings.get(f"add_{name}_token")
        if isinstance(given, bool):
            added.setdefault(name, given)
    return keys | {f"ggml.add_{name}_token": Value.boolean(value) for name, value in added.items()}


def template_keys(template: Any) -> dict[str, Value]:
    """The chat template, or several with names. Raises ModelFileError where there is none."""
    if isinstance(template, str) and template.strip():
        return {"chat_template": Value.text(template)}
    named: dict[str, str] = {}
    for choice in template if isinstance(template, list) else ():
        name, text = (choice.get("name"), choice.get("template")) if isinstance(choice, dict) else (None, None)
        if isinstance(name, str) and isinstance(text, str) and name:
            named["".join(c if c.isascii() and c.isalnum() else "_" for c in name)] = text
    if "default" not in named:
        raise ModelFileError(
            "this checkpoint has no chat template: it is a base model, not one to talk to",
            "Convert the instruction-tuned model of its family; a base model cannot use tools.",
        )
    default = named.pop("default")
    keys = {f"chat_template.{name}": Value.text(text) for name, text in named.items()}
    if named:
        keys["chat_templates"] = Value.list_of(Kind.TEXT, sorted(named))
    return keys | {"chat_template": Value.text(default)}


def _find_template(folder: Path, settings: Mapping[str, Any]) -> Any:
    """That of tokenizer_config.json before those of files of their own, as llama.cpp's converter has it."""
    if "chat_template" in settings:
        return settings["chat_template"]
    alone = folder / "chat_template.jinja"
    if alone.is_file():
        text = _read_template(alone)
        others = sorted((folder / "additional_chat_templates").glob("*.jinja"))
        if not others:
            return text
        named = [{"name": path.stem, "template": _read_template(path)} for path in others]
        return [{"name": "default", "template": text}, *named]
    as_json = folder / "chat_template.json"
    return parse_object(as_json.read_bytes(), as_json.name).get("chat_template") if as_json.is_file() else None


def _read_template(path: Path) -> str:
    data = path.read_bytes()
    if len(data) > _MOST_TEMPLATE_BYTES:
        raise ModelFileError(f"{path.name} has {len(data):,} bytes, which is not plausible", GET_AGAIN)
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path.name} is no text in UTF-8", GET_AGAIN) from error


def _added_tokens(tokenizer: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """By number; what tokenizer.json does not have is taken from tokenizer_config.json."""
    found: dict[int, dict[str, Any]] = {}
    listed, more = tokenizer.get("added_tokens") or [], settings.get("added_tokens_decoder") or {}
    if not isinstance(listed, list) or not isinstance(more, dict):
        raise _damaged("its added tokens")
    pairs = [(token.get("id"), token) for token in listed if isinstance(token, dict)]
    pairs += [(int(i), token) for i, token in more.items() if i.isdecimal() and isinstance(token, dict)]
    for i, token in pairs:
        if type(i) is not int or not isinstance(token.get("content"), str):
            raise _damaged("its added tokens")
        found.setdefault(i, token)
    return found


def _type_of(text: str, token: Mapping[str, Any]) -> int:
    """Texts that look like control tokens are some, whatever they are marked as."""
    looks_special = text.startswith("<|") and text.endswith("|>")
    return _CONTROL if token.get("special") or looks_special else _USER_DEFINED


def _merges(merges: Any) -> Iterator[str]:
    """As texts with one space, in which a space of a part is written as byte-level BPE writes it."""
    if not isinstance(merges, list) or not merges:
        raise _damaged("its merges")
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise _damaged(f"the merge {str(merge)[:80]!r}")
        yield " ".join(part.replace(" ", "Ġ") for part in pair)


def _split_name(tokenizer: Mapping[str, Any]) -> str:
    """llama.cpp's name of the way in which a text is split."""
    for step in _steps(tokenizer.get("normalizer"), "normalizers"):
        if step.get("type") != "NFC":
            raise ModelFileError(f"the tokenizer changes a text before it reads it ({step.get('type')})", _OTHER)
    patterns: list[str] = []
    for step in _steps(tokenizer.get("pre_tokenizer"), "pretokenizers"):
        pattern = step.get("pattern")
        if step.get("type") == "Split" and isinstance(pattern, dict):
            patterns.append(str(pattern.get("Regex")))
        elif step.get("type") != "ByteLevel" or step.get("use_regex") or step.get("add_prefix_space"):
            raise ModelFileError(f"the tokenizer splits a text in an unknown way ({step.get('type')})", _OTHER)
    if len(patterns) != 1 or patterns[0] not in SPLIT_PATTERNS:
        raise ModelFileError(f"the tokenizer splits a text in an unknown way ({' / '.join(patterns)[:200]})", _OTHER)
    return SPLIT_PATTERNS[patterns[0]]


def _has_post_processor(tokenizer: Mapping[str, Any]) -> bool:
    """Whether what follows the encoding is named. Raises ModelFileError where it would add tokens."""
    steps = _steps(tokenizer.get("post_processor"), "processors")
    for step in steps:
        if step.get("type") != "ByteLevel":
            raise ModelFileError(f"the tokenizer adds tokens by itself ({step.get('type')})", _OTHER)
    return bool(steps)


def _steps(value: Any, key: str) -> list[dict[str, Any]]:
    """The steps of a part of the tokenizer: none, itself, or those of a sequence."""
    if value is None:
        return []
    if not isinstance(value, dict):
        raise _damaged("its steps")
    if value.get("type") != "Sequence":
        return [value]
    steps = value.get(key)
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise _damaged("its steps")
    return steps


def _damaged(what: str) -> ModelFileError:
    return ModelFileError(f"tokenizer.json is damaged: {what}", GET_AGAIN)
