"""Names of runs: sorted by time, short enough to type, unique on one machine."""

from __future__ import annotations

import re
import secrets
import time

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def new_run_id() -> str:
    """A new name, such as `20260131-142501-3fa2c1`."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def is_run_id(text: str) -> bool:
    """Whether a text can be the name of a run, and so part of a file's name."""
    return _RUN_ID.fullmatch(text) is not None
