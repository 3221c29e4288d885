"""Frozen values that travel between the rooms of the agent.

Paths of files in a workspace are relative, posix, and `str` with `surrogateescape` for names that
are not UTF-8. File contents are always `bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal

JsonObject = dict[str, Any]


class ExitReason(StrEnum):
    """Why a run ended. All but the last three are the names of the Leaf harness."""

    AGENT = "agent"
    MAX_TOKENS_PER_TURN = "max_tokens_per_turn"
    MAX_CONTEXT_LEN = "max_context_len"
    MAX_TURNS = "max_turns"
    MAX_TIME = "max_time"
    CANCELLED = "cancelled"
    LLM_QUERY_ERROR = "llm_query_error"
    TOOL_ERROR = "tool_error"
    STUCK = "stuck"
    JAIL_UNAVAILABLE = "jail_unavailable"
    MODEL_UNAVAILABLE = "model_unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a run. The defaults are those of FrogNano's published evaluation."""

    max_steps: int = 150
    context_tokens: int = 131_072
    tokens_per_turn: int = 8_192
    time_s: float = 10_800.0
    thought_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """What is to be fixed, in the words that the model gets as its first user turn."""

    text: str

    @property
    def title(self) -> str:
        """The first line that is not blank, at most 80 characters."""
        line = next((line.strip() for line in self.text.splitlines() if line.strip()), "")
        return line if len(line) <= 80 else line[:79] + "…"


FlashAttention = Literal["auto", "on", "off"]
CacheChoice = Literal["auto", "f16", "q8_0"]
"""What the attention cache holds its values in: 16 bits, 8 bits, or what fits in memory."""

Speculation = Literal["auto"] | bool
"""Whether tokens are drafted; "auto": where it was measured to pay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Which model a run uses.

    `path` is a GGUF file or a catalog name for "worker" (None: the configured or bundled one), and a
    file of turns for "scripted". `name` is the model's name at the endpoint. `n_threads`, `n_gpu_layers`,
    `flash_attention`, `cache_type` and `batch_tokens` (prompt tokens read at a time) are for the worker (None, "auto":
    as the machine has it), `repairs_calls` says whether it repairs calls while they are written, `speculation` whether
    it drafts tokens.
    """

    kind: Literal["worker", "endpoint", "scripted"] = "worker"
    path: str | None = None
    base_url: str | None = None
    name: str | None = None
    api_key_env: str | None = None
    n_threads: int | None = None
    n_gpu_layers: int | None = None
    flash_attention: FlashAttention = "auto"
    cache_type: CacheChoice = "auto"
    batch_tokens: int | None = None
    repairs_calls: bool = True
    speculation: Speculation = "auto"


