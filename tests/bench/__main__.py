"""`make bench`: measure every area, print one table, write the rows as JSON.

    python -m tests.bench build/bench.json [AREA…]

Exit code 1 when a target was missed.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tests.bench.table import Row, render, write_json

AREAS = (
    *("server", "loaded", "edits", "jail", "engine", "rivals", "drafts", "turns"),
    *("agent", "weights", "convert", "quantize"),
)


def main(arguments: list[str]) -> int:
    """Run the areas named, else all."""
    out = Path(arguments[0] if arguments else "build/bench.json")
    rows: list[Row] = []
    for area in arguments[1:] or AREAS:
        print(f"measuring {area} …", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"tests.bench.{area}").rows()
    write_json(rows, out)
    print(render(rows))
    return 1 if any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
