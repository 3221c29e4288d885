"""Small things that many tests share."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path


def workspace_hash(root: str | os.PathLike[str], *, times: bool = False) -> str:
    """Hash every name, type, mode, link target and byte below `root`, without following links.

    With `times` also owners, counts of names and times of change: of what nobody may even have touched.
    """
    digest = hashlib.sha256()
    top = os.fsencode(root)

    def visit(path: bytes) -> None:
        info = os.lstat(path)
        digest.update(b"\0%s\0%o\0" % (os.path.relpath(path, top), info.st_mode))
        if times:
            touched = (info.st_uid, info.st_gid, info.st_nlink, info.st_mtime_ns, info.st_ctime_ns)
            digest.update(b"%d %d %d %d %d\0" % touched)
        if stat.S_ISLNK(info.st_mode):
            digest.update(os.readlink(path))
        elif stat.S_ISREG(info.st_mode):
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        elif stat.S_ISDIR(info.st_mode):
            for name in sorted(os.listdir(path)):
                visit(os.path.join(path, name))

    visit(top)
    return digest.hexdigest()


@functools.cache
def config_home_with_consent() -> Path:
    """A config folder of a user who agreed to the reduced jail `landlock`; every user may read it."""
    folder = Path(tempfile.mkdtemp(prefix="frog-config-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    consent = folder / "frog-lsp" / "jail-consent.json"
    consent.parent.mkdir()
    consent.write_text('{"landlock": {}}')
    for path, mode in ((folder, 0o755), (consent.parent, 0o755), (consent, 0o644)):
        path.chmod(mode)
    return folder