JailBackend = Literal["auto", "namespaces", "bwrap", "landlock", "files"]
"""What may be chosen; the backend that a run really got is in `JailInfo`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JailSettings:
    """What a user may say about the jail. Nothing here can switch it off."""

    backend: JailBackend = "auto"
    read_only_paths: tuple[str, ...] = ()
    python: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Everything that determines a run.

    `buffers` holds the unsaved text of open documents (encoded as it would be saved) by workspace
    path: the run works on the workspace as the user sees it.
    """

    run_id: str
    workspace: str
    issue: Issue
    model: ModelSpec = ModelSpec()
    limits: Limits = Limits()
    jail: JailSettings = JailSettings()
    test_command: str | None = None
    buffers: Mapping[str, bytes] = field(default_factory=dict)
    seed: int | None = None
    resume_from: str | None = None
    prompt_file: str | None = None
    context_is_explicit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool by the model. `arguments` are coerced by the schema where possible."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProblem:
    """A call, or a part of one, that could not be read.

    `index` counts the blocks of the turn from 0; `call` is the index into `Turn.calls` where the call
    is still listed (with the raw string), None where there is no call. A nudge is no call: it says what the model
    is to do instead of what it was stopped in.
    """

    index: int
    call: int | None
    message: str
    is_nudge: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """Something that was put into a turn while the model wrote it, as if it had written that.

    `kind`: what a call lacked ("name", "structure", "parameter", "close"), "thought" (closed before a call in it),
    "thought_limit" and "thought_repeats" (closed by force), "answer_repeats" (the turn was stopped, nothing put in).
    """

    kind: str
    text: str
    n_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counts of tokens. None where an endpoint cannot tell."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    evaluated_tokens: int | None = 0
    redecoded_tokens: int | None = 0
    draft_rejected_tokens: int | None = 0

    def __add__(self, other: Usage) -> Usage:
        def total(a: int | None, b: int | None) -> int | None:
            return None if a is None or b is None else a + b

        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            evaluated_tokens=total(self.evaluated_tokens, other.evaluated_tokens),
            redecoded_tokens=total(self.redecoded_tokens, other.redecoded_tokens),
            draft_rejected_tokens=total(self.draft_rejected_tokens, other.draft_rejected_tokens),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One reply of the model, parsed.

    `truncated` means that the turn was cut by the length limit: `calls` is then empty.
    `context_tokens` is the length of the conversation after the turn; `usage` counts this turn only; `forced` is what
    was put into it.
    """

    reasoning: str = ""
    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    problems: tuple[CallProblem, ...] = ()
    truncated: bool = False
    raw: str | None = None
    forced: tuple[Forced, ...] = ()
    usage: Usage = Usage()
    context_tokens: int = 0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a tool answered, as the model sees it. `tool` and `call_id` are those of the call."""

    tool: str
    text: str
    duration_s: float = 0.0
    call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What a model says of itself once it is open. `notes` go to the user with the result."""

    kind: Literal["worker", "endpoint", "scripted"]
    name: str
    demonstration: bool = False
    context_tokens: int | None = None
    system_prompt: str | None = None
    tools: tuple[JsonObject, ...] | None = None
    notes: tuple[str, ...] = ()


class ChangeKind(StrEnum):
    """What happened to a path."""

    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    RENAMED = "renamed"
    MODE = "mode"
    LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file or a symbolic link at one moment. Exactly one of `data` and `link` is not None,
    except for special files (FIFO, socket, device), where both are None.

    `mode` holds the permission bits (`st_mode & 0o7777`).
    """

    data: bytes | None
    mode: int = 0o644
    link: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathDelta:
    """One path whose state in the private view differs from the snapshot, before it is classified.

    `base_known` is False where the real file changed during the run and its base was not kept.
    """

    path: str
    before: FileState | None
    after: FileState | None
    base_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Something the reviewer must see. `code` is stable; `why` says what would run it and when."""

    code: str
    level: Literal["never", "runs", "used", "note"]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One path that differs between the snapshot and the private view.

    `before` is the snapshot (None: there was nothing), `after` the private view (None: nothing now).
    `base_known` is False where the user changed the file during the run before its base was kept: such
    a change can only be applied where the file equals `after` or by hand.
    """

    path: str
    kind: ChangeKind
    before: FileState | None
    after: FileState | None
    old_path: str | None = None
    base_known: bool = True
    flags: tuple[Flag, ...] = ()

    @property
    def applied_by_default(self) -> bool:
        """False where a flag says that the change runs by itself, is never applied, or is ignored by git."""
        return not any(f.level in ("never", "runs") or f.code == "ignored" for f in self.flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """What a run changed, sorted by path, taken from the private view.

    `n_generated` counts caches left out (`__pycache__` and the like); `omitted` names what can never be
    part of a proposal (changes under `.git`).
    """

    changes: tuple[FileChange, ...] = ()
    n_generated: int = 0
    omitted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateView:
    """Where the private copy-on-write view of a workspace lies once every jailed process is dead.

    `upper_fd` is an open directory in overlay format (whiteouts are character devices 0:0, opaque
    folders carry `user.overlay.opaque`); `lower` is the real workspace. Whoever holds it closes `upper_fd`.
    Where `copied` is given, `upper_fd` is a whole copy instead: `copied` has, by workspace path, the inode and the
    change time in nanoseconds of every file and link in it before anything ran.
    """

    upper_fd: int
    lower: str
    copied: Mapping[str, tuple[int, int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOutcome:
    """The outcome of the test command. `tail` is the last 40 lines of its output.

    `exit_code` is negative when a signal ended it, None at a time-out.
    """

    __test__: ClassVar[bool] = False

    exit_code: int | None
    tail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JailInfo:
    """Which backend ran, and what it cannot promise (None: everything is promised).

    `root` is where the workspace is for the tools (None: at its own path).
    """

    backend: str
    reduced: str | None = None
    root: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """An error in the words of `--json`: `kind` is stable, `hint` says what to do."""

    kind: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended. `tests_before` and `tests_after` are None where nothing was checked."""

    run_id: str
    exit_reason: ExitReason
    final_message: str
    n_steps: int
    usage: Usage
    elapsed_s: float
    model: ModelInfo
    jail: JailInfo
    changes: ChangeSet
    patch: str
    test_command: str | None = None
    tests_before: TestOutcome | None = None
    tests_after: TestOutcome | None = None
    trajectory: str | None = None
    notes: tuple[str, ...] = ()
    error: RunError | None = None


# --- events: while a run goes on, its only outlet ------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The model is open and the jail is ready. `trajectory` is the file that grows with each step, None without one."""

    run_id: str
    model: ModelInfo
    jail: JailInfo
    limits: Limits
    trajectory: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """The model begins turn `step`, counted from 1."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the model's raw text, in order."""

    step: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """`done` of `total` prompt tokens of this turn have been read."""

    step: int
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """The model's turn is complete and parsed."""

    step: int
    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSteered:
    """Something was put into the turn while the model wrote it, or it was stopped."""

    step: int
    forced: tuple[Forced, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRestarted:
    """The window was nearly full: from turn `step` on the conversation is the system prompt, `user` (the issue with
    the model's own summary of the work so far) and the last `n_kept` turns before `step`, as they were."""

    step: int
    user: str
    n_kept: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool begins to run."""

    step: int
    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A tool answered."""

    step: int
    call: ToolCall
    observation: Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class TestsFinished:
    """The test command ran on the snapshot ("before") or on the proposal ("after")."""

    __test__: ClassVar[bool] = False

    phase: Literal["before", "after"]
    command: str
    outcome: TestOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a person should know."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The last event of a run."""

    result: RunResult


RunEvent = (
    RunStarted
    | StepStarted
    | TextDelta
    | Prefill
    | TurnFinished
    | TurnSteered
    | ConversationRestarted
    | ToolStarted
    | ToolFinished
    | TestsFinished
    | Note
    | RunFinished
)
