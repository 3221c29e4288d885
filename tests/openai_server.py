"""A real HTTP server that speaks the chat completions of SGLang, vLLM and llama-server, from a script.

    with OpenAiServer([turn(calls=[("Glob", {"pattern": "*"})]), turn(content="Done.")]) as server:
        ... server.base_url, server.requests ...

Every item of the script answers one POST; after the last, a turn that says "Done." answers. As a program:
`python -m tests.openai_server SCRIPT.json` (a list of the same items) prints the base URL and serves until
stdin ends.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Item = dict[str, Any]
Call = tuple[str, Any]

OVERFLOWS: dict[str, Item] = {
    "sglang-input": {
        "kind": "status",
        "status": 400,
        "json": {
            "object": "error",
            "message": "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    },
    "sglang-total": {
        "kind": "status",
        "status": 400,
        "json": {
            "object": "error",
            "message": "Requested token count exceeds the model's maximum context length of 40960 tokens. You requested"
            " a total of 48952 tokens: 40760 tokens from the input messages and 8192 tokens for the completion.",
            "type": "BadRequestError",
            "code": 400,
        },
    },
    "vllm-2024": {
        "kind": "status",
        "status": 400,
        "json": {
            "object": "error",
            "message": "This model's maximum context length is 32768 tokens. However, you requested 41648 tokens (33456"
            " in the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    },
    "vllm-prompt": {
        "kind": "status",
        "status": 400,
        "json": {
            "error": {
                "message": "The decoder prompt (length 33000) is longer than the maximum model length of 32768.",
                "type": "BadRequestError",
                "code": 400,
            }
        },
    },
    "llama-server": {
        "kind": "status",
        "status": 400,
        "json": {
            "error": {
                "code": 400,
                "message": "request (9012 tokens) exceeds the available context size (8192 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9012,
                "n_ctx": 8192,
            }
        },
    },
    "llama-server-while-generating": {
        "kind": "status",
        "status": 500,
        "json": {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}},
    },
    "in-stream": {
        "kind": "raw",
        "content_type": "text/event-stream",
        "body": 'data: {"error": {"message": "The input (70000 tokens) is longer than the model\'s context length'
        ' (40960 tokens).", "type": "BadRequestError", "code": 400}}\n\ndata: [DONE]\n\n',
    },
}

ROOM_FOR_LESS: Item = {
    "kind": "status",
    "status": 400,
    "json": {
        "error": {
            "message": "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length"
            " is 32768 tokens and your request has 30000 input tokens (8192 > 32768 - 30000).",
            "type": "BadRequestError",
            "code": 400,
        }
    },
}

HTML_PAGE = "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


def turn(
    *,
    reasoning: str = "",
    content: str = "",
    calls: Sequence[Call] = (),
    style: str = "structured",
    **more: Any,
) -> Item:
    """One reply. `style`: "structured"; "tags" (calls as text), "reasoning_tags" (calls inside the reasoning),
    "no_parsers" (all as the model wrote it), "no_reasoning_parser" (structured calls, thoughts in the text).

    More: `finish`, `piece_chars` (8), `delay_s` (before each piece), `cut_after` (pieces), `usage` (true),
    `reasoning_field` ("reasoning_content"), `stream` (true), `ids` (of calls), `call_deltas` (as they are).
    """
    return {
        "kind": "turn",
        "reasoning": reasoning,
        "content": content,
        "calls": list(calls),
        "style": style,
        **more,
    }


def status(code: int, message: str = "", *, headers: dict[str, str] | None = None, body: str | None = None) -> Item:
    """An error answer, in OpenAI's shape unless `body` is given."""
    item: Item = {"kind": "status", "status": code, "headers": headers or {}}
    return {**item, "body": body} if body is not None else {**item, "json": {"error": {"message": message}}}


def raw(body: str | bytes, content_type: str = "application/json") -> Item:
    """A 200 with these bytes."""
    text = body.decode("latin-1") if isinstance(body, bytes) else body
    return {"kind": "raw", "body": text, "content_type": content_type, "latin1": isinstance(body, bytes)}


