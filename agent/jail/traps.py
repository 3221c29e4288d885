"""What the canaries inside the jail try to reach: each is first shown to work outside."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
from dataclasses import dataclass, field

from agent.errors import JailUnavailable
from agent.jail.leftovers import hold_file

_NO_NETWORK = (errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.EAFNOSUPPORT)
_NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")


@dataclass(slots=True)
class Traps:
    """A secret file in the user's own folders, a secret in the environment, a TCP and an abstract server."""

    token: str
    secret_path: str
    tcp: socket.socket | None
    abstract: socket.socket
    _stack: contextlib.ExitStack = field(repr=False)

    def described(self) -> dict[str, object]:
        """For the launcher: bytes for names, and the namespaces of the host."""
        return {
            "token": self.token.encode(),
            "secret_path": os.fsencode(self.secret_path),
            "port": self.tcp.getsockname()[1] if self.tcp else None,
            "abstract": self.abstract.getsockname(),
            "namespaces": {kind.encode(): os.fsencode(os.readlink(f"/proc/self/ns/{kind}")) for kind in _NAMESPACES},
        }

    def untouched(self) -> bool:
        """True while the secret file still is what it was and nobody connected."""
        with open(self.secret_path, encoding="ascii") as file:
            return file.read() == self.token

    def close(self) -> None:
        """Remove all of them. Idempotent."""
        self._stack.close()


def set_traps() -> Traps:
    """Set the traps and try each from outside. Raises JailUnavailable where one cannot be set: no proof, no run."""
    stack = contextlib.ExitStack()
    token = secrets.token_hex(16)
    try:
        path = _write_secret(token, stack)
        abstract = _serve(socket.AF_UNIX, f"\0frog-lsp-{token}", stack)
        try:
            tcp = _serve(socket.AF_INET, ("127.0.0.1", 0), stack)
        except OSError as error:
            if error.errno not in _NO_NETWORK:
                raise
            tcp = None  # there is no network to keep away from; the abstract socket tells the namespaces apart
        traps = Traps(token=token, secret_path=path, tcp=tcp, abstract=abstract, _stack=stack)
        if not traps.untouched():
            raise OSError(f"{path} cannot be read back")
    except OSError as error:
        stack.close()
        raise JailUnavailable(
            f"the jail cannot be proven: a trap could not be set ({error})",
            "The user's cache folder must be writable.",
        ) from error
    return traps


def _serve(family: int, address: str | tuple[str, int], stack: contextlib.ExitStack) -> socket.socket:
    """A listening socket that was reached from here once. Raises OSError."""
    server = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
    server.bind(address)
    server.listen(8)
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(2.0)
        client.connect(server.getsockname())
    server.accept()[0].close()
    return server


def _write_secret(token: str, stack: contextlib.ExitStack) -> str:
    """A private file in the user's cache folder, else in the temporary folder; both are hidden in the jail."""
    held = hold_file("canary")
    stack.callback(held.remove)
    os.write(held.descriptor, token.encode())
    return held.path
