"""The tool runner as one archive that `python -I -S` can run anywhere."""

from __future__ import annotations

import functools
import importlib.util
import io
import marshal
import zipfile
from importlib.resources import files

_SHIPPED = ("agent.ipc.framing", "agent.changes.textfile", "agent.changes.textedit")
_RUNNER = "agent.tools.runner"
_MAIN = b"""\
import sys

from agent.tools.runner.__main__ import main

raise SystemExit(main(sys.argv[1:]))
"""
_UNCHECKED_HASH = (0b01).to_bytes(4, "little")  # PEP 552: never compared with its source
_DATE = (1980, 1, 1, 0, 0, 0)


@functools.cache
def runner_bundle() -> bytes:
    """The archive: the same bytes for the same sources and Python.

    Sources and compiled code both: an interpreter of another version ignores the compiled code, the same one
    saves the 50 ms of compiling at every start (nothing can be cached in an archive).
    """
    sources = {f"{name}.py": _source(name) for name in _SHIPPED}
    for entry in sorted(files(_RUNNER).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".py"):
            sources[f"{_RUNNER}.{entry.name}"] = entry.read_bytes()
    packages = {name.rsplit(".", 2)[0] for name in sources} | {"agent.tools", "agent"}
    contents = {"__main__": _MAIN}
    contents |= {f"{package.replace('.', '/')}/__init__": b"" for package in packages}
    contents |= {name.removesuffix(".py").replace(".", "/"): source for name, source in sources.items()}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as bundle:
        for name, source in sorted(contents.items()):
            bundle.writestr(zipfile.ZipInfo(f"{name}.py", _DATE), source)
            bundle.writestr(zipfile.ZipInfo(f"{name}.pyc", _DATE), _compiled(name, source))
    return archive.getvalue()


def _source(module: str) -> bytes:
    package, _, name = module.rpartition(".")
    return files(package).joinpath(f"{name}.py").read_bytes()


def _compiled(name: str, source: bytes) -> bytes:
    code = compile(source, f"{name}.py", "exec", dont_inherit=True, optimize=0)
    header = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + importlib.util.source_hash(source)
    return header + marshal.dumps(code)
