"""The kept wheel of llama.cpp: what is said about the build decides which wheel it is, and when it is made anew."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from agent.model import build

LOCK = Path(__file__).parents[2] / "uv.lock"
VERSION = "1.2.3"
SMALL_LOCK = f'[[package]]\nname = "llama-cpp-python"\nversion = "{VERSION}"\nsdist = {{ hash = "sha256:00" }}\n'
FLAGS = "avx2 fma"


def key(**environment: str) -> str:
    return build.machine_key("1.2.3", FLAGS, build.build_wishes(environment))


def test_each_thing_said_about_the_build_is_in_the_key() -> None:
    wishes = [
        {},
        {"CMAKE_ARGS": "-DGGML_CUDA=on"},
        {"CMAKE_ARGS": "-DGGML_METAL=on"},
        {"CMAKE_ARGS": "-DGGML_METAL=off"},
        {"SKBUILD_CMAKE_ARGS": "-DGGML_CUDA=on"},
        {"FORCE_CMAKE": "1"},
        {"CC": "clang"},
        {"CMAKE_ARGS": "-DGGML_CUDA=on", "CUDACXX": "/usr/local/cuda/bin/nvcc"},
    ]
    assert len({key(**wish) for wish in wishes}) == len(wishes)
    assert key(CMAKE_ARGS="-DGGML_CUDA=on") == key(CMAKE_ARGS="  -DGGML_CUDA=on ", CC="", LANG="C", HOME="/x")
    assert key() != build.machine_key("1.2.4", FLAGS) != build.machine_key("1.2.4", "avx2")


def test_the_pinned_source_is_that_of_the_lock_file() -> None:
    version, sha256 = build.pinned_source(LOCK.read_text())
    assert version == "0.3.36" and len(bytes.fromhex(sha256)) == 32
    with pytest.raises(LookupError):
        build.pinned_source("package = []")


def test_progress_is_read_from_the_build() -> None:
    seen: list[tuple[int, int]] = []
    lines = ["configuring\n", " [1/3] Building C object\n", "warning: [x/y]\n", "[3/3] Linking\n"]
    assert build.follow(lines, lambda step, steps: seen.append((step, steps))) == [line.rstrip("\n") for line in lines]
    assert seen == [(1, 3), (3, 3)]


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with a package called llama_cpp of the pinned version, and a uv that installs another."""
    venv.create(tmp_path / "venv", symlinks=True, with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    asked = [python, "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    (packages / "llama_cpp").mkdir()
    (packages / "llama_cpp" / "__init__.py").write_text(f"__version__ = {VERSION!r}\n")
    (tmp_path / "uv.lock").write_text(SMALL_LOCK)
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/installed\n')
    uv.chmod(0o755)
    return tmp_path


def set_up(folder: Path, **said: str) -> list[str]:
    """Run the real script; the wheels that it installed."""
    python = folder / "venv" / "bin" / "python"
    clean = {name: value for name, value in os.environ.items() if name not in build.BUILD_VARIABLES}
    command = [
        sys.executable,
        build.__file__,
        "--lock",
        str(folder / "uv.lock"),
        "--into",
        str(python),
        "--uv",
        str(folder / "uv"),
    ]
    told = {**clean, "XDG_CACHE_HOME": str(folder / "cache"), **said}
    subprocess.run(command, env=told, check=True, timeout=60)
    installed = folder / "installed"
    lines = installed.read_text().splitlines() if installed.exists() else []
    installed.unlink(missing_ok=True)
    return [Path(line.split()[-1]).parent.name for line in lines]


def keep_wheel(folder: Path, **said: str) -> str:
    """A wheel in the cache, as an earlier build with these settings left it; its key."""
    name = build.machine_key(VERSION, build.cpu_flags(), build.build_wishes(said))
    wheels = folder / "cache" / "frog-lsp" / "wheels" / name
    wheels.mkdir(parents=True)
    (wheels / "llama.whl").touch()
    return name


@pytest.mark.slow
def test_a_build_for_a_gpu_is_never_served_the_other_wheel(environment: Path) -> None:
    cuda, cpu = {"CMAKE_ARGS": "-DGGML_CUDA=on"}, {"CMAKE_ARGS": "-DGGML_CUDA=off"}
    plain, for_cuda, without = (keep_wheel(environment, **said) for said in ({}, cuda, cpu))
    assert len({plain, for_cuda, without}) == 3
    assert set_up(environment) == []  # it is there already
    assert set_up(environment, **cuda) == [for_cuda]
    assert set_up(environment, **cuda) == []
    assert set_up(environment) == []  # nothing is said: what is installed stays
    assert set_up(environment, **cpu) == [without]
    for package in (environment / "venv").glob("lib/*/site-packages/llama_cpp/__init__.py"):
        package.write_text("__version__ = '0'\n")
    with pytest.raises(subprocess.CalledProcessError):  # the new one does not load: it is said, and the wheel goes
        set_up(environment)
    assert (environment / "installed").read_text().split()[-1].endswith(f"{plain}/llama.whl")
    assert not (environment / "cache" / "frog-lsp" / "wheels" / plain).exists()
