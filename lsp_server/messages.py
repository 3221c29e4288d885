"""Parameters and results of our commands, as they travel: the wire is written down here once.

`parse` checks what a client sent against the types below. A TypeScript file can be made from them.
"""

from __future__ import annotations

import types
import typing
from typing import Any, Literal, NotRequired, TypedDict, TypeVar, cast

RunState = Literal[
    "queued",
    "running",
    "proposed",
    "nothing",
    "applied",
    "partly-applied",
    "conflict",
    "discarded",
    "cancelled",
    "failed",
]
ChangeKind = Literal["created", "modified", "deleted", "renamed", "mode", "link"]
FlagLevel = Literal["never", "runs", "used", "note"]
ModelKind = Literal["worker", "endpoint", "scripted"]
PartState = Literal["open", "applied", "discarded"]
Prospect = Literal["clean", "merged", "conflict", "in-place", "by-hand"]
FileOutcome = Literal["applied", "unchanged", "unconfirmed", "conflict", "mismatch", "rejected", "by-hand", "asked"]


class Position(TypedDict):
    """A position in the units that were negotiated."""

    line: int
    character: int


class Range(TypedDict):
    """From `start` to before `end`."""

    start: Position
    end: Position


class FixParams(TypedDict):
    """`frog.fix`: what is to be fixed and where. Diagnostics are those of LSP, of any server.

    `uri` names a document or a folder; words alone are about the one open folder.
    """

    uri: NotRequired[str | None]
    range: NotRequired[Range | None]
    diagnostics: NotRequired[list[dict[str, Any]] | None]
    issue: NotRequired[str | None]


class FixResult(TypedDict):
    """`place` is 0 for a run that starts at once, else its place in the queue."""

    runId: str
    place: int


class CancelParams(TypedDict):
    """`frog.cancel`: one run, or all."""

    runId: NotRequired[str | None]


class CancelResult(TypedDict):
    """The runs that were stopped."""

    cancelled: list[str]


class NoParams(TypedDict):
    """`frog.runs` and `frog.doctor`."""


class RunParams(TypedDict):
    """`frog.review`, `frog.proposal`."""

    runId: str


class LogParams(TypedDict):
    """`frog.log`. With `show` false the file is named and not shown."""

    runId: str
    show: NotRequired[bool | None]


class RunRow(TypedDict):
    """One run in the answer of `frog.runs`. `exitReason` is null until the run has ended; `place` is there while it
    is queued."""

    runId: str
    state: RunState
    title: str
    folder: str
    exitReason: str | None
    files: list[str]
    place: NotRequired[int]


class ReviewResult(TypedDict):
    """Where the diff lies, and whether the client showed it."""

    uri: str
    path: str
    shown: bool
    nHunks: int


class ApplyParams(TypedDict):
    """`frog.apply`: all that is applied by default, or the named files and hunks (numbered from 1)."""

    runId: str
    files: NotRequired[list[str] | None]
    hunks: NotRequired[list[int] | None]


class DiscardParams(TypedDict):
    """`frog.discard`: the whole proposal, or the named files and hunks (numbered from 1) of it."""

    runId: str
    files: NotRequired[list[str] | None]
    hunks: NotRequired[list[int] | None]


class AppliedFile(TypedDict):
    """What happened to one file. `detail` says why, or the command that does by hand what an edit cannot."""

    path: str
    outcome: FileOutcome
    detail: str


class ApplyResult(TypedDict):
    """`applied` is true when everything that was asked for is in place. `patch` is a file to apply by hand."""

    runId: str
    applied: bool
    state: RunState
    files: list[AppliedFile]
    patch: str | None
    message: str


class DiscardResult(TypedDict):
    """What the run is now: `discarded` once nothing of its proposal is left."""

    runId: str
    state: RunState


class ProposedFlag(TypedDict):
    """Something that a reviewer must see. `why` says what would run the file and when."""

    code: str
    level: FlagLevel
    why: str


class ProposedHunk(TypedDict):
    """A hunk of one file, with its number over the whole diff. Starts count lines from 1; `text` begins with `@@`."""

    number: int
    state: PartState
    oldStart: int
    oldLines: int
    newStart: int
    newLines: int
    text: str


