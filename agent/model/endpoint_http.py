"""Requests to an OpenAI-compatible server: one try, and tries with backoff. Errors come out as ours."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable

import httpx

from agent.errors import ContextOverflow, FrogError, ModelQueryError, ModelUnavailable
from agent.model.endpoint_errors import ServerError, error_message, read_error, shorten
from agent.model.endpoint_retry import TryAgainError
from agent.model.endpoint_stream import Reply, SseDecoder, StreamError
from agent.model.endpoint_url import is_local, normalize_base_url
from agent.types import JsonObject

MAX_ERROR_BYTES = 64 * 1024
MAX_LIST_BYTES = 4 * 1024 * 1024
MAX_ANSWER_BYTES = 256 * 1024 * 1024
CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 600.0  # a laptop may read a long prompt for minutes before the first byte of the answer
_SURROGATES = re.compile("[\ud800-\udfff]")


class RejectedRequestError(Exception):
    """The server answered with an error that the caller may be able to work around, else `final`."""

    def __init__(self, error: ServerError, final: FrogError) -> None:
        super().__init__(final.message)
        self.error = error
        self.final = final


class EndpointClient:
    """One HTTP client for one base URL. The key never appears in a message of ours.

    Raises UsageError for an address that cannot be used, ModelUnavailable where the variable of the key is
    not set or holds what cannot be a key.
    """

    def __init__(self, base_url: str, api_key_env: str | None, *, read_timeout_s: float = READ_TIMEOUT_S) -> None:
        self.base_url = normalize_base_url(base_url)
        self.key_env = api_key_env
        self._key = read_key(api_key_env)
        local = is_local(self.base_url)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._http = httpx.AsyncClient(
            headers={"User-Agent": "frog-lsp", **headers},
            follow_redirects=False,  # a redirect could carry the workspace's text to a host that nobody agreed to
            trust_env=not local,  # a proxy must not see what goes to this machine
            timeout=httpx.Timeout(read_timeout_s, connect=CONNECT_TIMEOUT_S),
        )
        self.sends_key_in_clear = bool(self._key) and not local and self.base_url.startswith("http:")

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def redact(self, text: str) -> str:
        """`text` without the key."""
        return text.replace(self._key, "[key]") if self._key else text

    async def get_json(self, url: str, timeout_s: float) -> tuple[int, JsonObject]:
        """(status, object) of a GET; `{}` where the answer is no JSON object. Raises ModelUnavailable."""
        try:
            async with self._http.stream("GET", url, timeout=timeout_s) as response:
                body = await _read_capped(response, MAX_LIST_BYTES)
        except (httpx.ReadTimeout, httpx.DecodingError, StreamError):
            return 0, {}
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        return response.status_code, value if isinstance(value, dict) else {}

    async def complete(
        self, request: JsonObject, on_text: Callable[[str], None], on_chunk: Callable[[Reply, JsonObject], bool]
    ) -> Reply:
        """One try of a chat completion. `on_chunk` says after each chunk whether to go on reading.

        Raises TryAgainError, RejectedRequestError, ModelQueryError, ModelUnavailable. Cancelling closes the
        connection, which ends the generation on the server.
        """
        try:
            async with self._http.stream(
                "POST",
                f"{self.base_url}/chat/completions",
                content=encode_body(request),
                headers={"Content-Type": "application/json", "Accept": "text/event-stream, application/json"},
            ) as response:
                if response.status_code != 200:
                    raise self._failure(response, await _read_capped(response, MAX_ERROR_BYTES))
                if "event-stream" in response.headers.get("content-type", ""):
                    reply = await self._read_stream(response, on_text, on_chunk)
                else:
                    reply = self._read_whole(await _read_capped(response, MAX_ANSWER_BYTES), on_text)
            if not reply.n_choices:
                raise StreamError("the answer has no choices")
            return reply
        except httpx.ConnectError as error:
            raise TryAgainError(self._unreachable(error)) from error
        except httpx.TimeoutException as error:
            raise TryAgainError(
                ModelQueryError("the endpoint did not answer in time", f"Look at the log of {self.base_url}.")
            ) from error
        except httpx.TransportError as error:
            raise TryAgainError(self._cut()) from error
        except (StreamError, httpx.DecodingError) as error:
            raise self._rubbish(str(error)) from error

    async def _read_stream(
        self, response: httpx.Response, on_text: Callable[[str], None], on_chunk: Callable[[Reply, JsonObject], bool]
    ) -> Reply:
        decoder, reply, n_bytes = SseDecoder(), Reply(), 0
        async for piece in response.aiter_bytes():
            n_bytes += len(piece)
            if n_bytes > MAX_ANSWER_BYTES:
                raise StreamError("the stream is larger than 256 MiB")
            for event, data in decoder.feed(piece):
                if not self._take_event(reply, event, data, on_text, on_chunk):
                    return reply
        for event, data in decoder.finish():
            self._take_event(reply, event, data, on_text, on_chunk)
        if reply.finish_reason is None and not reply.done:
            raise TryAgainError(self._cut())
        return reply

    def _take_event(
        self,
        reply: Reply,
        event: str,
        data: str,
        on_text: Callable[[str], None],
        on_chunk: Callable[[Reply, JsonObject], bool],
    ) -> bool:
        if data.strip() == "[DONE]":
            reply.done = True
            return False
        chunk = _read_object(data)
        if chunk is None:
            raise StreamError(f"an event of the stream is not a JSON object: {shorten(self.redact(data))[:80]}")
        if event == "error" or "error" in chunk or chunk.get("object") == "error":
            raise self._classify(_error_in_stream(chunk, data))
        text = reply.add(chunk)
        if text:
            on_text(text)
        return on_chunk(reply, chunk)

    def _read_whole(self, body: bytes, on_text: Callable[[str], None]) -> Reply:
        text = body.decode("utf-8", "replace")
        value = _read_object(text)
        if value is None:
            raise StreamError(f"the answer is {error_message(text)[:80] or 'empty'}, not JSON and not a stream")
        if "choices" not in value and ("error" in value or value.get("object") == "error"):
            raise self._classify(_error_in_stream(value, text))
        reply = Reply()
        if piece := reply.add(value):
            on_text(piece)
        reply.done = True
        return reply

    def _failure(self, response: httpx.Response, body: bytes) -> Exception:
        if response.is_redirect:
            target = shorten(self.redact(response.headers.get("location", "another address")))
            return ModelQueryError(
                f"the endpoint redirects to {target}; redirects are not followed",
                "Give the final address as the endpoint if you trust it.",
            )
        text = body.decode("utf-8", "replace")
        return self._classify(read_error(response.status_code, text, response.headers.get("retry-after")))

    def _classify(self, error: ServerError) -> Exception:
        shown = shorten(self.redact(error.message)) or "no message"
        if error.status in (401, 403):
            return self.refused(error.status)
        if error.overflow:
            return RejectedRequestError(
                error,
                ContextOverflow(
                    f"the conversation no longer fits the context of the endpoint: {shown}",
                    "Start the server with a larger context, or lower `limits.contextTokens`.",
                ),
            )
        if error.missing_option is not None:
            return ModelQueryError(f"the endpoint does not take tools: {shown}", f"Start {error.missing_option}.")
        final = ModelQueryError(
            f"the endpoint answered {error.status}: {shown}", f"Look at the log of the server at {self.base_url}."
        )
        if error.retryable:
            return TryAgainError(final, error.retry_after_s)
        if error.status == 404:
            final = ModelQueryError(
                f"the endpoint answered 404: {shown}",
                f"Check the address ({self.base_url}, usually it ends in /v1) and the name of the model.",
            )
        return RejectedRequestError(error, final)

    def refused(self, status: int) -> ModelQueryError:
        """The error for 401 and 403: names the variable of the key, never the key."""
        if self.key_env:
            hint = f"Check the key in the environment variable {self.key_env}."
        else:
            hint = "Put the key in an environment variable and name it in `model.apiKeyEnv`."
        return ModelQueryError(f"the endpoint {self.base_url} refused the key ({status})", hint)

    def _unreachable(self, error: Exception) -> ModelUnavailable:
        return ModelUnavailable(
            f"no server answers at {self.base_url} ({shorten(self.redact(str(error))) or type(error).__name__})",
            "Start the server, or check the address and port of the endpoint.",
        )

    def _cut(self) -> ModelQueryError:
        return ModelQueryError(
            "the endpoint closed the connection in the middle of its answer",
            f"Look at the log of the server at {self.base_url}: it may have crashed or run out of memory.",
        )

    def _rubbish(self, why: str) -> ModelQueryError:
        return ModelQueryError(
            f"the endpoint did not answer as an OpenAI-compatible server: {shorten(self.redact(why))}",
            f"Check that {self.base_url} is the address of SGLang, vLLM or llama-server (usually it ends in /v1).",
        )


def read_key(env: str | None) -> str | None:
    """The key in the environment variable `env`; None where no variable is named. Raises ModelUnavailable."""
    if not env:
        return None
    key = os.environ.get(env, "").strip()
    if not key:
        raise ModelUnavailable(
            f"the environment variable {env}, named for the endpoint's key, is not set",
            f"Set {env} in the environment that starts frog-lsp, or name another in `model.apiKeyEnv`.",
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ModelUnavailable(
            f"the environment variable {env} does not hold a usable key", "A key has no spaces and only ASCII."
        )
    return key


def encode_body(request: JsonObject) -> bytes:
    """JSON in UTF-8 with nothing escaped that need not be; lone surrogates (odd file names) become U+FFFD."""
    text = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
    return _SURROGATES.sub("\ufffd", text).encode()


async def _read_capped(response: httpx.Response, limit_bytes: int) -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > limit_bytes:
            if response.status_code != 200:
                break
            raise StreamError(f"the answer is larger than {limit_bytes} bytes")
    return bytes(body[:limit_bytes])


def _read_object(text: str) -> JsonObject | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _error_in_stream(chunk: JsonObject, text: str) -> ServerError:
    inner = chunk.get("error", chunk)
    code = inner.get("code") if isinstance(inner, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 400
    return read_error(status, text)
