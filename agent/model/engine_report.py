"""What this build of llama.cpp can do, and what this machine has that it cannot use: for `frog-lsp doctor`.

The library is asked in a process of its own: a build for another processor would end the one that loads it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from agent.model.machine import physical_cores

TIMEOUT_S = 60.0  # importing on a cold disk
_ASK = "from agent.model.engine_report import answer; answer()"
GPU_SWITCHES = {"CUDA": "GGML_CUDA", "HIP": "GGML_HIP", "Metal": "GGML_METAL", "Vulkan": "GGML_VULKAN"}
"""Kinds of GPU, and the switch of llama.cpp's build for each; HIP is AMD's ROCm."""

_CPU_FEATURES = {"avx2": "AVX2", "avx512f": "AVX512", "avx512_vnni": "AVX512_VNNI", "amx_int8": "AMX_INT8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """`message` says what the build has; `problem` that it does not load; `hint` what the machine could have."""

    message: str
    hint: str = ""
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What the library says of itself.

    `features` are those of the processor that it was compiled for; `backends` the kinds of GPU, in the words of
    `GPU_SWITCHES`; `devices` the GPUs that it finds now.
    """

    mmap: bool
    features: frozenset[str]
    backends: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


def report_engine() -> EngineReport:
    """Ask the installed library. Never raises."""
    command = [sys.executable, "-I", "-c", _ASK]
    try:
        done = subprocess.run(command, capture_output=True, cwd="/", timeout=TIMEOUT_S, check=True)
        said = json.loads(done.stdout)
        build = Build(
            mmap=said["mmap"],
            features=read_features(said["system_info"]),
            backends=read_backends(said["files"]),
            devices=tuple(said["devices"]),
        )
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        how = f"signal {-error.returncode}" if error.returncode < 0 else f"exit code {error.returncode}"
        return EngineReport(
            message="", problem=f"llama-cpp-python does not load ({how}): {' '.join(last)}".rstrip(": ")
        )
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
        return EngineReport(message="", problem=f"llama-cpp-python does not answer: {error}")
    return EngineReport(message=describe_build(build, physical_cores()), hint=missed(build, find_gpus(), cpu_flags()))


def answer() -> None:
    """Print what the library says of itself, as JSON; runs in the process that is asked."""
    from agent.model.engine_library import gpu_devices, library_files, load_library

    lib = load_library()
    said = {
        "devices": gpu_devices() if lib.llama_supports_gpu_offload() else [],
        "files": [path.name for path in library_files()],
        "mmap": bool(lib.llama_supports_mmap()),
        "system_info": lib.llama_print_system_info().decode("utf-8", "replace"),
    }
    sys.stdout.write(json.dumps(said))


def read_features(system_info: str) -> frozenset[str]:
    """The names that are on in llama.cpp's own description: "CPU : AVX2 = 1 | OPENMP = 1 | "."""
    return frozenset(name for name, value in re.findall(r"(\w+) = (\d+)", system_info) if value != "0")


def read_backends(file_names: Collection[str]) -> tuple[str, ...]:
    """The kinds of GPU that a build has a library for: each backend of ggml is one, such as libggml-cuda.so."""
    stems = {re.sub(r"^lib", "", name).partition(".")[0] for name in file_names}
    return tuple(kind for kind in GPU_SWITCHES if f"ggml-{kind.lower()}" in stems)


def describe_build(build: Build, n_cores: int) -> str:
    """Sentences about what a run will use."""
    shown = [
        name for name in ("AVX2", "AVX512", "AMX_INT8", "NEON", "SVE", "REPACK", "OPENMP") if name in build.features
    ]
    processor = f"with {n_cores} threads ({', '.join(shown) or 'no special instructions'})"
    if build.devices:
        where = f"The model runs on {', '.join(build.devices)}; what stays on the processor, {processor}."
    else:
        where = f"The model runs on the processor, {processor}."
    has = f"Built for {', '.join(build.backends)}." if build.backends else "Built without a GPU."
    mapped = "" if build.mmap else " It cannot map model files: all weights are copied."
    return f"{has} {where}{mapped}"


def missed(build: Build, gpus: Mapping[str, str], flags: Collection[str]) -> str:
    """What this machine has and the build does not use, and how to get it; "" where there is nothing.

    `gpus`: whose GPU it is to the backend of llama.cpp for it. `flags`: the processor's, in the words of Linux.
    """
    unused = [(maker, backend) for maker, backend in gpus.items() if not build.devices]
    built_for = [backend for _, backend in unused if backend in build.backends]
    if built_for:
        return f"It finds no GPU: see whether the driver for {built_for[0]} is installed and works."
    if unused:
        maker, backend = unused[0]
        return (
            f"There is a GPU ({maker}) that this build does not use. With its compiler installed (see the README):"
            f" `{build_command(backend)}`."
        )
    lacking = [name for flag, name in _CPU_FEATURES.items() if flag in flags and name not in build.features]
    if lacking:
        return f"This processor has {', '.join(lacking)}, which this build does not use: compile it on this machine."
    return ""


def build_command(backend: str) -> str:
    """How to compile for a kind of GPU: in a checkout by make, which keeps the wheel, else by pip."""
    switch = f"CMAKE_ARGS=-D{GPU_SWITCHES[backend]}=on"
    if (Path(__file__).parents[2] / "Makefile").is_file() and (Path(__file__).parents[2] / "uv.lock").is_file():
        return f"{switch} make setup"
    pinned = f"llama-cpp-python=={version('llama-cpp-python')}"
    return f"{switch} {sys.executable} -m pip install --force-reinstall --no-cache-dir --no-deps {pinned}"


def find_gpus() -> dict[str, str]:
    """GPUs that the system shows: their maker to the backend of llama.cpp that makes use of them."""
    found = {}
    if os.path.exists("/proc/driver/nvidia/version") or os.path.exists("/dev/nvidiactl"):
        found["NVIDIA"] = "CUDA"
    if os.path.exists("/dev/kfd"):
        found["AMD"] = "HIP"
    if sys.platform == "darwin" and platform.machine() == "arm64":
        found["Apple"] = "Metal"
    if not found and any(Path("/dev/dri").glob("renderD*")):
        found["by Vulkan"] = "Vulkan"
    return found


def cpu_flags() -> frozenset[str]:
    """The flags of the processor; empty where the system does not list them."""
    try:
        found = re.search(r"^flags\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return frozenset()
    return frozenset(found[1].split()) if found else frozenset()
