"""The trajectory of a run: a file of JSON lines in the state folder, complete up to the last step at any crash.

The first line is the header, then one line a message and a step, then one line with the outcome. The field
names are those of Leaf; `raw`, `usage`, `problems` and the like are added so that a run can be resumed exactly.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from agent.config import make_private_dir, state_dir
from agent.errors import UsageError
from agent.observations import INVALID_CALL
from agent.types import (
    CallProblem,
    ConversationRestarted,
    Forced,
    Issue,
    JsonObject,
    ModelInfo,
    Observation,
    RunEvent,
    RunFinished,
    RunSpec,
    ToolCall,
    ToolFinished,
    Turn,
    TurnFinished,
    Usage,
)

FORMAT = "leaf-function-calling"
KEEP_DAYS = 30  # the default of the setting `state.keepDays`
_MAX_LINE_BYTES = 256 << 20


def trajectories_dir() -> Path:
    """The folder of trajectories. It may not exist yet."""
    return state_dir() / "trajectories"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn and the observations that it got, fewer than its calls where the run was interrupted."""

    turn: Turn
    observations: tuple[Observation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The conversation began anew with this user turn (the issue and a summary) and the last `n_kept` turns."""

    user: str
    n_kept: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """A trajectory that was read. `outcome` is None where the run did not come to its end."""

    header: JsonObject
    system: str
    user: str
    entries: tuple[Step | Restart, ...]
    outcome: JsonObject | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps alone."""
        return tuple(entry for entry in self.entries if isinstance(entry, Step))

    @property
    def issue(self) -> Issue:
        """The issue of the run."""
        return Issue(text=str(self.header.get("issue") or self.user))


class TrajectoryWriter:
    """A Recorder. After the first trouble with the disk it goes silent and keeps the trouble in `error`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: OSError | None = None
        self.is_open = False
        self._descriptor: int | None = None
        self._pending: tuple[int, Turn] | None = None
        self._observations: list[Observation] = []

    def open(self, spec: RunSpec, model: ModelInfo, tools: Sequence[JsonObject], workspace_hash: str | None) -> None:
        """Make the file (0600, new) and write the header."""
        header = {
            "trajectory_format": FORMAT,
            "trajectory_id": spec.run_id,
            "instance_id": os.path.basename(os.path.realpath(spec.workspace)),
            "seed": spec.seed,
            "model": {"kind": model.kind, "name": model.name},
            "tools": list(tools),
            "limits": dataclasses.asdict(spec.limits),
            "workspace_hash": workspace_hash,
            "workspace": os.path.realpath(spec.workspace),
            "issue": spec.issue.text,
            "test_command": spec.test_command,
            "started_at": time.time(),
        }
        try:
            make_private_dir(self.path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o600)
        except (OSError, UsageError) as error:
            self.error = error if isinstance(error, OSError) else OSError(error.message)
            return
        self.is_open = True
        self._write(header)

    def message(self, role: str, content: str) -> None:
        """Write the line of a message."""
        self._write({"role": role, "content": content})

    def record(self, event: RunEvent) -> None:
        """Write the line of a step once its observations are there, and the last line at the end."""
        match event:
            case TurnFinished(step=step, turn=turn):
                self._finish_step()
                self._pending, self._observations = (step, turn), []
                if not turn.calls and not turn.problems:
                    self._finish_step()
            case ToolFinished(observation=observation):
                self._observations.append(observation)
                if self._pending and len(self._observations) >= n_expected(self._pending[1]):
                    self._finish_step()
            case ConversationRestarted(user=user, n_kept=n_kept):
                self._write({"role": "user", "content": user, "n_kept": n_kept})
            case RunFinished(result=result):
                self._finish_step()
                error = None if result.error is None else dataclasses.asdict(result.error)
                self._write(
                    {
                        "n_steps": result.n_steps,
                        "exit_reason": str(result.exit_reason),
                        "error": error,
                        "final_message": result.final_message,
                        "elapsed_sec": round(result.elapsed_s, 3),
                        "output_patch": result.patch,
                        "partial": False,
                    }
                )
            case _:
                pass

    def close(self) -> None:
        """Write what is pending and close the file. Idempotent."""
        self._finish_step()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _finish_step(self) -> None:
        if self._pending is not None:
            step, turn = self._pending
            self._pending = None
            self._write(step_json(step, turn, self._observations))

    def _write(self, value: JsonObject) -> None:
        if self._descriptor is None or self.error is not None:
            return
        data = memoryview(to_json(value) + b"\n")
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError as error:
            self.error = error


def n_expected(turn: Turn) -> int:
    """How many observations a turn gets."""
    return len(turn.calls) + sum(problem.call is None for problem in turn.problems)


def to_json(value: Any) -> bytes:
    """`value` as one line of JSON in UTF-8; escapes only where a name is not UTF-8."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def step_json(step: int, turn: Turn, observations: Sequence[Observation]) -> JsonObject:
    """The line of a step."""
    assistant: JsonObject = {"role": "assistant", "content": turn.content}
    if turn.reasoning:
        assistant["reasoning_content"] = turn.reasoning
    if turn.calls:
        assistant["tool_calls"] = [
            {
                "id": call.id or f"call_{step}_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": to_json(dict(call.arguments)).decode()},
            }
            for index, call in enumerate(turn.calls)
        ]
    return {
        "step": step,
        "assistant": assistant,
        "observations": [
            {"tool": item.tool, "observation": item.text, "duration_s": round(item.duration_s, 4)}
            for item in observations
        ],
        "context_tokens": turn.context_tokens,
        "truncated": turn.truncated,
        "problems": [dataclasses.asdict(problem) for problem in turn.problems],
        "usage": dataclasses.asdict(turn.usage),
        "duration_s": round(turn.duration_s, 4),
        "raw": turn.raw,
        "forced": [dataclasses.asdict(item) for item in turn.forced],
    }


