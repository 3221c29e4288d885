"""The models that can be got by name: a data file, and a file of the user's own in the config folder.

A file that no catalog has is named `OWNER/REPOSITORY/FILE.gguf`, with `@REVISION` behind it where one is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.config import config_dir, load_json_object
from agent.errors import UsageError

_BUNDLED = Path(__file__).with_name("catalog.json")
_DIRECT = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)/(?P<file>[^@]+\.gguf)(?:@(?P<revision>[\w./-]+))?", re.IGNORECASE
)
UNKNOWN_LICENCE = "not known here: see the page of the repository"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """One file on the hub. `size_bytes` is about right unless `size_is_exact` (0: not known); `sha256` may be unknown.

    `revision` is a branch, a tag or a commit; a branch is pinned to its commit at the first download. For `model plan`
    before a download: `matrix_bytes` of all matrices but the embedding of tokens by the type of tensor ("q4_k"), the
    type of the embedding, and `serves`, false for a file that other builds are made of.
    """

    name: str
    repository: str
    file: str
    revision: str = "main"
    quantization: str = ""
    size_bytes: int = 0
    size_is_exact: bool = False
    sha256: str | None = None
    source_model: str = ""
    licence: str = UNKNOWN_LICENCE
    use: str = ""
    default: bool = False
    serves: bool = True
    matrix_bytes: Mapping[str, int] = field(default_factory=dict, hash=False)
    embedding_type: str = ""


def load_catalog() -> list[CatalogEntry]:
    """The bundled entries, then the user's own; one of the user's replaces a bundled one of the same name.

    Raises UsageError where a file cannot be read.
    """
    entries = {entry.name: entry for entry in _read_entries(_BUNDLED)}
    entries.update({entry.name: entry for entry in _read_entries(user_catalog_path())})
    return list(entries.values())


def load_shapes() -> dict[str, Any]:
    """The metadata of the models that the catalogs have builds of, by `source_model`; for `model plan`.

    Raises UsageError where a file cannot be read.
    """
    found: dict[str, Any] = {}
    for path in (_BUNDLED, user_catalog_path()):
        shapes = load_json_object(path).get("shapes", {})
        if not isinstance(shapes, dict):
            raise UsageError(f"{path}: `shapes` is not an object", f"Repair or remove {path}.")
        found |= shapes
    return found


def user_catalog_path() -> Path:
    """The user's own catalog, in the form of the bundled `catalog.json`. It may not exist."""
    return config_dir() / "catalog.json"


def find_entry(name: str, catalog: Iterable[CatalogEntry]) -> CatalogEntry:
    """The entry for a name, for its quantization alone (`q8_0`), or for `OWNER/REPOSITORY/FILE.gguf`.

    The case does not count. Raises UsageError that lists the names.
    """
    entries = list(catalog)
    wanted = name.strip().lower().removesuffix(".gguf")
    for entry in entries:
        if wanted == entry.name.lower():
            return entry
    matches = [entry for entry in entries if wanted and wanted == entry.quantization.lower()]
    if len(matches) == 1:
        return matches[0]
    if direct := _DIRECT.fullmatch(name.strip()):
        file = direct["file"]
        name_of_file = Path(file).name[: -len(".gguf")]
        taken = {entry.name.lower() for entry in entries}
        owner = direct["repository"].partition("/")[0]
        return CatalogEntry(
            name=f"{owner}-{name_of_file}" if name_of_file.lower() in taken else name_of_file,
            repository=direct["repository"],
            file=file,
            revision=direct["revision"] or "main",
        )
    raise UsageError(
        f"no model in the catalog is called {name}",
        "Known: " + ", ".join(entry.name for entry in entries) + "; or name a file as OWNER/REPOSITORY/FILE.gguf.",
    )


_KINDS: dict[str, type] = {
    "size_bytes": int,
    "size_is_exact": bool,
    "default": bool,
    "serves": bool,
    "matrix_bytes": dict,
}


def _read_entries(path: Path) -> list[CatalogEntry]:
    rows = load_json_object(path).get("models", [])
    if not isinstance(rows, list):
        raise UsageError(f"{path}: `models` is not a list", f"Repair or remove {path}.")
    return [_read_entry(path, row) for row in rows]


def _read_entry(path: Path, row: Any) -> CatalogEntry:
    try:
        entry = CatalogEntry(**row)
        for key, value in row.items():
            kind = _KINDS.get(key, str)
            if not isinstance(value, kind) and not (key == "sha256" and value is None):
                raise TypeError(f"`{key}` has the wrong type")
    except TypeError as error:
        raise UsageError(f"{path}: an entry is not right: {error}", f"Repair or remove {path}.") from error
    if not all(isinstance(n_bytes, int) and n_bytes >= 0 for n_bytes in entry.matrix_bytes.values()):
        raise UsageError(f"{path}: `matrix_bytes` of {entry.name} are not numbers of bytes", f"Repair {path}.")
    if not re.fullmatch(r"[\w][\w.+-]*", entry.name) or ".." in entry.file.split("/"):
        raise UsageError(f"{path}: {entry.name!r} is no name of a model", "Names have letters, digits, `.`, `-`, `_`.")
    return entry
