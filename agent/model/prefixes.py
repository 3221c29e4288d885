"""Beginnings of conversations kept on disk: the state after the system prompt and the tools, over restarts.

A file is loaded only when everything that decided its bytes is the same: the model file (size, time, header), the
build of llama.cpp, the kind of cache, and the tokens themselves, in which are the template, the prompt and the tools.
Anything else about it, or a single wrong bit, and it is removed with a note; it costs a reading, never a wrong answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.config import make_private_dir
from agent.errors import FrogError

MOST_BYTES = 1 << 30
"""Of all kept beginnings together; the 4B model's state with 900 tokens has about 80 MiB."""

MOST_DAYS = 30.0
_MAGIC = b"FROGPFX1"
_LENGTH = struct.Struct("<I")
_MOST_HEADER_BYTES = 1 << 16
_DAY_S = 86_400.0
_LEFTOVER_S = 3600.0


class _NotUsableError(Exception):
    """Why a kept file cannot be used."""


class PrefixStore:
    """The kept beginnings of one model in one build of the engine; `facts` are what else decides the bytes.

    Writing happens on a thread; `wait` waits for it. `on_note` gets a sentence about a file that was ignored.
    """

    def __init__(
        self,
        folder: Path,
        facts: Mapping[str, Any],
        *,
        on_note: Callable[[str], None] = lambda _: None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._folder = folder
        self._facts = json.dumps(dict(facts), sort_keys=True)
        self._build = str(facts.get("build", ""))[:12]
        self._on_note = on_note
        self._most_bytes = most_bytes
        self._writing: threading.Thread | None = None

    def load(self, tokens: Sequence[int]) -> bytes | None:
        """The whole state after exactly these tokens, None where none is kept that can be trusted."""
        path = self.path_of(tokens)
        try:
            state = _read(path, self._key(tokens))
            os.utime(path)
            return state
        except FileNotFoundError:
            return None
        except (_NotUsableError, OSError) as error:
            self.reject(tokens, str(error))
            return None

    def reject(self, tokens: Sequence[int], why: str) -> None:
        """Remove what is kept for these tokens, and say so."""
        path = self.path_of(tokens)
        self._on_note(f"The kept beginning {path.name} was ignored and removed: {why}. It is read again, once.")
        try:
            path.unlink(missing_ok=True)
        except OSError:
            return  # a folder, or another user's: it is met and ignored again

    def store(self, tokens: Sequence[int], state: bytes) -> None:
        """Keep a state, in the background. A disk that is full or closed keeps nothing, and no one suffers."""
        self.wait()
        path, key = self.path_of(tokens), self._key(tokens)
        if len(state) <= self._most_bytes:
            self._writing = threading.Thread(target=self._write, args=(path, key, state), name="prefix", daemon=True)
            self._writing.start()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until what is being written is there."""
        if self._writing is not None:
            self._writing.join(timeout_s)

    def path_of(self, tokens: Sequence[int]) -> Path:
        """Where the state after these tokens is kept."""
        return self._folder / f"{self._build}-{self._key(tokens)[:32]}.state"

    def _key(self, tokens: Sequence[int]) -> str:
        digest = hashlib.sha256(self._facts.encode())
        digest.update(array("i", tokens).tobytes())
        return digest.hexdigest()

    def _write(self, path: Path, key: str, state: bytes) -> None:
        header = json.dumps({"key": key, "size_bytes": len(state), "blake2b": _checksum(state)}).encode()
        try:
            make_private_dir(self._folder)
            self._make_room(path, len(state))
            descriptor, part = tempfile.mkstemp(prefix=".part-", dir=self._folder)  # 0600
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_MAGIC + _LENGTH.pack(len(header)) + header)
                    file.write(state)
                os.replace(part, path)
            except BaseException:
                os.unlink(part)
                raise
        except (OSError, FrogError):
            return

    def _make_room(self, path: Path, n_bytes: int) -> None:
        """Remove what another build wrote, what was not used for 30 days, and the oldest beyond the cap."""
        now, kept = time.time(), []
        for entry in os.scandir(self._folder):
            info = entry.stat(follow_symlinks=False)
            age_s = now - info.st_mtime
            is_leftover = entry.name.startswith(".part-") and age_s > _LEFTOVER_S
            is_state = entry.name.endswith(".state")
            is_stale = is_state and (age_s > MOST_DAYS * _DAY_S or not entry.name.startswith(f"{self._build}-"))
            if is_leftover or is_stale:
                os.unlink(entry.path)
            elif is_state and entry.name != path.name:
                kept.append((info.st_mtime, info.st_size, entry.path))
        total = n_bytes + sum(size for _, size, _ in kept)
        for _, size, old in sorted(kept):
            if total <= self._most_bytes:
                break
            os.unlink(old)
            total -= size


def _read(path: Path, key: str) -> bytes:
    """The state in a file. Raises _NotUsableError, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise _NotUsableError("it is no file")
        if hasattr(os, "geteuid") and (info.st_uid != os.geteuid() or info.st_mode & 0o077):
            raise _NotUsableError("others than you may have written it")
        begin = file.read(len(_MAGIC) + _LENGTH.size)
        if len(begin) < len(_MAGIC) + _LENGTH.size or not begin.startswith(_MAGIC):
            raise _NotUsableError("it is not one of ours")
        (n_header,) = _LENGTH.unpack(begin[len(_MAGIC) :])
        try:
            header = json.loads(file.read(min(n_header, _MOST_HEADER_BYTES)))
            found = (header["key"], header["size_bytes"], header["blake2b"])
        except (ValueError, KeyError, TypeError):
            raise _NotUsableError("it is damaged") from None
        if found[0] != key:
            raise _NotUsableError("it belongs to another model, prompt or engine")
        state = file.read()
        if len(state) != found[1] or _checksum(state) != found[2]:
            raise _NotUsableError("it is damaged")
        return state


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()
