"""The embedded model as a `ChatModel`: one conversation in a worker process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent.config import cache_dir
from agent.errors import ContextTooLarge, ModelUnavailable, UsageError
from agent.model.admission import admit
from agent.model.batch_costs import costs_folder
from agent.model.chat_format import complete_thinking
from agent.model.gguf_header import GgufHeader
from agent.model.keeper import WorkerKeeper
from agent.model.locate import ModelFile
from agent.model.machine import available_bytes, physical_cores
from agent.model.memory import GIB, CacheType, ContextPlan, leaves_room, mtp_bytes, plan_context
from agent.model.model_facts import ModelFacts, read_facts
from agent.model.presence import Holder, other_holders
from agent.model.speculation import MOST_DRAFTED
from agent.model.tool_calls import Finish, parse
from agent.model.worker_process import WorkerProcess
from agent.observations import with_nudge
from agent.protocols import OnPrefill, OnText
from agent.types import (
    CacheChoice,
    FlashAttention,
    Forced,
    JsonObject,
    Limits,
    ModelInfo,
    ModelSpec,
    Observation,
    Speculation,
    ToolCall,
    Turn,
    Usage,
)

DRAFT_STATES = (MOST_DRAFTED, 3, 1)
SMALL_BYTES = 64 << 20  # below, threads wait for each other longer than they work: 100 times slower on a busy machine


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What a user may say about the embedded model. None: as the machine has it."""

    n_threads: int | None = None
    n_gpu_layers: int | None = None
    flash_attention: FlashAttention = "auto"
    cache_type: CacheChoice = "auto"
    batch_tokens: int | None = None
    repairs_calls: bool = True
    speculation: Speculation = "auto"

    @classmethod
    def of(cls, model: ModelSpec) -> WorkerOptions:
        """Those of a run."""
        return cls(
            n_threads=model.n_threads,
            n_gpu_layers=model.n_gpu_layers,
            flash_attention=model.flash_attention,
            cache_type=model.cache_type,
            batch_tokens=model.batch_tokens,
            repairs_calls=model.repairs_calls,
            speculation=model.speculation,
        )

    @property
    def cache_types(self) -> tuple[CacheType, ...]:
        """What may be planned with; a cache of 8 bits needs flash attention. Raises UsageError."""
        if self.flash_attention == "off" and self.cache_type == "q8_0":
            raise UsageError(
                "a cache of 8 bits (model.cacheType q8_0) needs flash attention, and model.flashAttention is off",
                "Set one of the two to auto.",
            )
        if self.cache_type != "auto":
            return (self.cache_type,)
        return ("f16",) if self.flash_attention == "off" else ("f16", "q8_0")


