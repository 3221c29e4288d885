"""Projects in Python: their test runner, linters, environments, and interpreters that lie in a hidden home."""

# ruff: noqa: E501 - commands and small programs, better read in one line

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import skip_or_fail
from tests.jail.jailed import jail

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("require_jail")]

TESTS = """
import http.server, multiprocessing, threading, urllib.request
import calc

def test_add(tmp_path):
    (tmp_path / "f").write_text("x")
    assert calc.add(1, 2) == 3

def test_server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert urllib.request.urlopen(f"http://localhost:{server.server_port}/").status == 200
        server.shutdown()

def test_pool():
    with multiprocessing.Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
"""


@pytest.fixture
def project(workspace: Path) -> Path:
    """A module with tests, for the interpreter that runs these tests (it has pytest, ruff and mypy)."""
    (workspace / "calc.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
    (workspace / "test_calc.py").write_text(TESTS)
    return workspace


@pytest.mark.parametrize(
    "command",
    [
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python -m pytest -q -p no:cacheprovider",
        pytest.param("PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python -m pytest -q -p xdist -n 2", marks=pytest.mark.slow),
        "ruff check calc.py && ruff format --diff calc.py",
        "mypy --strict calc.py",
    ],
)
def test_tools_of_the_environment_of_the_project(project: Path, command: str) -> None:
    done = jail(project, "bash", "-lc", command, python=sys.executable)
    assert done.code == 0, done


def test_an_editable_install_runs_what_was_edited_in_the_view(workspace: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(workspace / ".venv")], check=True)
    (workspace / "src").mkdir()
    (workspace / "src" / "frogtool.py").write_text("def main():\n    print('as it was')\n")
    site = next((workspace / ".venv" / "lib").glob("python3*")) / "site-packages"
    (site / "__editable__.frogtool.pth").write_text(f"{workspace}/src\n")
    script = workspace / ".venv" / "bin" / "frogtool"
    script.write_text(f"#!{workspace}/.venv/bin/python\nfrom frogtool import main\nmain()\n")
    script.chmod(0o755)
    change = "frogtool; sed -i 's/as it was/as it is edited/' src/frogtool.py; frogtool; python -c 'import frogtool; print(frogtool.__file__)'"
    done = jail(workspace, "bash", "-lc", change)
    assert done.out.splitlines() == ["as it was", "as it is edited", f"{workspace}/src/frogtool.py"], done
    assert subprocess.run([script], capture_output=True, text=True).stdout == "as it was\n"


@pytest.mark.slow
def test_a_virtual_environment_with_pip_can_be_made(workspace: Path) -> None:
    done = jail(workspace, "bash", "-lc", "python3 -m venv made && made/bin/python -m pip --version")
    assert done.code == 0, done
    assert done.out.startswith("pip ")


@dataclass(frozen=True)
class Source:
    """An interpreter to copy: `name` is `python3.N`, `library` its folder of modules."""

    executable: str
    name: str
    library: str


NOT_NEEDED = (
    "test",
    "idlelib",
    "ensurepip",
    "tkinter",
    "lib2to3",
    "*-packages",
    "config-*",
    "__pycache__",
    "pydoc_data",
)


def _movable_python() -> Source:
    """One whose program holds the whole interpreter: a shared library would be looked for where it was built."""
    code = (
        "import os, sys, sysconfig as s; print(os.path.realpath(sys.executable)); print('python%d.%d' % sys.version_info[:2])\n"
        "print(s.get_path('stdlib')); print(s.get_config_var('Py_ENABLE_SHARED'), s.get_config_var('LDLIBRARY'))"
    )
    for candidate in (os.path.realpath(getattr(sys, "_base_executable", sys.executable)), "/usr/bin/python3"):
        found = subprocess.run([candidate, "-I", "-c", code], capture_output=True, text=True).stdout.splitlines()
        if (
            len(found) == 4
            and "libpython" not in subprocess.run(["ldd", found[0]], capture_output=True, text=True).stdout
        ):
            return Source(*found[:3])
    skip_or_fail("no Python of this machine can be moved: its library is shared")
    raise AssertionError


@pytest.fixture(scope="module")
def installation() -> Iterator[Path]:
    """A Python installation with a prefix of its own, as small as it runs."""
    source = _movable_python()
    home = Path(tempfile.mkdtemp(prefix="frog-python-", dir="/var/tmp"))
    prefix = home / "prefix"
    (prefix / "bin").mkdir(parents=True)
    shutil.copy2(source.executable, prefix / "bin" / source.name)
    left_out = shutil.ignore_patterns(*NOT_NEEDED)
    shutil.copytree(source.library, prefix / "lib" / source.name, ignore=left_out)
    for name in ("python3", "python"):
        (prefix / "bin" / name).symlink_to(source.name)
    yield prefix
    shutil.rmtree(home)


LAYOUTS = {
    "pyenv": (".pyenv/versions/3.11.9", None),
    "uv": (".local/share/uv/python/cpython-3.11.9-linux-x86_64-gnu", ".local/share/uv/python/cpython-3.11-linux-x86_64-gnu"),
    "conda": ("miniconda3/envs/project", None),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("by", ["environment", "setting"])
def test_an_interpreter_in_a_hidden_home(
    installation: Path, monkeypatch: pytest.MonkeyPatch, layout: str, by: str
) -> None:
    """Its prefix is shown, the rest of the home is not."""
    home = installation.parent
    place, alias = LAYOUTS[layout]
    (home / place).parent.mkdir(parents=True, exist_ok=True)
    installation.rename(home / place)
    project = home / "project"
    project.mkdir()
    try:
        (home / ".netrc").write_text("secret-of-the-home")
        if alias:
            (home / alias).symlink_to(home / place)
        monkeypatch.setenv("HOME", str(home))
        python = home / (alias or place) / "bin" / "python3"
        if by == "environment":
            subprocess.run([python, "-m", "venv", "--without-pip", str(project / ".venv")], check=True)
        code = "import sys, json; print(sys.prefix, sys.base_prefix)"
        script = f'python -c "{code}"; ls -A {home}; cat {home}/.netrc'
        done = jail(project, "bash", "-lc", script, python=None if by == "environment" else str(python))
        first, *others = done.out.splitlines()
        prefix, base = first.split(" ")
        assert os.path.realpath(base) == str(home / place)
        assert prefix == (str(project / ".venv") if by == "environment" else base)
        assert set(others) == {"project", place.partition("/")[0]}, done
        assert "secret-of-the-home" not in done.out
    finally:
        shutil.rmtree(project)
        (home / place).rename(installation)
        if alias:
            (home / alias).unlink()