def endless(*, delay_s: float = 0.0, text: str = "again and ") -> Item:
    """A reply that never ends by itself."""
    return {"kind": "endless", "delay_s": delay_s, "text": text}


def hang(seconds: float) -> Item:
    """No byte of an answer for `seconds`, then the connection closes."""
    return {"kind": "hang", "seconds": seconds}


def call_tags(calls: Sequence[Call]) -> str:
    """Calls as the model writes them."""
    text = ""
    for name, arguments in calls:
        values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
        text += f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>\n"
    return text.rstrip("\n")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body as an object."""
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The history that was sent."""
        messages = self.json["messages"]
        assert isinstance(messages, list)
        return messages


class OpenAiServer:
    """The server, on a free port of this machine. `requests` holds every POST; `n_disconnects` counts answers
    that the client did not wait for."""

    def __init__(
        self,
        script: Sequence[Item] = (),
        *,
        models: Sequence[str] = ("frog",),
        owned_by: str = "sglang",
        context_tokens: int | None = 131_072,
        key: str | None = None,
        unknown_fields: Sequence[str] = (),
        rejection: Callable[[str], Item] | None = None,
    ) -> None:
        self.script = list(script)
        self.models = tuple(models)
        self.owned_by = owned_by
        self.context_tokens = context_tokens
        self.key = key
        self.unknown_fields = tuple(unknown_fields)
        self.rejection = rejection or (lambda name: status(400, f"Unknown parameter: '{name}'."))
        self.requests: list[Recorded] = []
        self.n_disconnects = 0
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._next = 0
        self._http = _Server(("127.0.0.1", 0), _Handler, self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def base_url(self) -> str:
        """The address to give to a client."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def take(self, request: Recorded) -> Item:
        """The item that answers `request`."""
        with self._lock:
            self.requests.append(request)
            if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
                sent = request.headers.get("authorization", "")
                return status(401, f"Incorrect API key provided: {sent}")
            body = request.json
            for name in self.unknown_fields:
                if name in body or any(name in message for message in body["messages"]):
                    return self.rejection(name)
            if self._next >= len(self.script):
                return turn(content="Done.")
            self._next += 1
            return self.script[self._next - 1]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], owner: OpenAiServer) -> None:
        super().__init__(address, handler)
        self.owner = owner

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Silent."""

    def do_GET(self) -> None:
        owner = self.server.owner
        if owner.key is not None and self.headers.get("Authorization") != f"Bearer {owner.key}":
            self._answer(401, b'{"error": {"message": "Invalid API key"}}')
        elif self.path == "/v1/models":
            rows: list[dict[str, Any]] = [
                {"id": name, "object": "model", "owned_by": owner.owned_by} for name in owner.models
            ]
            if owner.context_tokens is not None and owner.owned_by != "llamacpp":
                rows = [{**row, "max_model_len": owner.context_tokens} for row in rows]
            self._answer(200, json.dumps({"object": "list", "data": rows}).encode())
        elif self.path == "/props" and owner.owned_by == "llamacpp":
            settings = {"default_generation_settings": {"n_ctx": owner.context_tokens}}
            self._answer(200, json.dumps(settings).encode())
        else:
            self._answer(404, b'{"error": {"message": "not found"}}')

    def do_POST(self) -> None:
        owner = self.server.owner
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path != "/v1/chat/completions":
            self._answer(404, b'{"detail": "Not Found"}')
            return
        headers = {key.lower(): value for key, value in self.headers.items()}
        request = Recorded(self.path, headers, body)
        try:
            self._play(owner.take(request), request)
        except (BrokenPipeError, ConnectionResetError):
            owner.n_disconnects += 1
            self.close_connection = True

    def _play(self, item: Item, request: Recorded) -> None:
        kind = item["kind"]
        if kind == "status":
            data = json.dumps(item["json"]) if "json" in item else item["body"]
            self._answer(item["status"], data.encode(), headers=item.get("headers"))
        elif kind == "raw":
            data = item["body"].encode("latin-1" if item.get("latin1") else "utf-8")
            self._answer(200, data, content_type=item["content_type"])
        elif kind == "hang":
            self._wait(item["seconds"])
            self.close_connection = True
        elif kind == "endless":
            self._stream(iter(lambda: {"content": item["text"]}, None), item)
        elif item.get("stream", True) and request.json.get("stream"):
            self._stream(_deltas(item), item)
        else:
            self._answer(200, json.dumps(_whole(item)).encode())

    def _stream(self, deltas: Iterator[dict[str, Any]], item: Item) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for at, delta in enumerate(deltas):
            if at == item.get("cut_after") or self.server.owner.stopping.is_set():
                return
            self._wait(item.get("delay_s", 0.0))
            self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        finish = item.get("finish") or ("tool_calls" if _structured(item) and item["calls"] else "stop")
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if item.get("usage", True):
            self._event({"choices": [], "usage": _usage(item)})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, chunk: dict[str, Any]) -> None:
        text = json.dumps({"object": "chat.completion.chunk", **chunk}, ensure_ascii=False)
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    def _wait(self, seconds: float) -> None:
        if seconds > 0:
            self.server.owner.stopping.wait(seconds)

    def _answer(
        self, code: int, body: bytes, *, content_type: str = "application/json", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)