class WorkerModel:
    """One conversation with a model in a worker process; a `ChatModel`.

    With a `keeper` the process outlives `close` and is used again; else it ends with it. `on_loading` gets the share
    of the file that is loaded, from 0 to 1; `on_note` what a person should know after `open`.
    """

    def __init__(
        self,
        file: ModelFile,
        *,
        seed: int | None = None,
        context_is_explicit: bool = False,
        options: WorkerOptions | None = None,
        keeper: WorkerKeeper | None = None,
        on_loading: Callable[[float], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        self._file = file
        self._seed = seed
        self._context_is_explicit = context_is_explicit
        self._options = options or WorkerOptions()
        self._keeper = keeper
        self._on_loading = on_loading
        self._on_note = on_note
        self._worker: WorkerProcess | None = None
        self._limits = Limits()
        self._tools: Sequence[JsonObject] = ()
        self._opens_thinking = True
        self._n_ctx = 0
        self._n_turns = 0
        self._on_text: OnText | None = None
        self._on_prefill: OnPrefill | None = None

    async def open(self, limits: Limits) -> ModelInfo:
        """Check the file, choose the context, start a worker and load the model into it.

        Raises ModelFileError before anything is started, ContextTooLarge, ModelUnavailable.
        """
        await self.close()
        self._limits = limits
        header, facts = await asyncio.to_thread(_look_at, self._file)
        if self._keeper is not None:
            self._worker = await self._keeper.take()
        try:
            return await self._load(header, facts)
        except BaseException:
            if self._worker is not None and self._keeper is not None:
                await _finish(self._worker.stop_generating())  # the next run must not wait for this model
            await self.close()
            raise

    async def _load(self, header: GgufHeader, facts: ModelFacts) -> ModelInfo:
        if self._worker is None:
            self._worker = await WorkerProcess.start()
        others = await asyncio.to_thread(other_holders, self._worker.pid)
        plan, n_rs_seq, extra_bytes = self._plan(header, others)
        need_bytes = plan.need.total_bytes(plan.n_ctx) + extra_bytes
        self._worker.on_notification = self._notified
        opened = await self._ask(
            "open",
            {
                "path": self._file.path,
                "header_bytes": header.size_bytes - header.tensor_bytes,
                "template": facts.template,
                "n_ctx": plan.n_ctx,
                "n_threads": self._options.n_threads or (1 if header.tensor_bytes < SMALL_BYTES else physical_cores()),
                "gpu_layers": self._options.n_gpu_layers,
                "repack": plan.setup.repack,
                "tuning": {
                    "micro_batch_tokens": plan.setup.batch_tokens,
                    "cache_type": plan.setup.cache_type,
                    "flash_attention": self._options.flash_attention,
                    "n_rs_seq": n_rs_seq,
                },
                "speculation": self._options.speculation,
                "costs": str(costs_folder()),
                "load_mtp": extra_bytes > 0,
                "need_bytes": need_bytes,
                "prefixes": str(cache_dir() / "prefixes"),
                "sampling": asdict(facts.sampling),
                "repairs_calls": self._options.repairs_calls,
            },
        )
        if self._keeper is not None:
            self._keeper.held_bytes = need_bytes
        self._opens_thinking = bool(opened["opens_thinking"])
        self._n_ctx = int(opened["n_ctx"])
        return ModelInfo(
            kind="worker",
            name=self._file.name,
            demonstration=facts.is_demonstration,
            context_tokens=self._n_ctx,
            system_prompt=facts.system_prompt,
            tools=facts.tools,
            notes=(*plan.notes, *map(_describe, others)),
        )

    def _plan(self, header: GgufHeader, others: Sequence[Holder]) -> tuple[ContextPlan, int, int]:
        """The plan, the states to keep for taking drafts back: as many as leave everything else as it is, and the
        bytes for drafts of the model's own layer, 0 where it is not loaded.

        Raises ContextTooLarge, ModelUnavailable.
        """
        room = available_bytes() + (self._keeper.held_bytes if self._keeper else 0)

        def plan(n_rs_seq: int) -> ContextPlan:
            return plan_context(
                header,
                self._limits.context_tokens,
                room,
                self._context_is_explicit,
                cache_types=self._options.cache_types,
                batch_tokens=self._options.batch_tokens,
                n_rs_seq=n_rs_seq,
            )

        try:
            found, n_rs_seq = plan_drafts(plan, is_wanted=self._options.speculation is not False)
        except ModelUnavailable as error:
            if others:
                error.hint = f"{' '.join(map(_describe, others))} {error.hint}"
            raise
        extra_bytes = mtp_bytes(header, found.need, found.n_ctx) if n_rs_seq else 0
        if not leaves_room(found.need.total_bytes(found.n_ctx) + extra_bytes, room):
            extra_bytes = 0
        return found, n_rs_seq, extra_bytes

    async def begin(self, system: str, tools: Sequence[JsonObject], user: str) -> None:
        """Start a conversation. Raises ModelUnavailable."""
        self._tools = list(tools)
        self._n_turns = 0
        await self._ask("begin", {"system": system, "tools": self._tools, "user": user, "seed": self._seed})

    async def recall(self, turn: Turn, observations: Sequence[Observation]) -> None:
        """Append a turn that was made earlier, and its observations. Raises ModelUnavailable."""
        calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in turn.calls]
        given = {"reasoning": turn.reasoning, "content": turn.content, "calls": calls, "raw": turn.raw}
        self._n_turns += 1
        await self._ask("recall", {"turn": given, "observations": _as_json(observations)})

    async def generate(self, observations: Sequence[Observation], on_text: OnText, on_prefill: OnPrefill) -> Turn:
        """Answer. Raises ContextOverflow, ModelQueryError, ModelUnavailable.

        When it is cancelled the generation stops; a worker that does not stop within a second is killed.
        """
        self._on_text, self._on_prefill = on_text, on_prefill
        try:
            reply = await self._ask(
                "generate",
                {
                    "observations": _as_json(observations),
                    "max_tokens": self._limits.tokens_per_turn,
                    "thought_tokens": self._limits.thought_tokens,
                },
            )
        except asyncio.CancelledError:
            self._on_text = self._on_prefill = None
            if self._worker is not None:
                await _finish(self._worker.stop_generating())
            raise
        finally:
            self._on_text = self._on_prefill = None
        self._n_turns += 1
        return self._turn(reply)

    async def close(self) -> None:
        """Give the worker back, or end it. Idempotent; never raises."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.on_notification = None
        await _finish(worker.close() if self._keeper is None else self._keeper.give_back(worker))

    async def _ask(self, method: str, params: JsonObject) -> Any:
        if self._worker is None:
            raise ModelUnavailable("the model is not open", "Open it first.")
        return await self._worker.request(method, params)

    def _turn(self, reply: JsonObject) -> Turn:
        raw = str(reply["raw"])
        finish: Finish = "stop" if reply["finish"] == "stop" else "length"
        parsed = parse(complete_thinking(raw, self._opens_thinking), finish=finish, tools=self._tools)
        calls = tuple(
            ToolCall(name=call.name, arguments=call.arguments, id=f"call_{self._n_turns}_{i}")
            for i, call in enumerate(parsed.calls)
        )
        turn = Turn(
            reasoning=parsed.reasoning,
            content=parsed.content,
            calls=calls,
            problems=parsed.problems,
            truncated=parsed.truncated,
            raw=raw,
            forced=tuple(Forced(**item) for item in reply["forced"]),
            usage=Usage(
                prompt_tokens=reply["prompt_tokens"],
                completion_tokens=reply["completion_tokens"],
                evaluated_tokens=reply["evaluated_tokens"],
                redecoded_tokens=reply["redecoded_tokens"],
                draft_rejected_tokens=reply["draft_rejected_tokens"],
            ),
            context_tokens=reply["context_tokens"],
            duration_s=reply["duration_s"],
        )
        return with_nudge(turn)

    def _notified(self, method: str, params: JsonObject) -> None:
        if method == "text" and self._on_text is not None:
            self._on_text(str(params["text"]))
        elif method == "prefill" and self._on_prefill is not None:
            self._on_prefill(int(params["done"]), int(params["total"]))
        elif method == "note" and self._on_note is not None:
            self._on_note(str(params["text"]))
        elif method == "loading" and self._on_loading is not None:
            self._on_loading(float(params["share"]))


def plan_drafts(plan: Callable[[int], ContextPlan], *, is_wanted: bool) -> tuple[ContextPlan, int]:
    """The plan with the most states for drafts that neither shorten the context nor change how it is kept; pure.

    `plan` makes one with so many states. Raises what it raises without any.
    """
    plain = plan(0)
    for n_rs_seq in DRAFT_STATES if is_wanted else ():
        with contextlib.suppress(ContextTooLarge, ModelUnavailable):
            found = plan(n_rs_seq)
            if (found.n_ctx, found.setup) == (plain.n_ctx, plain.setup):
                return found, n_rs_seq
    return plain, 0


def _look_at(file: ModelFile) -> tuple[GgufHeader, ModelFacts]:
    header = admit(file.path)
    return header, read_facts(header, is_bundled=file.kind == "demonstration")


def _describe(holder: Holder) -> str:
    size = f"{holder.need_bytes / GIB:.1f} GiB"
    return f"Another frog-lsp (process {holder.pid}) holds {holder.model} in memory too, planned with {size}."


def _as_json(observations: Sequence[Observation]) -> list[JsonObject]:
    return [{"tool": item.tool, "text": item.text} for item in observations]


async def _finish(work: Any) -> None:
    """Let `work` come to its end even when this task is cancelled again meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
        except Exception:
            break
    with contextlib.suppress(Exception):
        task.result()
