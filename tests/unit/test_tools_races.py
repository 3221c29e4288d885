"""Another process swaps a folder, and a file, for a link that leaves, as fast as it can, while the tools run."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import pytest

from tests.runner_process import KINDS, FileTools, fill

SWAPPER = """
import ctypes, os, sys
os.chdir(sys.argv[1])
exchange = ctypes.CDLL(None).renameat2
print("ready", flush=True)
while True:
    for name in (b"d", b"f"):
        if exchange(-100, name, -100, b"other_" + name, 2):
            sys.exit(1)
"""

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="exchanging two names is a call of Linux"),
    pytest.mark.slow,
]


@pytest.fixture(params=KINDS)
def run(request, tmp_path):
    root, upper, outside = (tmp_path / name for name in ("workspace", "upper", "outside"))
    for folder in (root, upper, outside):
        folder.mkdir()
    fill(outside, {"f": b"secret\n"})
    # what is swapped is what the tools write to: the upper folder where there is one
    swapped = upper if request.param == "upper" else root
    fill(swapped, {"d/f": b"inside\n", "f": b"inside\n"})
    fill(swapped, {"other_d": str(outside), "other_f": str(outside / "f")})
    tools = FileTools(request.param, root, upper)
    tools.swapped = swapped
    swapper = subprocess.Popen([sys.executable, "-c", SWAPPER, str(swapped)], stdout=subprocess.PIPE)
    try:
        assert swapper.stdout.readline() == b"ready\n"
        yield tools
        assert swapper.poll() is None
    finally:
        swapper.kill()
        swapper.wait()
        swapper.stdout.close()
        tools.close()


def test_no_race_leads_outside(run, tmp_path):
    outside = tmp_path / "outside"
    seen, read_naively = set(), set()
    began = time.monotonic()
    # the control: whoever opens the path plainly does read the secret
    while time.monotonic() < began + 2 or (b"secret\n" not in read_naively and time.monotonic() < began + 20):
        with contextlib.suppress(OSError):
            read_naively.add((run.swapped / "d" / "f").read_bytes())
        for path in ("d/f", "f"):
            seen.add(run("Read", file_path=path).partition(":")[0].partition("\n")[2])
            run("Write", file_path=path, content="inside\n")
            run("Edit", file_path=path, old_string="secret", new_string="changed")
        seen.add(run("Glob", pattern="d/*"))
        run("Write", file_path="d/made", content="x")
    assert b"secret\n" in read_naively
    assert not any("secret" in text for text in seen)
    assert any("inside" in text for text in seen)  # it was there at times
    assert [entry.name for entry in outside.iterdir()] == ["f"]
    assert (outside / "f").read_bytes() == b"secret\n"
