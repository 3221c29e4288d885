"""A wheel of this tree, for an installation that needs no network: pip, the environment and the server are real."""

from __future__ import annotations

import base64
import hashlib
import sysconfig
import zipfile
from pathlib import Path

from lsp_server import __version__
from tests.e2e.real_editors import ROOT

PACKAGES = ("agent", "lsp_server", "quant")
INFO = f"frog_lsp-{__version__}.dist-info"


def write_wheel(folder: Path) -> Path:
    """Write the wheel into a folder. Its dependencies are those of the environment of the tests, by a `.pth` file."""
    files = {
        str(path.relative_to(ROOT)): path.read_bytes()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    files["dependencies.pth"] = f"{sysconfig.get_path('purelib')}\n".encode()
    files[f"{INFO}/METADATA"] = f"Metadata-Version: 2.1\nName: frog-lsp\nVersion: {__version__}\n".encode()
    files[f"{INFO}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{INFO}/entry_points.txt"] = b"[console_scripts]\nfrog-lsp = lsp_server.cli:main\n"
    record = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{INFO}/RECORD"] = "\n".join([*record, f"{INFO}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"frog_lsp-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as out:
        for name, data in files.items():
            out.writestr(name, data)
    return wheel


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
