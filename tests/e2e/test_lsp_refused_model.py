"""A model of the settings that cannot serve: the editor is told why, and no worker is started."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.e2e.lsp_client import to_uri
from tests.e2e.lsp_session import session
from tests.gguf_files import make_gguf

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]


@pytest.mark.slow
async def test_the_editor_is_told_why(tmp_path: Path, workspace: Path) -> None:
    (workspace / "a.py").write_text("x = 1\n")
    base = make_gguf(tmp_path / "LFM2.5-2.6B-Base.gguf", architecture="lfm2", template=None)
    options = {"model": {"path": str(base)}}
    async with session(tmp_path, workspace, options=options) as client:
        run_id = (await client.run("frog.fix", {"uri": to_uri(workspace / "a.py"), "issue": "x shall be 2"}))["runId"]
        row = await client.until_over(run_id)
        assert (row["state"], row["exitReason"]) == ("failed", "model_unavailable")
        shown = str([*client.notifications, *client.requests])
        assert "it is a base model" in shown and base.name in shown
        names = [" ".join(child.cmdline()) for child in psutil.Process(client.process.pid).children(recursive=True)]
        assert not [name for name in names if "worker" in name]
