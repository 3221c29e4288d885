"""The log: to stderr, where every editor shows it. Contents of files and messages never go there."""

from __future__ import annotations

import logging
import sys

_LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}


def start_log() -> None:
    """Log to stderr from now on."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    for name in ("pygls", "httpx", "httpcore", "asyncio"):  # pygls logs whole messages, so the user's text
        logging.getLogger(name).setLevel(logging.WARNING)


def set_level(name: str) -> None:
    """Take the level of the settings."""
    logging.getLogger().setLevel(_LEVELS.get(name, logging.INFO))