def read_trajectory(path: str | os.PathLike[str]) -> Trajectory:
    """Read a trajectory; a half-written last line is left out. Raises UsageError for anything else that is wrong."""
    hint = "Give a trajectory file of frog-lsp; `frog-lsp runs` lists them."
    try:
        with open(path, "rb") as file:
            lines = file.read(_MAX_LINE_BYTES).split(b"\n")
    except OSError as error:
        raise UsageError(f"{os.fspath(path)} cannot be read: {error.strerror}", hint) from error
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                reader.feed(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if number == len(lines) and reader.header is not None:
                break  # the run died while it wrote this line
            raise UsageError(f"{os.fspath(path)}, line {number}: not a line of a trajectory", hint) from error
    if reader.header is None:
        raise UsageError(f"{os.fspath(path)} is empty", hint)
    return Trajectory(
        header=reader.header,
        system=reader.system,
        user=reader.user or "",
        entries=tuple(reader.entries),
        outcome=reader.outcome,
    )


def peek_trajectory(path: str | os.PathLike[str]) -> tuple[JsonObject, JsonObject | None]:
    """The header and the outcome (None where there is no last line yet), without reading what lies between.

    Raises UsageError.
    """
    try:
        with open(path, "rb") as file:
            header = json.loads(file.readline(_MAX_LINE_BYTES))
            end = _last_line(file)
        if header["trajectory_format"] != FORMAT:
            raise ValueError("another format")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{os.fspath(path)} is no trajectory", "`frog-lsp runs --forget` deletes it.") from error
    try:
        last = json.loads(end)
    except ValueError:
        return header, None  # half written
    return header, last if isinstance(last, dict) and "exit_reason" in last else None


def _last_line(file: BinaryIO) -> bytes:
    """The last line of a file, read from its end."""
    size, n_bytes = file.seek(0, os.SEEK_END), 4096
    while True:
        n_bytes = min(size, 2 * n_bytes)
        file.seek(size - n_bytes)
        tail = file.read(n_bytes).rstrip(b"\n")
        if b"\n" in tail or n_bytes == size:
            return tail.rpartition(b"\n")[2]


@dataclass(slots=True)
class _Reader:
    header: JsonObject | None = None
    system: str = ""
    user: str | None = None
    entries: list[Step | Restart] = field(default_factory=list)
    outcome: JsonObject | None = None

    def feed(self, value: JsonObject) -> None:
        if self.header is None:
            if value["trajectory_format"] != FORMAT:
                raise ValueError("another format")
            self.header = value
        elif "step" in value:
            self.entries.append(_step(value))
        elif "exit_reason" in value:
            self.outcome = value
        elif value["role"] == "system":
            self.system = str(value["content"])
        elif self.user is None:
            self.user = str(value["content"])
        else:
            self.entries.append(Restart(user=str(value["content"]), n_kept=int(value.get("n_kept", 0))))


def _step(value: JsonObject) -> Step:
    assistant = value["assistant"]
    calls = tuple(
        ToolCall(name=item["function"]["name"], arguments=_arguments(item["function"]["arguments"]), id=item["id"])
        for item in assistant.get("tool_calls", ())
    )
    turn = Turn(
        reasoning=assistant.get("reasoning_content") or "",
        content=assistant.get("content") or "",
        calls=calls,
        problems=tuple(CallProblem(**problem) for problem in value.get("problems", ())),
        truncated=bool(value.get("truncated", False)),
        raw=value.get("raw"),
        forced=tuple(Forced(**item) for item in value.get("forced", ())),
        usage=Usage(**value.get("usage", {})),
        context_tokens=int(value.get("context_tokens") or 0),
        duration_s=float(value.get("duration_s") or 0.0),
    )
    ids = iter(calls)
    observations = []
    for item in value.get("observations", ()):
        call = None if item["tool"] == INVALID_CALL.name else next(ids, None)
        observations.append(
            Observation(
                tool=item["tool"],
                text=item["observation"],
                duration_s=float(item.get("duration_s") or 0.0),
                call_id="" if call is None else call.id,
            )
        )
    return Step(turn=turn, observations=tuple(observations))


def _arguments(value: Any) -> JsonObject:
    if isinstance(value, str):
        value = json.loads(value)
    return value if isinstance(value, dict) else {}


def forget_trajectories(*, older_than_days: float, folder: Path | None = None) -> int:
    """Delete trajectories older than so many days; gives how many. What cannot be deleted stays."""
    folder = folder or trajectories_dir()
    limit = time.time() - older_than_days * 86_400
    n_deleted = 0
    for path in folder.glob("*.jsonl") if folder.is_dir() else ():
        try:
            if path.stat().st_mtime <= limit:
                path.unlink()
                n_deleted += 1
        except OSError:
            continue
    return n_deleted
