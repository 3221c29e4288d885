"""The runner is the launcher's own child, never executed anew: it must be as bare as one that would be."""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.jail.session import open_session
from agent.jail.spec import JailSpec
from agent.tools.bundle import runner_bundle
from tests.jail.jailed import REPOSITORY
from tests.jail.test_jail_session import zipapp

# Says what it is before it has read anything.
SELF_PORTRAIT = """
import os, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print({
    "argv": sys.argv,
    "path": sys.path,
    "name": __name__,
    "foreign modules": sorted(name for name in sys.modules if name.partition(".")[0] == "agent"),
    "environment": dict(os.environ),
    "descriptors": [n for n in range(3, 1024) if os.path.exists(f"/proc/self/fd/{n}")],
    "capabilities": {name: status[name].strip() for name in status if name.startswith("Cap")},
    "seccomp": status["Seccomp"].strip(),
    "no new privileges": status["NoNewPrivs"].strip(),
    "session": os.getsid(0) == os.getpid(),
    "cwd": os.getcwd(),
    "root": sorted(os.listdir("/")),
    "mask": os.umask(0o22),
}, flush=True)
if sys.stdin.readline() == "raise\\n":
    raise ZeroDivisionError("on purpose")
sys.exit(7)
"""


async def _portrait(workspace: Path, word: bytes) -> tuple[dict[str, object], int | None, str]:
    """What the runner says of itself, how it ended as the launcher told, and its stderr."""
    session = await open_session(JailSpec(workspace=str(workspace)), zipapp(SELF_PORTRAIT), backend="namespaces")
    line = await asyncio.wait_for(session.reader.readline(), 20)
    session.writer.write(word)
    assert await asyncio.wait_for(session.reader.read(), 20) == b""
    jailed = session._jailed
    await asyncio.wait_for(jailed.finished(), 20)  # type: ignore[attr-defined]
    status = jailed.wait_status  # type: ignore[attr-defined]
    await session.close()
    return ast.literal_eval(line.decode()), status, session.stderr_tail()


@pytest.mark.jail
@pytest.mark.usefixtures("require_jail")
async def test_the_runner_has_nothing_of_the_launcher(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "of the server")
    found, status, _ = await _portrait(workspace, b"\n")
    assert status is not None
    assert os.waitstatus_to_exitcode(status) == 7
    assert found["argv"] == ["/run/frog/runner.pyz", "--root", str(workspace), "--scratch", "/tmp"]
    assert isinstance(found["path"], list)
    assert found["path"][0] == "/run/frog/runner.pyz"
    assert str(REPOSITORY) not in found["path"]
    assert (found["name"], found["foreign modules"], found["descriptors"]) == ("__main__", [], [])
    assert isinstance(found["environment"], dict)
    assert not {"SECRET", "FROG_LSP_CANARY"} & set(found["environment"])
    assert {"HOME", "PATH", "PWD", "GIT_TERMINAL_PROMPT"} <= set(found["environment"])
    assert isinstance(found["capabilities"], dict)
    assert len(found["capabilities"]) == 5
    assert {int(value, 16) for value in found["capabilities"].values()} == {0}
    assert (found["seccomp"], found["no new privileges"], found["session"]) == ("2", "1", True)
    assert found["cwd"] == str(workspace)
    assert isinstance(found["root"], list)
    assert not set(found["root"]) & {"boot", "media", "mnt", "srv", "sys"} - {workspace.parts[1]}
    mask = os.umask(0)
    os.umask(mask)
    assert found["mask"] == mask


@pytest.mark.jail
@pytest.mark.usefixtures("require_jail")
async def test_an_error_of_the_runner_is_told_as_by_python(workspace: Path) -> None:
    _, status, stderr = await _portrait(workspace, b"raise\n")
    assert status is not None
    assert os.waitstatus_to_exitcode(status) == 1
    assert "ZeroDivisionError: on purpose" in stderr
    assert "Traceback" in stderr


def test_what_the_runner_imports_is_loaded_beforehand(tmp_path: Path) -> None:
    (tmp_path / "runner.pyz").write_bytes(runner_bundle())
    code = (
        f"import sys; sys.path.append({str(REPOSITORY)!r})\n"
        "import agent.jail.launcher.init\n"
        "from agent.jail.launcher.runner import load_standard_modules\n"
        "load_standard_modules(); known = set(sys.modules)\n"
        "[sys.modules.pop(n) for n in known if n.startswith('agent')]\n"
        f"sys.path[:] = [{str(tmp_path / 'runner.pyz')!r}, *sys.path[:-1]]\n"
        "import agent.tools.runner.__main__\n"
        "print(sorted(n for n in set(sys.modules) - known if not n.startswith('agent')))"
    )
    base = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run([base, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout == "[]\n", done
