"""The model process: frames on the descriptors that were stdin and stdout, llama.cpp's log on stderr.

Started as `python -I -c "from agent.model.worker import main; main()"`. One thread reads frames, so that `abort` is
seen in the middle of a generation and the end of stdin ends the process at once; the main thread does everything else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from agent.errors import FrogError, ModelQueryError, ModelUnavailable
from agent.ipc.framing import FrameError, read_frame, write_frame
from agent.ipc.messages import check_hello, hello_params
from agent.types import JsonObject, Observation, ToolCall, Turn

if TYPE_CHECKING:
    from agent.model.batch_costs import CostStore
    from agent.model.engine import Engine
    from agent.model.engine_chat import Conversation
    from agent.model.engine_context import LoadedModel, Tuning
    from agent.model.prefixes import PrefixStore
    from agent.model.presence import Presence
    from agent.model.template_process import TemplateProcess

HINT_MARK = "\x1f"
"""Between the message and the hint of an error: a frame has one text for both."""

PROGRESS_EVERY_S = 0.05
_LAST_WRITE_S = 0.5  # that a beginning of a conversation may still be written after stdin has ended
_FIRST_VICTIM = b"700"  # of 1000: when memory runs out, the model goes before the editor


def main(kind: type[Worker] | None = None) -> None:
    """Serve until stdin ends. `kind`: a worker that has more methods."""
    requests, answers = _take_descriptors()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
        file.write(_FIRST_VICTIM)
    (kind or Worker)(requests, answers).serve()


def _take_descriptors() -> tuple[BinaryIO, BinaryIO]:
    """Move the protocol off 0 and 1 before any library can print: 1 becomes stderr, 0 empty."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return requests, answers


