"""A server with folders of its own, an endpoint that plays a script, and a workspace: what the LSP tests share."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.lsp_client import LspClient
from tests.openai_server import Item, OpenAiServer
from tests.support import workspace_hash

ISSUE = "add is wrong"


def own_env(home: Path) -> dict[str, str]:
    """The environment of a server that reads and writes nothing of the user's."""
    home.mkdir(parents=True, exist_ok=True)
    return {
        "HOME": str(home),
        **{f"XDG_{name}_HOME": str(home / name.lower()) for name in ("STATE", "CONFIG", "CACHE", "DATA")},
    }


@contextlib.contextmanager
def _sealed_until_applied(client: LspClient, workspace: Path) -> Iterator[None]:
    """Bytes, modes, owners and times of the workspace stay as they are up to the client's first edit, or the end."""
    before = workspace_hash(workspace, times=True)
    seen: list[str] = []
    apply_edit = client.handlers["workspace/applyEdit"]

    def look_and_apply(params: Any) -> Any:
        if not seen:
            seen.append(workspace_hash(workspace, times=True))
        return apply_edit(params)

    client.handlers["workspace/applyEdit"] = look_and_apply
    yield
    if client.handlers["workspace/applyEdit"] is look_and_apply:  # else the test applies in its own way
        after = seen[0] if seen else workspace_hash(workspace, times=True)
        assert after == before, f"the real workspace {workspace} changed"


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
    edits_workspace: bool = False,
    **more: Any,
) -> AsyncIterator[LspClient]:
    """A client whose server is initialized on `workspace`, and whose model plays `script`.

    Until the client applies an edit nobody may touch the workspace, unless the test itself does (`edits_workspace`).
    `more` goes into the parameters of `initialize`.
    """
    client = client or LspClient()
    client.env = own_env(tmp_path / "home") | (env or {})
    with OpenAiServer(list(script)) as server:
        model = {"kind": "endpoint", "baseUrl": server.base_url, "name": "scripted"}
        everything = {"model": model, "review": {"ask": ask}, **(options or {})}
        with contextlib.nullcontext() if edits_workspace else _sealed_until_applied(client, workspace):
            async with client.started():
                await client.initialize(workspace, capabilities=capabilities, options=everything, **more)
                yield client