def _structured(item: Item) -> bool:
    return item["kind"] == "turn" and item["style"] in ("structured", "no_reasoning_parser")


def _texts(item: Item) -> tuple[str, str]:
    """(reasoning, content) as a server with the parsers of the style sends them."""
    reasoning, content, tags = (
        item["reasoning"],
        item["content"],
        call_tags(item["calls"]) if not _structured(item) else "",
    )
    match item["style"]:
        case "tags":
            return reasoning, f"{content}\n\n{tags}".strip()
        case "reasoning_tags":
            return f"{reasoning}\n\n{tags}".strip(), content
        case "no_parsers" | "no_reasoning_parser":
            return "", f"{reasoning}\n</think>\n\n{content}\n\n{tags}".rstrip()
    return reasoning, content


def _calls(item: Item) -> list[dict[str, Any]]:
    """The structured calls, whole."""
    ids = item.get("ids") or [f"call_{item['calls'].index(call)}_{time.monotonic_ns()}" for call in item["calls"]]
    return [
        {
            "index": at,
            "id": ids[at],
            "type": "function",
            "function": {
                "name": name,
                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
            },
        }
        for at, (name, arguments) in enumerate(item["calls"])
    ]


def _deltas(item: Item) -> Iterator[dict[str, Any]]:
    n_chars = item.get("piece_chars", 8)
    field = item.get("reasoning_field", "reasoning_content")
    yield {"role": "assistant", "content": ""}
    for name, text in zip((field, "content"), _texts(item), strict=True):
        for at in range(0, len(text), n_chars):
            yield {name: text[at : at + n_chars]}
    if "call_deltas" in item:
        for delta in item["call_deltas"]:
            yield {"tool_calls": [delta]}
    elif _structured(item):
        for call in _calls(item):
            arguments = call["function"]["arguments"]
            yield {"tool_calls": [{**call, "function": {"name": call["function"]["name"], "arguments": ""}}]}
            for at in range(0, len(arguments), n_chars):
                piece = {"arguments": arguments[at : at + n_chars]}
                yield {"tool_calls": [{"index": call["index"], "function": piece}]}


def _whole(item: Item) -> dict[str, Any]:
    reasoning, content = _texts(item)
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message[item.get("reasoning_field", "reasoning_content")] = reasoning
    if _structured(item) and item["calls"]:
        message["tool_calls"] = _calls(item)
    finish = item.get("finish") or ("tool_calls" if "tool_calls" in message else "stop")
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": _usage(item),
    }


def _usage(item: Item) -> dict[str, int]:
    return {"prompt_tokens": item.get("prompt_tokens", 100), "completion_tokens": item.get("completion_tokens", 20)}


def main() -> None:
    """Serve a script until stdin ends."""
    with open(sys.argv[1], encoding="utf-8") as file:
        script = json.load(file)
    with OpenAiServer(script) as server:
        print(server.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
