"""Compile llama-cpp-python once for this machine, keep the wheel, install it.

    [CMAKE_ARGS=-DGGML_CUDA=on] python3 agent/model/build.py --lock uv.lock --into .venv/bin/python

Standard library only: it runs before anything is installed. The registry has no binary wheel of
llama-cpp-python, and compiling takes about 4 minutes on 2 cores, so the wheel is kept in the cache
folder under a key of version, machine, processor flags and whatever was said about the build:
llama.cpp compiles for the very processor it runs on, and a wheel of another one dies with an illegal
instruction; one for a GPU is another wheel than one without. Where nothing is said about the build,
what is installed stays, so that a build for a GPU outlives the next `make`. The source archive is
checked against the hash in the lock file. The vision library is left out (`LLAVA_BUILD`).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO

PACKAGE = "llama-cpp-python"
CMAKE_ARGS = "-DLLAVA_BUILD=OFF"
STAMP = ".llama-cpp-python-build"
"""In the environment's folder: the key of the build that was installed there."""

BUILD_VARIABLES = (
    "CMAKE_ARGS", "CMAKE_BUILD_TYPE", "CMAKE_CUDA_ARCHITECTURES", "CMAKE_GENERATOR", "CMAKE_PREFIX_PATH",
    "CMAKE_TOOLCHAIN_FILE", "FORCE_CMAKE", "SKBUILD_BUILD_TYPE", "SKBUILD_CMAKE_ARGS", "SKBUILD_CMAKE_BUILD_TYPE",
    "SKBUILD_CMAKE_DEFINE", "CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CUDACXX", "CUDAFLAGS",
    "CUDAHOSTCXX", "CUDAARCHS", "HIPCXX", "HIPFLAGS", "HIP_PATH", "ROCM_PATH", "ARCHFLAGS",
    "MACOSX_DEPLOYMENT_TARGET", "VULKAN_SDK",
)  # fmt: skip
"""What CMake and scikit-build-core read of the environment, and what therefore makes another wheel."""

NINJA_STEP = re.compile(r"^\s*\[(\d+)/(\d+)\]")


def pinned_source(lock_text: str) -> tuple[str, str]:
    """Return (version, sha256 hex of the source archive) of llama-cpp-python in a uv.lock.

    Raises LookupError when the lock does not have it.
    """
    for package in tomllib.loads(lock_text)["package"]:
        if package["name"] == PACKAGE:
            return package["version"], package["sdist"]["hash"].removeprefix("sha256:")
    raise LookupError(f"{PACKAGE} is not in the lock file")


def build_wishes(environment: Mapping[str, str]) -> tuple[str, ...]:
    """What the environment says about the build, as `NAME=value`; empty where it says nothing.

    Spaces do not count, nor does the order of the names.
    """
    said = {name: " ".join(environment.get(name, "").split()) for name in BUILD_VARIABLES}
    return tuple(f"{name}={value}" for name, value in sorted(said.items()) if value)


def machine_key(version: str, cpu_flags: str, wishes: Iterable[str] = ()) -> str:
    """Name the cache entry of a build: version, system, machine, Python, and a hash of what else changes it."""
    digest = hashlib.sha256("\n".join([cpu_flags, CMAKE_ARGS, *wishes]).encode()).hexdigest()[:12]
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return f"{version}-{platform.system().lower()}-{platform.machine()}-{python}-{digest}"


