"""What this build of llama.cpp can do, and what this machine has that it cannot use: for `frog-lsp doctor`.

The library is asked in a process of its own: a build for another processor would end the one that loads it.
"""

from __future__ import annotations

import json
import os
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
_CPU_FEATURES = {"avx2": "AVX2", "avx512f": "AVX512", "avx512_vnni": "AVX512_VNNI", "amx_int8": "AMX_INT8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """`message` says what the build has; `problem` that it does not load; `hint` what the machine could have."""

    message: str
    hint: str = ""
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What the library says of itself: `features` are those of the processor that it was compiled for."""

    gpu_offload: bool
    mmap: bool
    features: frozenset[str]


def report_engine() -> EngineReport:
    """Ask the installed library. Never raises."""
    command = [sys.executable, "-I", "-c", _ASK]
    try:
        done = subprocess.run(command, capture_output=True, cwd="/", timeout=TIMEOUT_S, check=True)
        said = json.loads(done.stdout)
        build = Build(gpu_offload=said["gpu_offload"], mmap=said["mmap"], features=read_features(said["system_info"]))
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
    from agent.model.engine_library import load_library

    lib = load_library()
    said = {
        "gpu_offload": bool(lib.llama_supports_gpu_offload()),
        "mmap": bool(lib.llama_supports_mmap()),
        "system_info": lib.llama_print_system_info().decode("utf-8", "replace"),
    }
    sys.stdout.write(json.dumps(said))


def read_features(system_info: str) -> frozenset[str]:
    """The names that are on in llama.cpp's own description: "CPU : AVX2 = 1 | OPENMP = 1 | "."""
    return frozenset(name for name, value in re.findall(r"(\w+) = (\d+)", system_info) if value != "0")


def describe_build(build: Build, n_cores: int) -> str:
    """Sentences about what a run will use."""
    shown = [
        name for name in ("AVX2", "AVX512", "AMX_INT8", "NEON", "SVE", "REPACK", "OPENMP") if name in build.features
    ]
    where = "The model runs on the GPU" if build.gpu_offload else "The model runs on the processor"
    mapped = "" if build.mmap else " It cannot map model files: all weights are copied."
    return f"{where}, with {n_cores} threads ({', '.join(shown) or 'no special instructions'}).{mapped}"


def missed(build: Build, gpus: Mapping[str, str], flags: Collection[str]) -> str:
    """What this machine has and the build does not use, and how to get it; "" where there is nothing.

    `gpus`: kind of GPU to the switch of llama.cpp for it. `flags`: the processor's, in the words of Linux.
    """
    if gpus and not build.gpu_offload:
        kind, switch = next(iter(gpus.items()))
        command = f"CMAKE_ARGS=-D{switch}=on pip install --force-reinstall --no-cache-dir --no-deps {_pinned()}"
        return f"There is a GPU ({kind}) that this build cannot use. With its compiler installed: `{command}`."
    lacking = [name for flag, name in _CPU_FEATURES.items() if flag in flags and name not in build.features]
    if lacking:
        return f"This processor has {', '.join(lacking)}, which this build does not use: compile it on this machine."
    return ""


def _pinned() -> str:
    return f"llama-cpp-python=={version('llama-cpp-python')}"


def find_gpus() -> dict[str, str]:
    """GPUs that the system shows, each with the switch of llama.cpp that makes use of it."""
    found = {}
    if os.path.exists("/proc/driver/nvidia/version") or os.path.exists("/dev/nvidiactl"):
        found["NVIDIA"] = "GGML_CUDA"
    if os.path.exists("/dev/kfd"):
        found["AMD"] = "GGML_HIP"
    if sys.platform == "darwin":
        found["Apple"] = "GGML_METAL"
    if not found and any(Path("/dev/dri").glob("renderD*")):
        found["Vulkan"] = "GGML_VULKAN"
    return found


def cpu_flags() -> frozenset[str]:
    """The flags of the processor; empty where the system does not list them."""
    try:
        found = re.search(r"^flags\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return frozenset()
    return frozenset(found[1].split()) if found else frozenset()
