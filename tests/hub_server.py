"""A real HTTP server that speaks the Hugging Face Hub's protocol as huggingface_hub 2.x uses it.

`HEAD` and `GET /OWNER/REPO/resolve/REVISION/FILE` answer with a redirect to a second server (the hub's CDN) and
with the headers X-Repo-Commit, X-Linked-Size, X-Linked-Etag; the second server knows ranges.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Faults:
    """What goes wrong. `cuts`: bytes after which each of the next downloads breaks off."""

    cuts: list[int] = field(default_factory=list)
    refuse_ranges: bool = False
    corrupt: Callable[[bytes], bytes] | None = None
    hub_status: int = 0
    hub_error_code: str = ""
    cdn_status: int = 0
    n_busy: int = 0  # so many answers of the CDN are 503 first
    bytes_per_s: int = 0
    without_commit: bool = False
    plain_etag: bool = False


@dataclass(frozen=True)
class Seen:
    """A request."""

    method: str
    path: str
    range: str | None
    authorization: str | None


class HubServer:
    """Both servers on free ports of this machine. `files` by path in the one repository; `seen` are the requests."""

    def __init__(self, files: dict[str, bytes], *, repository: str = "frogs/tiny-GGUF") -> None:
        self.files = files
        self.repository = repository
        self.commit = COMMIT
        self.faults = Faults()
        self.seen_hub: list[Seen] = []
        self.seen_cdn: list[Seen] = []
        self._servers = [_Server(_Hub, self), _Server(_Cdn, self)]
        self._threads = [threading.Thread(target=s.serve_forever, args=(0.02,), daemon=True) for s in self._servers]

    @property
    def endpoint(self) -> str:
        """What HF_ENDPOINT must be."""
        return f"http://127.0.0.1:{self._servers[0].server_address[1]}"

    @property
    def cdn(self) -> str:
        """The address of the CDN: another origin."""
        return f"http://127.0.0.1:{self._servers[1].server_address[1]}"

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, handler: type[BaseHTTPRequestHandler], owner: HubServer) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.owner = owner

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Silent."""

    @property
    def request_seen(self) -> Seen:
        return Seen(self.command, self.path, self.headers.get("Range"), self.headers.get("Authorization"))

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Hub(_Handler):
    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        owner = self.server.owner
        owner.seen_hub.append(self.request_seen)
        faults = owner.faults
        if faults.hub_status:
            code = {"X-Error-Code": faults.hub_error_code} if faults.hub_error_code else {}
            self.answer(faults.hub_status, b"{}", **code)
            return
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path)
        if match is None or match[1] != owner.repository:
            self.answer(404, b"{}", **{"X-Error-Code": "RepoNotFound"})
        elif match[2] not in ("main", owner.commit):
            self.answer(404, b"{}", **{"X-Error-Code": "RevisionNotFound"})
        elif match[3] not in owner.files:
            self.answer(404, b"{}", **{"X-Error-Code": "EntryNotFound"})
        else:
            data = owner.files[match[3]]
            etag = "abc123" if faults.plain_etag else hashlib.sha256(data).hexdigest()
            headers = {
                "ETag": '"pointer"',
                "X-Linked-Etag": f'"{etag}"',
                "X-Linked-Size": str(len(data)),
                "Location": f"{owner.cdn}/{match[3]}?signature={time.monotonic_ns()}",
            }
            if not faults.without_commit:
                headers["X-Repo-Commit"] = owner.commit
            self.answer(302, b"", **headers)


class _Cdn(_Handler):
    def do_GET(self) -> None:
        owner = self.server.owner
        owner.seen_cdn.append(self.request_seen)
        faults = owner.faults
        if faults.n_busy:
            faults.n_busy -= 1
            self.answer(503)
            return
        if faults.cdn_status:
            self.answer(faults.cdn_status)
            return
        whole = owner.files[self.path.partition("?")[0].lstrip("/")]
        data = faults.corrupt(whole) if faults.corrupt else whole
        first = 0
        if (wanted := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")) and not faults.refuse_ranges:
            first = int(wanted[1])
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - first))
        self.send_header("Content-Type", "application/octet-stream")
        self.end_headers()
        self._send(data[first:], faults)

    def _send(self, data: bytes, faults: Faults) -> None:
        if faults.cuts:
            data = data[: faults.cuts.pop(0)]
            self.close_connection = True
        step = max(1, faults.bytes_per_s // 50) if faults.bytes_per_s else len(data) or 1
        for at in range(0, len(data), step):
            self.wfile.write(data[at : at + step])
            if faults.bytes_per_s:
                time.sleep(0.02)
