"""Edit: one exact piece of a file by another; every other byte stays."""

from __future__ import annotations

from typing import Any

from agent.changes import textedit
from agent.tools.runner.places import Places
from agent.tools.runner.read import MAX_FILE_BYTES


def edit(places: Places, arguments: dict[str, Any]) -> str:
    """`file_path`, `old_string`, `new_string`, `replace_all`."""
    old, new = arguments["old_string"], arguments["new_string"]
    if not old:
        raise ValueError("old_string must be non-empty")
    place = places.resolve(arguments["file_path"])
    data = place.view.read(place.parts, MAX_FILE_BYTES)
    outcome = textedit.edit(data, old, new, bool(arguments.get("replace_all", False)))
    place.view.write(place.parts, outcome.data)
    plural = "" if outcome.n_replacements == 1 else "s"
    return f"Edited {place.shown} ({outcome.n_replacements} replacement{plural})."
