"""A model behind an OpenAI-compatible server: SGLang, vLLM, llama-server, or anything that speaks as they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent.errors import FrogError, ModelQueryError, ModelUnavailable, UsageError
from agent.model.endpoint_errors import MIN_ROOM_TOKENS
from agent.model.endpoint_escape import escape
from agent.model.endpoint_http import READ_TIMEOUT_S, EndpointClient, RejectedRequestError
from agent.model.endpoint_reply import ReadReply, assistant_message, read_reply, tool_messages
from agent.model.endpoint_retry import RetryPolicy, TryAgainError, try_repeatedly
from agent.model.endpoint_server import ServerFacts, discover, missing_reasoning_parser, missing_tool_parser
from agent.model.endpoint_stop import find_stop
from agent.model.endpoint_stream import Reply
from agent.model.endpoint_url import normalize_base_url
from agent.observations import with_nudge
from agent.protocols import OnPrefill, OnText
from agent.types import Forced, JsonObject, Limits, ModelInfo, ModelSpec, Observation, Turn

MAX_CHARS_PER_TOKEN = 64  # a server that sends more ignores `max_tokens`
_FAILED_REASONS = frozenset({"abort", "error", "content_filter"})
_EXTRAS = ("top_k", "min_p", "chat_template_kwargs", "return_progress")  # no part of OpenAI's API
_REASONING_NAMES = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample. The defaults are those of FrogNano's published evaluation."""

    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 20
    min_p: float = 0.0


