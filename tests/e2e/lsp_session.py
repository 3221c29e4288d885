"""A server with folders of its own, an endpoint that plays a script, and a workspace: what the LSP tests share."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.lsp_client import LspClient
from tests.openai_server import Item, OpenAiServer

ISSUE = "add is wrong"


def own_env(home: Path) -> dict[str, str]:
    """The environment of a server that reads and writes nothing of the user's."""
    home.mkdir(parents=True, exist_ok=True)
    return {
        "HOME": str(home),
        **{f"XDG_{name}_HOME": str(home / name.lower()) for name in ("STATE", "CONFIG", "CACHE", "DATA")},
    }


@contextlib.asynccontextmanager
async def session(
    tmp_path: Path,
    workspace: Path,
    script: Sequence[Item] = (),
    *,
    capabilities: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    ask: bool = False,
    client: LspClient | None = None,
    env: dict[str, str] | None = None,
    **more: Any,
) -> AsyncIterator[LspClient]:
    """A client whose server is initialized on `workspace`, and whose model plays `script`.

    `more` goes into the parameters of `initialize`.
    """
    client = client or LspClient()
    client.env = own_env(tmp_path / "home") | (env or {})
    with OpenAiServer(list(script)) as server:
        model = {"kind": "endpoint", "baseUrl": server.base_url, "name": "scripted"}
        everything = {"model": model, "review": {"ask": ask}, **(options or {})}
        async with client.started():
            await client.initialize(workspace, capabilities=capabilities, options=everything, **more)
            yield client
