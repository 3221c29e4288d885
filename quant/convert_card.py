"""Where a checkpoint comes from and what its licence is, as the metadata of GGUF below `general.`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import ModelFileError
from quant.convert_safetensors import read_object
from quant.gguf_writer import Kind, Value

_MOST_CARD_BYTES = 4 << 20
_HEADER = re.compile(r"\A\s*---.*?^---$", re.DOTALL | re.MULTILINE)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LICENCES = {
    "apache-2.0": re.compile(r"\bapache[- ](?:license|licence)?,?\s*(?:version\s*)?2(?:\.0)?\b", re.IGNORECASE),
    "mit": re.compile(r"\bMIT\s+licen[cs]e\b", re.IGNORECASE),
}
"""How a text speaks of a licence, by the names that a card's header uses."""

_SAMPLING = {
    "sequence": ("sequence",),
    "top_k": ("top_k",),
    "top_p": ("top_p",),
    "min_p": ("min_p",),
    "xtc_probability": ("xtc_probability",),
    "xtc_threshold": ("xtc_threshold",),
    "temp": ("temperature",),
    "penalty_last_n": ("penalty_last_n",),
    "penalty_repeat": ("penalty_repeat", "repetition_penalty"),
    "mirostat": ("mirostat",),
    "mirostat_tau": ("mirostat_tau",),
    "mirostat_eta": ("mirostat_eta",),
}
"""Keys of GGUF below `general.sampling.`, to those of generation_config.json."""

_WHOLE = ("top_k", "penalty_last_n", "mirostat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The header of README.md, its text, and what is known of the download."""

    header: Mapping[str, Any]
    text: str
    folder: str
    revision: str | None

    @property
    def licence(self) -> str:
        """The licence in words, with what the text of the card says where that is another one."""
        given = ", ".join(_texts(self.header.get("license"))) or "not named"
        spoken_of = [name for name, pattern in _LICENCES.items() if pattern.search(self.text)]
        others = [name for name in spoken_of if name not in given.lower()]
        return f"{given} in the header of its card, {' and '.join(others)} in the text" if others else given


def read_card(folder: Path) -> Card:
    """Read README.md and what a download left. A card that cannot be read is none."""
    path = folder / "README.md"
    try:
        content = path.read_bytes()
    except OSError:
        content = b""
    if not content or len(content) > _MOST_CARD_BYTES:
        return Card(header={}, text="", folder=folder.resolve().name, revision=_revision(folder))
    text = _HEADER.sub("", content.decode("utf-8", "replace"), count=1)
    return Card(header=_header_of(path), text=text, folder=folder.resolve().name, revision=_revision(folder))


def general_keys(
    card: Card, config: Mapping[str, Any], generation: Mapping[str, Any], n_values: int
) -> dict[str, Value]:
    """The keys below `general.` and our own `frog.source.`; `n_values` is the number of all weights."""
    keys = {"general.type": Value.text("model"), **_sampling(generation)}
    origin = config.get("_name_or_path")
    origin = origin if isinstance(origin, str) and origin.count("/") <= 1 else ""
    named = _text(card.header, "name", "model_name")
    name = named or title(origin.rpartition("/")[2]) or title(card.folder)
    organization = _text(card.header, "organization", "model_organization") or title(origin.rpartition("/")[0])
    texts = {
        "name": name,
        "organization": organization,
        "author": _text(card.header, "author", "model_author", "model_creator"),
        "version": _text(card.header, "version", "model_version"),
        "description": _text(card.header, "description", "model_description"),
        "size_label": _text(card.header, "size_label", "model_size_label") or size_label(n_values),
        "license": ",".join(_texts(card.header.get("license"))),
        "license.name": _text(card.header, "license_name"),
        "license.link": _text(card.header, "license_link"),
        "source.url": _text(card.header, "url", "model_url"),
        "source.repo_url": _text(card.header, "repo_url", "model_repo_url"),
    }
    keys |= {f"general.{key}": Value.text(text) for key, text in texts.items() if text}
    lists = {
        "tags": [*_texts(card.header.get("tags")), *_texts(card.header.get("pipeline_tag"))],
        "languages": [*_texts(card.header.get("languages")), *_texts(card.header.get("language"))],
    }
    keys |= {f"general.{key}": Value.list_of(Kind.TEXT, items) for key, items in lists.items() if items}
    keys |= _base_models(_texts(card.header.get("base_model")))
    source = {"name": origin or card.folder, "revision": card.revision, "licence": card.licence}
    return keys | {f"frog.source.{key}": Value.text(text) for key, text in source.items() if text}


def title(name: str) -> str:
    """A name as a title: words of small letters begin with a large one, and hyphens become spaces."""
    words = name.strip().replace("-", " ").split()
    return " ".join(word.title() if word.islower() and not re.match(r"v?\d", word) else word for word in words)


def size_label(n_values: int) -> str:
    """The number of weights in two digits at least, such as 4.3B."""
    for limit, unit, suffix in ((1e12, 1e-12, "T"), (1e9, 1e-9, "B"), (1e6, 1e-6, "M"), (0, 1e-3, "K")):
        if n_values > limit or not limit:
            scaled = n_values * unit
            n_digits = len(str(round(scaled)).lstrip("0"))
            return f"{scaled:.{max(0, 2 - n_digits)}f}{suffix}"
    raise AssertionError


def read_generation(folder: Path) -> Mapping[str, Any]:
    """generation_config.json; nothing where it is not there or cannot be read."""
    try:
        return read_object(folder / "generation_config.json")
    except ModelFileError:
        return {}


def _sampling(generation: Mapping[str, Any]) -> dict[str, Value]:
    keys: dict[str, Value] = {}
    for ours, theirs in _SAMPLING.items():
        value = next((generation[name] for name in theirs if generation.get(name) is not None), None)
        if isinstance(value, str) and ours == "sequence":
            keys[f"general.sampling.{ours}"] = Value.text(value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1 << 31:
            keys[f"general.sampling.{ours}"] = Value.i32(int(value)) if ours in _WHOLE else Value.f32(float(value))
    return keys


def _base_models(names: list[str]) -> dict[str, Value]:
    """The models that this one was made from, where they are named as on the Hugging Face Hub."""
    if not names:
        return {}
    keys = {"general.base_model.count": Value.u32(len(names))}
    for i, name in enumerate(names):
        owner, _, last = name.rpartition("/")
        keys[f"general.base_model.{i}.name"] = Value.text(title(last))
        if owner:
            keys[f"general.base_model.{i}.organization"] = Value.text(title(owner))
            keys[f"general.base_model.{i}.repo_url"] = Value.text(f"https://huggingface.co/{name}")
    return keys


def _header_of(path: Path) -> Mapping[str, Any]:
    """The header of a card; a card that cannot be read has none."""
    from huggingface_hub import metadata_load

    try:
        return metadata_load(path) or {}
    except Exception:  # whatever a foreign card does to the parser
        return {}


def _revision(folder: Path) -> str | None:
    """The commit that was downloaded, as `hf download --local-dir` notes it, or as its cache names the folder."""
    if _COMMIT.fullmatch(folder.resolve().name):
        return folder.resolve().name
    try:
        note = (folder / ".cache/huggingface/download/config.json.metadata").read_text("utf-8", "replace")
    except OSError:
        return None
    first = note.partition("\n")[0].strip()
    return first if _COMMIT.fullmatch(first) else None


def _text(header: Mapping[str, Any], *keys: str) -> str:
    return next((value for key in keys if isinstance(value := header.get(key), str)), "")


def _texts(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]