class Worker:
    """Holds one model, one context and one conversation."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self._requests = requests
        self._answers = answers
        self._inbox: queue.SimpleQueue[JsonObject] = queue.SimpleQueue()
        self._abort = threading.Event()
        self._model: LoadedModel | None = None
        self._model_key: tuple[Any, ...] = ()
        self._engine: Engine | None = None
        self._engine_key: tuple[Any, ...] = ()
        self._chat: Conversation | None = None
        self._prefixes: PrefixStore | None = None
        self._presence: Presence | None = None
        self._template: TemplateProcess | None = None
        self._methods: dict[str, Callable[[JsonObject], JsonObject]] = {
            "hello": self._hello,
            "open": self._open,
            "begin": self._begin,
            "recall": self._recall,
            "generate": self._generate,
            "abort": self._aborted,
            "unload": self._unload,
        }

    def serve(self) -> None:
        """Answer requests one after another. Does not return: the end of stdin ends the process."""
        threading.Thread(target=self._read, name="frames", daemon=True).start()
        while True:
            message = self._inbox.get()
            answer: JsonObject = {"id": message.get("id")}
            try:
                method = self._methods.get(str(message.get("method")))
                if method is None:
                    raise ModelQueryError(f"no such method: {message.get('method')!r}")
                answer["result"] = method(message.get("params") or {})
            except FrogError as error:
                answer["error"] = {"kind": error.kind, "message": f"{error.message}{HINT_MARK}{error.hint}"}
            except Exception as error:
                answer["error"] = {"kind": "internal", "message": f"{type(error).__name__}: {error}"}
            self._send(answer)

    def _read(self) -> None:
        try:
            while (message := read_frame(self._requests)) is not None:
                if message.get("method") == "abort":
                    self._abort.set()
                self._inbox.put(message)
        except (FrameError, OSError) as error:
            os.write(2, f"the model worker got what is no message: {error}\n".encode())
            os._exit(1)
        self._abort.set()
        if self._prefixes is not None:
            self._prefixes.wait(_LAST_WRITE_S)
        os._exit(0)

    def _send(self, message: JsonObject) -> None:
        try:
            write_frame(self._answers, message)
        except OSError:
            os._exit(0)

    def _notify(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    # --- methods -----------------------------------------------------------------------------------------

    def _hello(self, params: JsonObject) -> JsonObject:
        check_hello(params)
        return hello_params(pid=os.getpid())

    def _open(self, params: JsonObject) -> JsonObject:
        """Load the model and make the context, or keep those that are there."""
        try:
            from agent.model.engine import Engine
            from agent.model.engine_chat import Conversation
            from agent.model.engine_context import LoadedModel, Tuning
            from agent.model.engine_speculation import tune_drafts
        except (ImportError, OSError) as error:
            raise ModelUnavailable(
                f"llama-cpp-python is not there or does not load: {error}",
                "Install it; it is compiled once, which takes some minutes. The README says how.",
            ) from error
        from agent.model.chat_format import ChatFormat
        from agent.model.presence import Presence
        from agent.model.sampling import Sampling
        from agent.model.template_process import TemplateProcess

        info, load_mtp = os.stat(params["path"]), params.get("load_mtp", False)
        model_key = (params["path"], info.st_mtime_ns, info.st_size, params["gpu_layers"], params["repack"], load_mtp)
        tuning = Tuning(**params["tuning"])
        engine_key = (params["n_ctx"], params["n_threads"], tuning, params.get("speculation"))
        is_kept = self._model is not None and model_key == self._model_key
        if self._template is None or self._template.source != params["template"]:
            if self._template is not None:
                self._template.close()
            self._template = TemplateProcess(params["template"])  # it starts while the model is loaded
        if not is_kept:
            self._unload({})
            self._presence = Presence(os.path.basename(params["path"]), params["need_bytes"])
            self._model = LoadedModel(
                params["path"],
                n_gpu_layers=params["gpu_layers"],
                repack=params["repack"],
                on_progress=self._loading(),
                load_mtp=load_mtp,
            )
            self._model_key = model_key
        assert self._model is not None
        if self._chat is not None:
            self._chat.close()
        if self._engine is None or engine_key != self._engine_key:
            if self._engine is not None:
                self._engine.close()
            self._engine = None
            facts = _facts(params, info)
            tuning, costs = tune_drafts(
                self._model,
                tuning,
                n_threads=params["n_threads"],
                is_forced=params.get("speculation") is True,
                store=_open_costs(params, facts, tuning),
                abort=self._abort,
            )
            self._prefixes = self._open_prefixes(params, facts, tuning)
            self._engine = Engine(
                self._model,
                n_ctx=params["n_ctx"],
                n_threads=params["n_threads"],
                abort=self._abort,
                tuning=tuning,
                prefixes=self._prefixes,
                costs=costs,
            )
            self._engine_key = engine_key
        vocab = self._model.vocab
        template = ChatFormat(params["template"], bos=vocab.bos, ends=vocab.ends, renderer=self._template)
        sampling = Sampling(**params["sampling"])
        self._chat = Conversation(self._engine, template, sampling, repairs_calls=params["repairs_calls"])
        return {
            "n_ctx": self._engine.n_ctx,
            "opens_thinking": template.opens_thinking,
            "was_loaded": is_kept,
            "n_rs_seq": self._engine.n_rs_seq,
        }

    def _open_prefixes(self, params: JsonObject, facts: JsonObject, tuning: Tuning) -> PrefixStore | None:
        """The kept beginnings of this model file, in this build, with this cache."""
        from agent.model.prefixes import PrefixStore

        if params["prefixes"] is None:
            return None
        cache = [tuning.cache_type, tuning.flash_attention, tuning.n_rs_seq, params["gpu_layers"]]
        facts = {**facts, "cache": cache}
        return PrefixStore(Path(params["prefixes"]), facts, on_note=lambda text: self._notify("note", text=text))

    def _begin(self, params: JsonObject) -> JsonObject:
        self._conversation().begin(params["system"], params["tools"], params["user"], params.get("seed"))
        return {}

    def _recall(self, params: JsonObject) -> JsonObject:
        given = params["turn"]
        calls = tuple(ToolCall(name=call["name"], arguments=call["arguments"]) for call in given["calls"])
        turn = Turn(reasoning=given["reasoning"], content=given["content"], calls=calls, raw=given["raw"])
        self._conversation().recall(turn, _observations(params))
        return {}

    def _generate(self, params: JsonObject) -> JsonObject:
        from agent.model.engine_context import DecodeAbortedError

        text, prefill = _Paced(lambda piece: self._notify("text", text=piece)), _PacedPrefill(self._notify)
        try:
            reply = self._conversation().generate(
                _observations(params),
                max_tokens=params["max_tokens"],
                thought_tokens=params["thought_tokens"],
                on_text=text.add,
                on_prefill=prefill.show,
            )
        except DecodeAbortedError:
            raise ModelQueryError("the generation was stopped") from None
        text.flush()
        usage = reply.usage
        return {
            "raw": reply.raw,
            "finish": reply.finish,
            "context_tokens": reply.context_tokens,
            "duration_s": reply.duration_s,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "evaluated_tokens": usage.evaluated_tokens,
            "redecoded_tokens": usage.redecoded_tokens,
            "draft_rejected_tokens": usage.draft_rejected_tokens,
            "forced": [asdict(item) for item in reply.forced],
        }

    def _aborted(self, _params: JsonObject) -> JsonObject:
        """Answered once whatever was going on has stopped."""
        self._abort.clear()
        return {}

    def _unload(self, _params: JsonObject) -> JsonObject:
        """Free everything; the process stays."""
        if self._chat is not None:
            self._chat.close()
        if self._engine is not None:
            self._engine.close()
        if self._model is not None:
            self._model.close()
        if self._presence is not None:
            self._presence.close()
        self._chat, self._engine, self._model, self._presence = None, None, None, None
        return {}

    def _conversation(self) -> Conversation:
        if self._chat is None:
            raise ModelQueryError("no model is open", "Open one first.")
        return self._chat

    def _loading(self) -> Callable[[float], bool]:
        last_s = 0.0

        def on_progress(share: float) -> bool:
            nonlocal last_s
            now_s = time.monotonic()
            if now_s - last_s >= PROGRESS_EVERY_S or share >= 1:
                last_s = now_s
                self._notify("loading", share=round(share, 3))
            return not self._abort.is_set()

        return on_progress


class _Paced:
    """Joins pieces of text so that there are at most some 20 messages a second."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self._pieces: list[str] = []
        self._last_s = 0.0

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        if time.monotonic() - self._last_s >= PROGRESS_EVERY_S:
            self.flush()

    def flush(self) -> None:
        if self._pieces:
            self._send("".join(self._pieces))
            self._pieces.clear()
        self._last_s = time.monotonic()


