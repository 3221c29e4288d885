"""The result of a run as `--json` and `frog-lsp schema` have it."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from agent.changes.changeset import changes_json
from agent.errors import FrogError
from agent.types import JsonObject, RunError, RunResult, TestOutcome, Usage


class ErrorJson(TypedDict):
    """What went wrong: a stable word, a plain sentence, what to do."""

    kind: str
    message: str
    hint: str


class UsageJson(TypedDict):
    """Counts of tokens; null where an endpoint cannot tell."""

    prompt_tokens: int
    completion_tokens: int
    evaluated_tokens: int | None
    redecoded_tokens: int | None
    draft_rejected_tokens: int | None


class ModelJson(TypedDict):
    """Which model ran."""

    kind: str
    name: str


class JailJson(TypedDict):
    """Which backend ran, and what it could not promise."""

    backend: str
    reduced: str | None


class CheckJson(TypedDict):
    """One run of the test command. `exit_code` is null at a time-out; `tail` has the last 40 lines."""

    exit_code: int | None
    tail: str


class TestsJson(TypedDict):
    """The test command on the snapshot and on the proposal; null is "not checked"."""

    command: str | None
    before: CheckJson | None
    after: CheckJson | None


class ResultJson(TypedDict):
    """The one object of `frog-lsp fix --json`. Before a run there is nothing but `error`; the rest is empty."""

    run_id: str | None
    exit_reason: str | None
    final_message: str
    n_steps: int
    usage: UsageJson
    elapsed_s: float
    model: ModelJson | None
    jail: JailJson | None
    tests: TestsJson
    changes: list[JsonObject]
    n_generated: int
    patch: str
    trajectory: str | None
    notes: list[str]
    error: ErrorJson | None


def result_json(result: RunResult) -> ResultJson:
    """The result of a run."""
    return ResultJson(
        run_id=result.run_id,
        exit_reason=str(result.exit_reason),
        final_message=result.final_message,
        n_steps=result.n_steps,
        usage=_usage(result.usage, is_endpoint=result.model.kind == "endpoint"),
        elapsed_s=round(result.elapsed_s, 3),
        model=ModelJson(kind=result.model.kind, name=result.model.name),
        jail=JailJson(backend=result.jail.backend, reduced=result.jail.reduced),
        tests=TestsJson(
            command=result.test_command, before=_test(result.tests_before), after=_test(result.tests_after)
        ),
        changes=changes_json(result.changes),
        n_generated=result.changes.n_generated,
        patch=result.patch,
        trajectory=result.trajectory,
        notes=list(result.notes),
        error=None if result.error is None else _error(result.error),
    )


def no_result_json(error: FrogError) -> ResultJson:
    """The object where no run was begun."""
    return ResultJson(
        run_id=None,
        exit_reason=None,
        final_message="",
        n_steps=0,
        usage=_usage(Usage()),
        elapsed_s=0.0,
        model=None,
        jail=None,
        tests=TestsJson(command=None, before=None, after=None),
        changes=[],
        n_generated=0,
        patch="",
        trajectory=None,
        notes=[],
        error=error_json(error),
    )


def error_json(error: FrogError) -> ErrorJson:
    """An error in the words of `--json`."""
    return ErrorJson(kind=error.kind, message=error.message, hint=error.hint)


def result_schema() -> dict[str, Any]:
    """The JSON schema of `ResultJson`."""
    from pydantic import TypeAdapter

    return TypeAdapter(ResultJson).json_schema()


def _usage(usage: Usage, *, is_endpoint: bool = False) -> UsageJson:
    """What an endpoint evaluates is not known, also where it was never asked."""
    return UsageJson(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        evaluated_tokens=None if is_endpoint else usage.evaluated_tokens,
        redecoded_tokens=usage.redecoded_tokens,
        draft_rejected_tokens=usage.draft_rejected_tokens,
    )


def _test(outcome: TestOutcome | None) -> CheckJson | None:
    return None if outcome is None else CheckJson(exit_code=outcome.exit_code, tail=outcome.tail)


def _error(error: RunError) -> ErrorJson:
    return ErrorJson(kind=error.kind, message=error.message, hint=error.hint)
