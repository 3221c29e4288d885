from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile

from agent.tools.bundle import runner_bundle
from tests.runner_process import bundle_path


def test_the_bundle_is_the_same_every_time_and_holds_what_is_needed_alone():
    first = runner_bundle()
    runner_bundle.cache_clear()
    assert runner_bundle() == first
    names = {name.removesuffix("c") for name in zipfile.ZipFile(io.BytesIO(first)).namelist()}
    outside_runner = {name for name in names if not name.startswith("agent/tools/runner/")}
    packages = {f"agent{package}/__init__.py" for package in ("", "/ipc", "/changes", "/tools")}
    shipped = {"agent/ipc/framing.py", "agent/changes/textfile.py", "agent/changes/textedit.py", "__main__.py"}
    assert outside_runner == packages | shipped
    assert os.path.dirname(sys.prefix).encode() not in first


def test_everything_imported_is_standard_or_shipped():
    code = (
        f"import sys, runpy; sys.path.insert(0, {bundle_path()!r});"
        "import agent.tools.runner.__main__;"
        "import difflib;"
        "bad = [n for n, m in sys.modules.items() if n.split('.')[0] not in sys.stdlib_module_names"
        " and n != '__main__' and not n.startswith('agent') and n != 'sitecustomize'];"
        "outside = [n for n, m in sys.modules.items() if n.startswith('agent')"
        f" and not (m.__file__ or '').startswith({bundle_path()!r})];"
        "print(bad, outside)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"


def test_wrong_arguments_end_it_with_two():
    done = subprocess.run(
        [sys.executable, "-I", "-S", bundle_path(), "--nonsense"], capture_output=True, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stdout) == (2, b"")


def test_garbage_ends_it_with_two_and_the_end_of_the_stream_with_none(tmp_path):
    command = [sys.executable, "-I", "-S", bundle_path(), "--root", str(tmp_path)]
    garbage = subprocess.run(command, input=b"garbage", capture_output=True)
    assert (garbage.returncode, garbage.stdout) == (2, b"")
    assert subprocess.run(command, input=b"", capture_output=True).returncode == 0