class _PacedPrefill:
    def __init__(self, notify: Callable[..., None]) -> None:
        self._notify = notify
        self._last_s = 0.0

    def show(self, done: int, total: int) -> None:
        now_s = time.monotonic()
        if now_s - self._last_s >= PROGRESS_EVERY_S or done == total:
            self._last_s = now_s
            self._notify("prefill", done=done, total=total)


def _facts(params: JsonObject, info: os.stat_result) -> JsonObject:
    """What tells this model file, in this build of the engine, from every other."""
    from agent.model.engine_library import engine_build

    with open(params["path"], "rb") as file:
        header = hashlib.sha256(file.read(params["header_bytes"])).hexdigest()
    return {"model": [info.st_size, info.st_mtime_ns, header], "build": engine_build()}


def _open_costs(params: JsonObject, facts: JsonObject, tuning: Tuning) -> CostStore:
    """What batches cost with this model, on so many threads."""
    from agent.model.batch_costs import CostStore

    way = [tuning.cache_type, tuning.flash_attention, tuning.n_rs_seq, params["gpu_layers"], params["repack"]]
    return CostStore(
        Path(params.get("costs", "")), params["path"], {**facts, "way": way, "n_threads": params["n_threads"]}
    )


def _observations(params: JsonObject) -> list[Observation]:
    return [Observation(tool=item["tool"], text=item["text"]) for item in params["observations"]]


if __name__ == "__main__":
    main()