def cpu_flags() -> str:
    """Return the processor's flags, sorted, or its name where the system does not list them."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return " ".join(sorted(found[1].split())) if found else platform.processor()


def progress_of(line: str) -> tuple[int, int] | None:
    """Return (step, steps) of a line that ninja prints, None for other lines."""
    found = NINJA_STEP.match(line)
    return (int(found[1]), int(found[2])) if found else None


def follow(lines: Iterable[str], show: Callable[[int, int], None]) -> list[str]:
    """Report each step of a build and return its last 60 lines."""
    tail: list[str] = []
    for line in lines:
        tail = [*tail[-59:], line.rstrip("\n")]
        if (step := progress_of(line)) is not None:
            show(*step)
    return tail


def progress_printer(out: IO[str], started: float) -> Callable[[int, int], None]:
    """Print progress as one line that is rewritten on a terminal, and every tenth part elsewhere."""
    last = -1

    def show(step: int, steps: int) -> None:
        nonlocal last
        elapsed_s = time.monotonic() - started
        text = f"compiling llama.cpp: {step} of {steps}, {elapsed_s:.0f} s"
        if out.isatty():
            out.write(f"\r\033[K{text}" + ("\n" if step == steps else ""))
        elif step * 10 // steps != last:
            last = step * 10 // steps
            out.write(text + "\n")
        out.flush()

    return show


def compile_wheel(version: str, sha256: str, folder: Path, out: IO[str]) -> Path:
    """Compile into `folder` (atomically) and return the wheel. Raises SystemExit with the build's last lines."""
    for parent in (folder.parent.parent, folder.parent):
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as work:
        requirement = Path(work, "requirement.txt")
        requirement.write_text(f"{PACKAGE}=={version} --hash=sha256:{sha256}\n")
        command = [sys.executable, "-m", "pip", "wheel", "-v", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-cache-dir", "--no-binary", PACKAGE, "--require-hashes", "-r", str(requirement)]
        command += ["-w", str(Path(work, "out"))]
        extra = os.environ.get("CMAKE_ARGS", "")
        environment = {**os.environ, "CMAKE_ARGS": f"{CMAKE_ARGS} {extra}".strip()}
        out.write("compiling llama-cpp-python once for this processor (about 4 minutes on 2 cores)\n")
        out.flush()
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            assert process.stdout is not None
            tail = follow(process.stdout, progress_printer(out, time.monotonic()))
        if process.returncode != 0:
            raise SystemExit(
                "\n".join(tail)
                + "\nllama-cpp-python did not compile (see above). It needs a C and C++ compiler:"
                + " on Debian and Ubuntu, `apt-get install build-essential python3-dev`;"
                + " for a GPU, what its maker gives to compile for it, too."
            )
        shutil.rmtree(folder, ignore_errors=True)
        Path(work, "out").rename(folder)
    return next(folder.glob("*.whl"))


def cached_wheel(folder: Path) -> Path | None:
    """Return the wheel kept in `folder`, None where there is none."""
    return next(folder.glob("*.whl"), None)


def installed_version(python: Path) -> str | None:
    """Return the llama-cpp-python version that `python` has, None where it has none or it does not load."""
    code = "import llama_cpp; print(llama_cpp.__version__)"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def stamp_of(python: Path) -> Path:
    """Where the key of the installed build stands, for the interpreter of an environment."""
    return python.parent.parent / STAMP


def installed_key(python: Path) -> str | None:
    """Return the key of the build that `python` has, None where it was not installed from here."""
    try:
        return stamp_of(python).read_text().strip()
    except OSError:
        return None


def main() -> None:
    """Compile if no wheel is kept, and install it into the interpreter `--into`."""
    parser = argparse.ArgumentParser(description="compile llama-cpp-python once, keep the wheel, install it")
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True, help="the interpreter to install into")
    parser.add_argument("--uv", default="uv", help="the uv command that installs")
    options = parser.parse_args()
    version, sha256 = pinned_source(options.lock.read_text())
    wishes = build_wishes(os.environ)
    key = machine_key(version, cpu_flags(), wishes)
    if installed_version(options.into) == version and (not wishes or installed_key(options.into) == key):
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "frog-lsp" / "wheels" / key
    wheel = cached_wheel(folder) or compile_wheel(version, sha256, folder, sys.stderr)
    install = [options.uv, "pip", "install", "--quiet", "--no-deps", "--reinstall-package", PACKAGE]
    subprocess.run([*install, "--python", str(options.into), str(wheel)], check=True)
    if installed_version(options.into) != version:
        shutil.rmtree(folder, ignore_errors=True)
        raise SystemExit(f"the wheel in {folder} does not load on this machine; it was removed, run this again")
    stamp_of(options.into).write_text(key + "\n")


if __name__ == "__main__":
    main()