class ProposedFile(TypedDict):
    """One change of a proposal, and what applying would do to the file as it is now.

    `uri` is the file of now (null where it is not in the folder any more), `before` the text that the run saw and
    `after` the text that it proposes, each null where there is none or it is not text. `prospect` is null for what
    is discarded or never applied; `conflict` has the three sides as git shows them.
    """

    path: str
    oldPath: str | None
    uri: str | None
    kind: ChangeKind
    state: PartState
    flags: list[ProposedFlag]
    appliedByDefault: bool
    prospect: Prospect | None
    detail: str
    conflict: str | None
    before: str | None
    after: str | None
    hunks: list[ProposedHunk]


class ModelUsed(TypedDict):
    """The model that made a proposal."""

    kind: ModelKind
    name: str
    demonstration: bool


class JailUsed(TypedDict):
    """The jail in which a run worked; `reduced` is what it could not promise."""

    backend: str
    reduced: str | None


class TestRun(TypedDict):
    """One run of the test command; `exitCode` is null at a time-out."""

    exitCode: int | None
    tail: str


class TestsRun(TypedDict):
    """The tests without and with the proposal; both null: not checked."""

    command: str | None
    before: TestRun | None
    after: TestRun | None


class ProposalResult(TypedDict):
    """A proposal as data, for a client with a review of its own."""

    runId: str
    state: RunState
    title: str
    folder: str
    exitReason: str
    finalMessage: str
    notes: list[str]
    nSteps: int
    elapsedS: float
    model: ModelUsed
    jail: JailUsed
    tests: TestsRun
    files: list[ProposedFile]


class LogResult(TypedDict):
    """The trajectory of a run: a file of JSON lines that grows with each step. `path` is null until it begins."""

    runId: str
    path: str | None
    shown: bool


class DoctorResult(TypedDict):
    """What a run needs, line by line; `ok` when a run is possible."""

    ok: bool
    lines: list[str]


COMMANDS: dict[str, type] = {
    "frog.fix": FixParams,
    "frog.cancel": CancelParams,
    "frog.runs": NoParams,
    "frog.review": RunParams,
    "frog.proposal": RunParams,
    "frog.apply": ApplyParams,
    "frog.discard": DiscardParams,
    "frog.log": LogParams,
    "frog.doctor": NoParams,
}
"""The server's commands and the one object that each takes."""

P = TypeVar("P")


class BadParamsError(ValueError):
    """The arguments of a command are not what it takes (answered as -32602)."""


def parse(shape: type[P], arguments: Any) -> P:
    """The one object of a command's arguments, checked; no arguments count as `{}`. Raises BadParamsError.

    Keys that we do not know are left out.
    """
    if arguments is None or arguments == []:
        arguments = [{}]
    if not isinstance(arguments, list) or len(arguments) != 1:
        raise BadParamsError("the command takes one object as its only argument")
    return cast("P", _check(shape, arguments[0], "the argument"))


def _check(shape: Any, value: Any, where: str) -> Any:
    origin, inner = typing.get_origin(shape), typing.get_args(shape)
    if shape is Any:
        return value
    if typing.is_typeddict(shape):
        return _check_object(shape, value, where)
    if origin is NotRequired:
        return _check(inner[0], value, where)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        return _check(next(t for t in inner if t is not type(None)), value, where)
    if origin is list:
        if not isinstance(value, list):
            raise BadParamsError(f"{where} must be a list")
        return [_check(inner[0], item, f"{where}[{at}]") for at, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise BadParamsError(f"{where} must be an object")
        return value
    if not isinstance(value, shape) or (shape is int and isinstance(value, bool)):
        raise BadParamsError(f"{where} must be {_NAMES.get(shape, shape.__name__)}")
    if shape is int and value < 0:
        raise BadParamsError(f"{where} must be 0 or more")
    return value


_NAMES: dict[type, str] = {str: "a string", int: "a whole number", bool: "true or false"}


def _check_object(shape: Any, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadParamsError(f"{where} must be an object")
    checked: dict[str, Any] = {}
    for key, inner in typing.get_type_hints(shape, include_extras=True).items():
        if key in value:
            checked[key] = _check(inner, value[key], key if where == "the argument" else f"{where}.{key}")
        elif typing.get_origin(inner) is not NotRequired:
            raise BadParamsError(f"{key} is missing" if where == "the argument" else f"{where}.{key} is missing")
    return checked
