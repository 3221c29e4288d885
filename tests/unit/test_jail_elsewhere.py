"""Where the modules of POSIX systems are missing, as on native Windows: backend D loads, the others say why not."""

from __future__ import annotations

import json
import subprocess
import sys

_BLOCKED = ("fcntl", "grp", "pwd", "resource", "termios")
_CODE = """
import asyncio, json, sys
sys.modules.update(dict.fromkeys({blocked!r}))
from agent.jail.backends import ALL, chosen
from agent.jail.session import open_session
from agent.jail.spec import JailSpec
from agent.tools.bundle import runner_bundle
from agent.tools.host import ToolHost
from agent.types import ToolCall

sys.platform = "win32"
outcomes = {{backend.name: backend.probe() for backend in ALL}}

async def read():
    async with await open_session(JailSpec(workspace=sys.argv[1]), runner_bundle()) as session:
        host = ToolHost(session.reader, session.writer)
        await host.start()
        answer = await host.execute(ToolCall(id="1", name="Read", arguments={{"file_path": "kept"}}))
        await host.close()
        return session.info.backend, answer.text

print(json.dumps({{
    "chosen": [backend.name for backend in chosen("auto", "win32")],
    "usable": [name for name, outcome in outcomes.items() if outcome.usable],
    "reasons": {{name: [outcome.reason, outcome.hint] for name, outcome in outcomes.items() if not outcome.usable}},
    "read": asyncio.run(read()),
}}))
"""


def test_backend_d_works_and_the_others_say_why_not(workspace, sealed, tmp_path):
    (workspace / "kept").write_text("kept\n")
    sealed(workspace)
    done = subprocess.run(
        [sys.executable, "-c", _CODE.format(blocked=_BLOCKED), str(workspace)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["chosen"] == said["usable"] == ["files"]
    assert said["reasons"].keys() == {"namespaces", "bwrap", "landlock"}
    for reason, hint in said["reasons"].values():
        assert reason
        assert "WSL2" in hint
    backend, text = said["read"]
    assert backend == "files"
    assert "kept" in text
