"""What the canaries inside the jail try to reach: each is first shown to work outside."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from dataclasses import dataclass, field

from agent.errors import JailUnavailable, UsageError
from agent.jail.leftovers import hold_file

_NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")


@dataclass(slots=True)
class Traps:
    """A secret file in the user's own folders, a secret in the environment, a TCP and an abstract server."""

    token: str
    secret_path: str
    tcp: socket.socket
    abstract: socket.socket
    _stack: contextlib.ExitStack = field(repr=False)

    def described(self) -> dict[str, object]:
        """For the launcher: bytes for names, and the namespaces of the host."""
        return {
            "token": self.token.encode(),
            "secret_path": os.fsencode(self.secret_path),
            "port": self.tcp.getsockname()[1],
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
        tcp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        tcp.bind(("127.0.0.1", 0))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        abstract.bind(f"\0frog-lsp-{token}")
        for server in (tcp, abstract):
            server.listen(8)
            with socket.socket(server.family, socket.SOCK_STREAM) as client:
                client.settimeout(2.0)
                client.connect(server.getsockname())
            server.accept()[0].close()
        traps = Traps(token=token, secret_path=path, tcp=tcp, abstract=abstract, _stack=stack)
        if not traps.untouched():
            raise OSError(f"{path} cannot be read back")
    except (OSError, UsageError) as error:
        stack.close()
        raise JailUnavailable(
            f"the jail cannot be proven: a trap could not be set ({error})",
            "The user's cache folder must be writable and the loopback interface up.",
        ) from error
    return traps


def _write_secret(token: str, stack: contextlib.ExitStack) -> str:
    """A private file in the user's cache folder, else in the temporary folder; both are hidden in the jail."""
    held = hold_file("canary")
    stack.callback(held.remove)
    os.write(held.descriptor, token.encode())
    return held.path