class EndpointModel:
    """One conversation with a model behind an endpoint; a `ChatModel`.

    The history is sent whole and only ever grows, so that the server's prefix cache holds. `notes` grows
    while the run goes on: read it at the end. Consent for endpoints beyond this machine is the caller's to ask.
    Raises UsageError for an address that cannot be used.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        seed: int | None = None,
        sampling: Sampling | None = None,
        retry: RetryPolicy | None = None,
        on_note: Callable[[str], None] | None = None,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        if not spec.base_url:
            raise UsageError("no address of an endpoint is given", "Set `model.baseUrl`, or give --endpoint URL.")
        self._spec = spec
        self._base_url = normalize_base_url(spec.base_url)
        self._client: EndpointClient | None = None
        self._retry = retry or RetryPolicy()
        self._on_note = on_note
        self._read_timeout_s = read_timeout_s
        self._limits = Limits()
        self._name = spec.name or ""
        self._facts = ServerFacts(status=0)
        self._notes: list[str] = []
        chosen = sampling or Sampling()
        self._options: JsonObject = {
            "temperature": chosen.temperature,
            "top_p": chosen.top_p,
            "top_k": chosen.top_k,
            "min_p": chosen.min_p,
            "stream_options": {"include_usage": True},
            # Qwen3.5's template forgets thoughts before the last user turn unless told not to; during a run they stay
            "chat_template_kwargs": {"enable_thinking": True, "preserve_thinking": True},
            **({} if seed is None else {"seed": seed}),
        }
        self._limit_field = "max_tokens"
        self._reasoning_names: tuple[str, ...] = ("reasoning_content",)
        self._refused_names: set[str] = set()
        self._messages: list[JsonObject] = []
        self._tools: list[JsonObject] = []
        self._last_turn = Turn()
        self._seen_ids: set[str] = set()
        self._saw_structured_calls = False
        self._stopped: str | None = None
        self.last_reply: ReadReply | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of the endpoint so far."""
        return tuple(self._notes)

    @property
    def served_models(self) -> tuple[str, ...]:
        """The names of the models that the server lists, once it is open."""
        return self._facts.models

    async def open(self, limits: Limits) -> ModelInfo:
        """Look at the server. Raises ModelUnavailable, ModelQueryError (401)."""
        self._limits = limits
        await self.close()
        self._client = EndpointClient(self._base_url, self._spec.api_key_env, read_timeout_s=self._read_timeout_s)
        if self._client.sends_key_in_clear:
            self._note(f"the key is sent without encryption to {self._client.base_url}")
        facts = await discover(self._client, self._spec.name)
        self._facts = facts
        if not self._name:
            if len(facts.models) != 1:
                served = ", ".join(facts.models[:10]) or "none that it names"
                raise ModelUnavailable(
                    "the endpoint needs the name of a model", f"Set `model.name` to one of its models: {served}."
                )
            self._name = facts.models[0]
        elif facts.models and self._name not in facts.models:
            self._note(f"the endpoint does not list the model {self._name}; it lists {', '.join(facts.models[:10])}")
        if facts.kind == "llama-server":
            self._options["return_progress"] = True
        return ModelInfo(kind="endpoint", name=self._name, context_tokens=facts.context_tokens, notes=self.notes)

    async def begin(self, system: str, tools: Sequence[JsonObject], user: str) -> None:
        """Start a conversation."""
        self._tools = list(tools)
        self._messages = [{"role": "system", "content": system}, {"role": "user", "content": escape(user)}]
        self._last_turn = Turn()
        self._seen_ids = set()

    async def recall(self, turn: Turn, observations: Sequence[Observation]) -> None:
        """Append a turn that was made earlier, and its observations."""
        self._seen_ids.update(call.id for call in turn.calls)
        self._messages.append(assistant_message(turn, self._sent_names()))
        self._messages += tool_messages(turn, observations)
        self._last_turn = Turn()

    async def generate(self, observations: Sequence[Observation], on_text: OnText, on_prefill: OnPrefill) -> Turn:
        """Answer. Raises ContextOverflow, ModelQueryError, ModelUnavailable; the history is then as before."""
        messages = [*self._messages, *tool_messages(self._last_turn, observations)]
        started = time.monotonic()
        reply = await self._query(messages, on_text, on_prefill)
        if reply.finish_reason in _FAILED_REASONS:
            raise ModelQueryError(
                f"the endpoint ended the reply with `{reply.finish_reason}`", "Look at the log of the server."
            )
        if reply.reasoning_field and reply.reasoning_field not in self._reasoning_names:
            self._reasoning_names = (*self._reasoning_names, reply.reasoning_field)
        read = read_reply(
            reply,
            self._tools,
            sent_chars=sum(len(str(message)) for message in (*messages, *self._tools)),
            duration_s=time.monotonic() - started,
            seen_ids=self._seen_ids,
        )
        if self._stopped is not None:
            forced = (Forced(kind=self._stopped, text="", n_tokens=0),)
            read = replace(read, turn=with_nudge(replace(read.turn, truncated=False, forced=forced)))
        self.last_reply = read
        self._saw_structured_calls = self._saw_structured_calls or read.structured_calls
        if read.text_calls and not self._saw_structured_calls:
            self._note(missing_tool_parser(self._facts.kind))
        if read.text_reasoning:
            self._note(missing_reasoning_parser(self._facts.kind))
        if read.usage_is_estimate:
            self._note("the endpoint reports no token counts; those shown are estimates")
        self._messages = [*messages, assistant_message(read.turn, self._sent_names())]
        self._last_turn = read.turn
        return read.turn

    async def close(self) -> None:
        """Close the connections. Idempotent; never raises."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _query(self, messages: list[JsonObject], on_text: OnText, on_prefill: OnPrefill) -> Reply:
        """Ask until there is an answer; leave out what the server rejects; ask for less where less fits."""
        n_max = self._limits.tokens_per_turn

        async def ask() -> Reply:
            assert self._client is not None, "open() comes first"
            n_pieces, self._stopped = 0, None

            def go_on(reply: Reply, chunk: JsonObject) -> bool:
                nonlocal n_pieces
                _report_progress(chunk, on_prefill)
                n_pieces += bool(chunk.get("choices"))
                self._stopped = find_stop(reply, n_pieces, self._limits.thought_tokens)
                if self._stopped is not None:
                    reply.finish_reason = "length"
                    return False
                if n_pieces <= 2 * n_max + 64 and reply.n_chars <= MAX_CHARS_PER_TOKEN * n_max:
                    return True
                reply.finish_reason = "length"
                self._note(f"the endpoint went on beyond `{self._limit_field}` ({n_max}); the reply was cut here")
                return False

            reply = await self._client.complete(self._request(messages, n_max), on_text, go_on)
            if reply.finish_reason == "abort":
                raise TryAgainError(ModelQueryError("the server aborted the reply", "Look at its log."))
            return reply

        while True:
            try:
                return await try_repeatedly(ask, self._retry, self._report_wait)
            except RejectedRequestError as rejection:
                room = rejection.error.room_tokens if rejection.error.overflow else None
                if room is not None and MIN_ROOM_TOKENS <= room < n_max:
                    n_max = room
                elif rejection.error.overflow or not self._leave_out(rejection):
                    raise rejection.final from rejection

    def _request(self, messages: list[JsonObject], n_max: int) -> JsonObject:
        kept = messages
        if self._refused_names:
            kept = [{k: v for k, v in message.items() if k not in self._refused_names} for message in messages]
        request: JsonObject = {"model": self._name, "messages": kept, "stream": True, **self._options}
        request[self._limit_field] = n_max
        if self._tools:
            request["tools"] = self._tools
        return request

    def _leave_out(self, rejection: RejectedRequestError) -> bool:
        """Drop the fields that the server rejected; whether the next request differs."""
        names = [name for name in _REASONING_NAMES if name not in self._refused_names]
        sent = [*self._options, self._limit_field, *names]
        extras = [name for name in _EXTRAS if name in self._options]
        changed = False
        for name in rejection.error.rejected_fields(sent, extras):
            if name in self._options:
                del self._options[name]
            elif name == "max_tokens" and "max_completion_tokens" in rejection.error.message:
                self._limit_field = "max_completion_tokens"
            elif name in names:
                self._refused_names.add(name)
            else:
                continue
            changed = True
            self._note(f"the endpoint does not take `{name}`; it is left out")
        return changed

    def _sent_names(self) -> tuple[str, ...]:
        return tuple(name for name in self._reasoning_names if name not in self._refused_names)

    def _report_wait(self, wait_s: float, why: FrogError) -> None:
        if self._on_note is not None:
            self._on_note(f"{why.message}; next try in {wait_s:.1f} s")

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)
            if self._on_note is not None:
                self._on_note(text)


def _report_progress(chunk: JsonObject, on_prefill: OnPrefill) -> None:
    progress = chunk.get("prompt_progress")  # llama-server
    if isinstance(progress, dict):
        done, total = progress.get("processed"), progress.get("total")
        if isinstance(done, int) and isinstance(total, int):
            on_prefill(done, total)
